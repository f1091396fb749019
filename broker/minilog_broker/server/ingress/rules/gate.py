"""The gate in front of all services of a listener: it finds the caller, and decides whether it may make the call.

    OpenGate     a listener in the clear: every caller may do everything (on loopback, or with --insecure)
    PeerGate     brokers' own listener: mutual TLS, the certificate names the broker (`broker:<cluster>:<id>`)
    ClientGate   clients' listener with TLS: a session (SASL_SSL) or the client's certificate (SSL); client_gate.py

`admit` decides at the begin of a call, before anything of it is read. `check` decides for each message, before a
service gets it (access/table.py). Long streams are checked again when rules change, and end with their sessions.
Refusals go to the audit log.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import grpc

from minilog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    CorruptMessage,
    InvalidArgument,
    MinilogError,
    ResourceExhausted,
    ResourceNotFound,
    RetriableError,
)
from minilog_broker.controller.image import MetadataImage
from minilog_broker.printable import shortened
from minilog_broker.security.audit import Audit, refused_call
from minilog_broker.security.principal import ANONYMOUS, Principal
from minilog_broker.server.access.caller import NO_RULES, Caller, Everybody
from minilog_broker.server.access.table import ALSO_OF_BROKERS, ROWS, OfPeers, OpenToAll
from minilog_broker.server.ingress.rules.arrival import Arrival

MAX_DETAILS_CHARACTERS = 1_000


class Gate(Protocol):
    """The gate of one listener."""

    def admit(self, path: str, arrival: Arrival) -> Caller:
        """The caller. Raises AuthenticationFailed, AuthorizationFailed."""

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        """Check a request. `is_first`: the first of a stream. Raises AuthorizationFailed."""

    def redact(self, path: str, caller: Caller, answer: Any) -> None:
        """Remove the parts of an answer that the caller may not see."""

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        """A context for an open stream of this caller, on the stream's task. Raises AuthenticationFailed or
        AuthorizationFailed in the place of the cancellation by which the gate has ended the stream."""


class OpenGate:
    """The gate where every caller may do everything. `listener`: its name."""

    def __init__(self, listener: str = "") -> None:
        self._everybody = Everybody(listener)

    def admit(self, path: str, arrival: Arrival) -> Caller:
        return self._everybody

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        """Refuses nothing."""

    def redact(self, path: str, caller: Caller, answer: Any) -> None:
        """Removes nothing."""

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class PeerGate:
    """The gate for brokers of this cluster, each in its own name."""

    def __init__(self, cluster_name: str, image: MetadataImage, audit: Audit) -> None:
        self._cluster_name = cluster_name
        self._image = image
        self._audit = audit

    def admit(self, path: str, arrival: Arrival) -> Caller:
        name, host = arrival.common_name, arrival.host
        principal = Principal.of_broker_name(name) if name is not None else None
        refused: MinilogError
        if principal is None or principal.cluster != self._cluster_name:
            principal = ANONYMOUS
            refused = AuthenticationFailed(
                f"this listener is for brokers of {self._cluster_name!r}, and the certificate is of "
                f"{shortened(name or 'nobody')!r}"
            )
        elif not isinstance(ROWS.get(path), OfPeers | OpenToAll) and path not in ALSO_OF_BROKERS:
            refused = AuthorizationFailed(f"{path} is not for brokers: clients have a listener of their own")
        else:
            return Caller(principal, host, path, NO_RULES)
        self._audit(refused_call(path, host, str(principal), str(refused)))
        raise refused

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        row = ROWS[path]
        if not isinstance(row, OfPeers):
            return
        sender = row.sender(request, self._image)
        if sender is None or sender == caller.principal.broker_id or (row.first_only and not is_first and sender == 0):
            return
        error = AuthorizationFailed(f"{caller.principal} used the id of broker {sender} in a call ({path})")
        self._audit(refused_call(path, caller.host, str(caller.principal), str(error)))
        raise error

    def redact(self, path: str, caller: Caller, answer: Any) -> None:
        """Removes nothing."""

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def details_of(error: MinilogError) -> str:
    """The words of a refusal for gRPC, whose trailers have 8 KiB in all."""
    words = str(error)
    return words if len(words) <= MAX_DETAILS_CHARACTERS else words[:MAX_DETAILS_CHARACTERS] + "..."


def status_of(error: MinilogError) -> grpc.StatusCode:
    """The status of a refusal for gRPC."""
    match error:
        case CorruptMessage() | InvalidArgument():
            return grpc.StatusCode.INVALID_ARGUMENT
        case AuthenticationFailed():
            return grpc.StatusCode.UNAUTHENTICATED
        case ResourceExhausted():
            return grpc.StatusCode.RESOURCE_EXHAUSTED
        case ResourceNotFound():
            return grpc.StatusCode.NOT_FOUND
        case AuthorizationFailed():
            return grpc.StatusCode.PERMISSION_DENIED
        case RetriableError():
            return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.UNKNOWN
