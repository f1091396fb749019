"""OAUTHBEARER on a broker (RFC 7628): one message with a token. The keys of its issuer are in a file, or fetched by
https.

Each exchange looks at the file, so that renewed keys count without a restart. A file that cannot be read lets no client
in. For the endpoint: jwks_endpoint.py.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Protocol

from minilog.errors import AuthenticationFailed, InvalidConfig
from minilog_broker.security.bearer import (
    BearerRefused,
    BearerSettings,
    BearerVerifier,
    InvalidBearerSettings,
    UnknownKey,
)
from minilog_broker.security.principal import Principal
from minilog_broker.server.config import BrokerConfig

_MESSAGE = re.compile(rb"n,(?:a=[^,\x01]*)?,\x01auth=Bearer ([^\x01]+)\x01(?:[a-zA-Z]+=[^\x01]*\x01)*\x01")


class Keys(Protocol):
    """The source of an issuer's keys."""

    def verifier(self) -> BearerVerifier:
        """The verifier with the keys that count now. Raises AuthenticationFailed."""

    async def look_again(self) -> None:
        """Wait, within bounds, for newer keys, since a token names an unknown one. Raises BrokerNotAvailable where
        there never was a key."""


class KeyFile:
    """Keys in a file. Raises InvalidConfig where the file is not valid."""

    def __init__(self, file: str, settings: BearerSettings) -> None:
        self._file = pathlib.Path(file)
        self._settings = settings
        self._stamp: tuple[int, int] | None = None
        self._verifier = BearerVerifier(settings, None)
        try:
            self.verifier()
        except AuthenticationFailed as error:
            raise InvalidConfig(str(error)) from None

    def verifier(self) -> BearerVerifier:
        try:
            status = self._file.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._verifier, self._stamp = BearerVerifier(self._settings, self._file.read_text()), stamp
        except (OSError, UnicodeDecodeError, InvalidBearerSettings) as error:
            self._stamp = None
            raise AuthenticationFailed(f"sasl.oauthbearer.jwks.file={self._file}: {error}") from None
        return self._verifier

    async def look_again(self) -> None:
        """Does nothing: the exchange has just looked at the file."""


class BearerExchange:
    """One exchange of OAUTHBEARER. Raises AuthenticationFailed where there are no keys."""

    token_id = None  # the token is an issuer's, not a delegation token

    def __init__(self, keys: Keys, wall_us: Callable[[], int]) -> None:
        self._keys = keys
        self._wall_us = wall_us
        self._verifier = keys.verifier()
        self.principal: Principal | None = None
        self.lifetime_ms: float | None = None
        self.tried = ""

    def named(self, content: bytes) -> str:
        match = _MESSAGE.fullmatch(content)
        name = "" if match is None else self._verifier.claimed(_token_of(match))
        return f"user:{name}" if name else ""

    async def respond(self, content: bytes) -> bytes:
        match = _MESSAGE.fullmatch(content)
        if match is None:
            raise AuthenticationFailed("the client sent a message that is not one of OAUTHBEARER")
        token, self.tried = _token_of(match), self.named(content)
        try:
            try:
                self._accept(token)
            except UnknownKey:
                await self._keys.look_again()
                self._verifier = self._keys.verifier()
                self._accept(token)
        except BearerRefused as error:
            raise AuthenticationFailed(str(error)) from None
        return b""

    def _accept(self, token: str) -> None:
        now_s = self._wall_us() / 1_000_000
        identity = self._verifier.verify(token, now_s)
        self.principal, self.lifetime_ms = identity.principal, max(1.0, (identity.expires_s - now_s) * 1000.0)


def _token_of(message: re.Match[bytes]) -> str:
    return message[1].decode("ascii", errors="replace")


def bearer_settings(config: BrokerConfig) -> BearerSettings:
    """The settings for the check of tokens. Raises InvalidConfig."""
    try:
        return BearerSettings(config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_expected_audience)
    except InvalidBearerSettings as error:
        raise InvalidConfig(f"sasl.oauthbearer.expected.issuer, .expected.audience: {error}") from None
