"""OAUTHBEARER on a broker (RFC 7628): one message with a token, whose issuer's keys are in a file or fetched by https.

The file is looked at for each exchange: keys that were renewed count without a restart. One that cannot be read lets
nobody in. Of the endpoint: jwks_endpoint.py.
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
    """Where an issuer's keys come from."""

    def verifier(self) -> BearerVerifier:
        """By the keys that count now. Raises AuthenticationFailed."""

    async def look_again(self) -> None:
        """A token names a key that is not here: wait, within bounds, for keys that may be newer. Raises
        BrokerNotAvailable where there never was a key."""


class KeyFile:
    """Keys in a file. Raises InvalidConfig where it is not right."""

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
        """The file was just looked at."""


class BearerExchange:
    """As AuthenticationService drives it. Raises AuthenticationFailed where there are no keys to be had."""

    token_id = None  # an issuer's token, and none of ours

    def __init__(self, keys: Keys, wall_us: Callable[[], int]) -> None:
        self._keys = keys
        self._wall_us = wall_us
        self._verifier = keys.verifier()
        self.principal: Principal | None = None
        self.lifetime_ms: float | None = None
        self.tried = ""

    def named(self, content: bytes) -> str:
        found = _MESSAGE.fullmatch(content)
        name = "" if found is None else self._verifier.claimed(_token_of(found))
        return f"user:{name}" if name else ""

    async def respond(self, content: bytes) -> bytes:
        found = _MESSAGE.fullmatch(content)
        if found is None:
            raise AuthenticationFailed("what came is no message of OAUTHBEARER")
        token, self.tried = _token_of(found), self.named(content)
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
    """Which tokens count. Raises InvalidConfig."""
    try:
        return BearerSettings(config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_expected_audience)
    except InvalidBearerSettings as error:
        raise InvalidConfig(f"sasl.oauthbearer.expected.issuer, .expected.audience: {error}") from None
