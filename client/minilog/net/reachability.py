"""The addresses that this client cannot connect to, with the reasons. Pure.

    failed      the client could not connect: the reason is kept
    reached     the client connected: the reason is forgotten

A broker has two ports: that of calls, which it advertises, and that of streams, `stream.port.offset` above it. A
firewall may pass one of them. So each has its own reason, and an answer to a call does not end the reason of streams.

A program gives a client some addresses (bootstrap.servers). Brokers advertise the others. Behind NAT, or in a
container, an advertised address may be one that only its broker can reach. The error names this address, and its
setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from minilog.addresses import Address, address_text

_FAILED_TO_CONNECT = (
    re.compile(r"cannot be connected to: (?P<reason>.+)", re.DOTALL),  # the sentence of `not_connected`
    re.compile(r"failed to connect to all addresses; last error: (?:\w+: )?(?P<reason>.+)", re.DOTALL),
    re.compile(r"(?:errors resolving|DNS resolution failed for) (?P<reason>.+)", re.DOTALL),
    re.compile(r"no connection to (?P<reason>.+)", re.DOTALL),  # of the simulated network
)
_SYSTEM_REASON = re.compile(r"Failed to connect to remote host: (?P<reason>.+)", re.DOTALL)
_RESOLVER_REASON = re.compile(r"address lookup failed for [^ ]+: (?P<reason>[^\]]+)")
_MAX_REASON_CHARS = 200
_NO_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's name for an answer that is no TLS
NO_TLS = "the port speaks no TLS: name a listener with TLS, or set security.protocol=PLAINTEXT"


def connect_failure(details: str) -> str | None:
    """The system's reason in gRPC's details of a call without a connection. None for the details of any other call."""
    for pattern in _FAILED_TO_CONNECT:
        if (match := pattern.search(details)) is not None:
            reason = match["reason"]
            inner = _SYSTEM_REASON.search(reason) or _RESOLVER_REASON.search(reason)
            return NO_TLS if _NO_TLS in reason else (reason if inner is None else inner["reason"])[:_MAX_REASON_CHARS]
    return None


_REFUSED_CERTIFICATE = re.compile(
    r"alert[ _](?:bad|unsupported|unknown)[ _](?:certificate|ca)\b|alert[ _]certificate[ _]", re.IGNORECASE
)


def refuses_certificate(details: str) -> bool:
    """Whether these words of TLS say that the other side does not accept this side's certificate (an alert)."""
    return _REFUSED_CERTIFICATE.search(details) is not None


def reason_of(error: OSError) -> str:
    """The system's reason, in a form for people."""
    return (error.strerror or str(error) or type(error).__name__)[:_MAX_REASON_CHARS]


def not_connected(address: Address, reason: str, *, who: str = "the broker") -> str:
    """The sentence for an address from the program's settings to which the client cannot connect."""
    return f"{who} at {address_text(address)} cannot be connected to: {reason}"


@dataclass(slots=True)
class Reachability:
    """The reasons of one client. It has at most one entry for each broker and each server of bootstrap.servers."""

    given: frozenset[Address] = frozenset()
    """The addresses from the program's settings. If one is wrong, no broker has advertised it."""
    _reasons: dict[Address, str] = field(default_factory=dict)
    _streams: dict[Address, tuple[Address, str]] = field(default_factory=dict)  # by the address of calls

    def failed(self, address: Address, reason: str) -> None:
        self._reasons[address] = reason

    def reached(self, address: Address) -> None:
        self._reasons.pop(address, None)

    def stream_failed(self, address: Address, stream_address: Address, reason: str) -> None:
        self._streams[address] = stream_address, reason

    def stream_reached(self, address: Address) -> None:
        self._streams.pop(address, None)

    def keep(self, addresses: Iterable[Address]) -> None:
        """Forget the reasons of all other addresses, because no broker advertises them any more."""
        kept = self.given.union(addresses)
        for address in self._reasons.keys() - kept:
            del self._reasons[address]
        for address in self._streams.keys() - kept:
            del self._streams[address]

    def reason(self, address: Address) -> str | None:
        """The reason why the last attempt to connect failed. None if it succeeded, or if there was no attempt."""
        return self._reasons.get(address)

    def stream_reason(self, address: Address) -> tuple[Address, str] | None:
        """The address of streams of this broker, and the reason why the last attempt to open a stream failed. None as
        in `reason`."""
        return self._streams.get(address)

    def why(self, address: Address, *, who: str = "the broker", listener: str = "") -> str | None:
        """The sentence about an address to which the client cannot connect. None if it can.

        `who` names the broker. `listener` is the name of the listener by which the client asks brokers."""
        reason = self._reasons.get(address)
        setting = f"advertised.listeners of listener {listener!r}" if listener else "advertised.address"
        if reason is None:
            return self._why_no_stream(address, who, setting)
        if address in self.given:
            return not_connected(address, reason, who=who)
        return (
            f"{who} advertises {address_text(address)}, but this client cannot connect to it ({reason}): its {setting} "
            "must be an address that this client can reach"
        )

    def _why_no_stream(self, address: Address, who: str, setting: str) -> str | None:
        if (found := self._streams.get(address)) is None:
            return None
        stream_address, reason = found
        return (
            f"{who} advertises {address_text(address)}, but this client cannot open a stream at its port of streams "
            f"{address_text(stream_address)} ({reason}): a client must reach both ports, that of {setting} and the one "
            "that is stream.port.offset above it"
        )
