"""The addresses that this client cannot connect to, with the reasons. Pure.

    failed      the client could not connect: the reason is kept
    reached     the client connected: the reason is forgotten

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

    def failed(self, address: Address, reason: str) -> None:
        self._reasons[address] = reason

    def reached(self, address: Address) -> None:
        self._reasons.pop(address, None)

    def keep(self, addresses: Iterable[Address]) -> None:
        """Forget the reasons of all other addresses, because no broker advertises them any more."""
        kept = self.given.union(addresses)
        for address in self._reasons.keys() - kept:
            del self._reasons[address]

    def reason(self, address: Address) -> str | None:
        """The reason why the last attempt to connect failed. None if it succeeded, or if there was no attempt."""
        return self._reasons.get(address)

    def why(self, address: Address, *, who: str = "the broker", listener: str = "") -> str | None:
        """The sentence about an address to which the client cannot connect. None if it can.

        `who` names the broker. `listener` is the name of the listener by which the client asks brokers."""
        reason = self._reasons.get(address)
        if reason is None or address in self.given:
            return None if reason is None else not_connected(address, reason, who=who)
        setting = f"advertised.listeners of listener {listener!r}" if listener else "advertised.address"
        return (
            f"{who} advertises {address_text(address)}, but this client cannot connect to it ({reason}): its {setting} "
            "must be an address that this client can reach"
        )
