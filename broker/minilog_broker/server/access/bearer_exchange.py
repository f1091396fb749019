"""OAUTHBEARER on a broker (RFC 7628): one message with a token, whose issuer's keys are in a file.

The file is looked at for each exchange: keys that were renewed count without a restart. One that cannot be read lets
nobody in.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

from minilog.errors import AuthenticationFailed, InvalidConfig
from minilog_broker.security.bearer import BearerRefused, BearerSettings, BearerVerifier, InvalidBearerSettings
from minilog_broker.security.principal import Principal
from minilog_broker.server.config import BrokerConfig

_MESSAGE = re.compile(rb"n,(?:a=[^,\x01]*)?,\x01auth=Bearer ([^\x01]+)\x01(?:[a-zA-Z]+=[^\x01]*\x01)*\x01")


class BearerTokens:
    """Whose tokens are believed. Raises InvalidConfig where the settings or the file are not right."""

    def __init__(self, config: BrokerConfig, wall_us: Callable[[], int]) -> None:
        self._file = pathlib.Path(config.sasl_oauthbearer_jwks_file)
        self._wall_us = wall_us
        try:
            self._settings = BearerSettings(
                config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_expected_audience
            )
        except InvalidBearerSettings as error:
            raise InvalidConfig(f"sasl.oauthbearer.expected.issuer, .expected.audience: {error}") from None
        self._stamp: tuple[int, int] | None = None
        self._verifier = BearerVerifier(self._settings, None)
        try:
            self._read()
        except AuthenticationFailed as error:
            raise InvalidConfig(str(error)) from None

    def begin(self) -> _Exchange:
        """An exchange. Raises AuthenticationFailed."""
        self._read()
        return _Exchange(self._verifier, self._wall_us)

    def _read(self) -> None:
        try:
            status = self._file.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._verifier, self._stamp = BearerVerifier(self._settings, self._file.read_text()), stamp
        except (OSError, UnicodeDecodeError, InvalidBearerSettings) as error:
            self._stamp = None
            raise AuthenticationFailed(f"sasl.oauthbearer.jwks.file={self._file}: {error}") from None


class _Exchange:
    """As AuthenticationService drives it."""

    token_id = None  # an issuer's token, and none of ours

    def __init__(self, verifier: BearerVerifier, wall_us: Callable[[], int]) -> None:
        self._verifier = verifier
        self._wall_us = wall_us
        self.principal: Principal | None = None
        self.lifetime_ms: float | None = None

    def respond(self, content: bytes) -> bytes:
        found = _MESSAGE.fullmatch(content)
        if found is None:
            raise AuthenticationFailed("what came is no message of OAUTHBEARER")
        now_s = self._wall_us() / 1_000_000
        try:
            identity = self._verifier.verify(found[1].decode("ascii", errors="replace"), now_s)
        except BearerRefused as error:
            raise AuthenticationFailed(str(error)) from None
        self.principal, self.lifetime_ms = identity.principal, max(1.0, (identity.expires_s - now_s) * 1000.0)
        return b""
