"""The broker's side of a SASL exchange, whichever mechanism it is of (scram_exchange.py, bearer_exchange.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minilog_broker.security.principal import Principal


class ServerMechanism(Protocol):
    """The broker's side of one exchange."""

    async def respond(self, content: bytes) -> bytes:
        """The answer to a client's message. Raises AuthenticationFailed, or BrokerNotAvailable where this broker cannot
        decide yet."""

    def named(self, content: bytes) -> str:
        """The user or token in a client's first message, in the form of `tried`; empty where there is none. The message
        still waits for its answer."""

    @property
    def principal(self) -> Principal | None:
        """The principal, once it is proven."""

    @property
    def lifetime_ms(self) -> float | None:
        """The lifetime of the proof, None for the broker's configuration."""

    @property
    def token_id(self) -> str | None:
        """The delegation token of the proof, where there is one."""

    @property
    def tried(self) -> str:
        """The user or token that the client claims: `user:alice`, `delegation-token:ID`; empty before it claims one."""


Begin = Callable[[str], ServerMechanism]
"""Begins an exchange of a mechanism by its name. Raises AuthenticationFailed for a mechanism that the broker does not
take."""
