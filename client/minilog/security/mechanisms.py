"""SASL mechanisms as their client speaks them: messages out and in, one after the other."""

from __future__ import annotations

import asyncio
from typing import Protocol

from minilog.errors import AuthenticationFailed
from minilog.security.scram import LoginKind, SaltPassword, ScramClient, ScramMechanism
from minilog.security.scram_messages import ScramError
from minilog.security.secret import Secret


class Mechanism(Protocol):
    """One exchange."""

    def first(self) -> bytes:
        """The message that begins it. Raises AuthenticationFailed."""

    async def respond(self, content: bytes) -> bytes | None:
        """The answer to what the broker said; None where nothing is left to say. Raises AuthenticationFailed where the
        broker has not shown that it knows the password's verifier."""


class Scram:
    """SCRAM-SHA-256 or -512. The slow step is done on another thread."""

    def __init__(
        self,
        name: str,
        username: str,
        password: Secret,
        nonce: str,
        salt_password: SaltPassword,
        kind: LoginKind = LoginKind.PASSWORD,
    ) -> None:
        try:
            self._client = ScramClient(ScramMechanism(name), username, password, nonce, salt_password, kind)
        except ScramError as error:
            raise AuthenticationFailed(str(error)) from None
        self._answered = False

    def first(self) -> bytes:
        return self._client.first_message()

    async def respond(self, content: bytes) -> bytes | None:
        try:
            if self._answered:
                self._client.check(content)
                return None
            self._answered = True
            return await asyncio.to_thread(self._client.answer, content)
        except ScramError as error:
            raise AuthenticationFailed(str(error)) from None


class OAuthBearer:
    """RFC 7628, as Kafka speaks it: the token in one message."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token.reveal()}\x01\x01".encode()

    async def respond(self, content: bytes) -> bytes | None:
        return None
