"""The broker's side of a SASL exchange, whichever mechanism it is of (scram_exchange.py, bearer_exchange.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minilog_broker.security.principal import Principal


class ServerMechanism(Protocol):
    """The broker's side of one exchange."""

    async def respond(self, content: bytes) -> bytes:
        """The answer to a client's message. Raises AuthenticationFailed, or BrokerNotAvailable where this broker
        cannot tell yet."""

    def named(self, content: bytes) -> str:
        """The user or token in a client's first message, in the form of `tried`; empty where there is none. The message
        still waits for its answer."""

    @property
    def principal(self) -> Principal | None:
        """Who it is, once that is known for certain."""

    @property
    def lifetime_ms(self) -> float | None:
        """For how long that is known; None: as the broker is configured."""

    @property
    def token_id(self) -> str | None:
        """Of the delegation token that proves it, where one does."""

    @property
    def tried(self) -> str:
        """The user or token that the client claims: `user:alice`, `delegation-token:ID`; empty before it claims one."""


Begin = Callable[[str], ServerMechanism]
"""An exchange of a mechanism by its name. Raises AuthenticationFailed where it is none that is taken here."""
