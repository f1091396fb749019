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
        """Whom a client's first message names, as `tried` has it; empty where it names nobody. It is not answered by
        that."""

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
        """Whom the client says that it is, as `user:alice` or `delegation-token:ID`; empty where it has not said."""


Begin = Callable[[str], ServerMechanism]
"""An exchange of a mechanism by its name. Raises AuthenticationFailed where it is none that is taken here."""
