"""TLS of a listener: its certificate, and the authorities that it trusts.

Each new connection looks at the files, at most once a second, so that a renewed certificate counts without a restart.
The former one stays in use where a file cannot be read.
"""

from __future__ import annotations

import pathlib
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import grpc
import structlog

from minilog.errors import InvalidConfig
from minilog.security.channel_security import load_keystore, read_pem, split_keystore

logger = structlog.get_logger()
_LOOK_EVERY_S = 1.0
_Made = TypeVar("_Made")


class ServerFiles:
    """The files of a listener. `truststore` empty: clients show no certificate. `settings`: the settings of the two
    files."""

    def __init__(
        self,
        keystore: str,
        truststore: str,
        settings: tuple[str, str] = ("ssl.keystore.location", "ssl.truststore.location"),
    ) -> None:
        self._keystore = keystore
        self._truststore = truststore
        self._settings = settings
        self._files = [file for file in (keystore, truststore) if file]
        self._contexts: _Renewals[ssl.SSLContext] | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """The credentials of a port of calls. Raises InvalidConfig where a file cannot be read now."""
        renewals = _Renewals(self._files, self._configuration)
        return grpc.dynamic_ssl_server_credentials(
            renewals.latest,
            renewals.renewed,  # type: ignore[arg-type]  # None is allowed: the former stays
            require_client_authentication=bool(self._truststore),
        )

    def context(self) -> ssl.SSLContext:
        """The context for the next connection to a port of streams. Raises InvalidConfig where a file cannot be read at
        first."""
        if self._contexts is None:
            self._contexts = _Renewals(self._files, self._context)
        self._contexts.renewed()
        return self._contexts.latest

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        of_keystore, of_truststore = self._settings
        key, chain = split_keystore(read_pem(self._keystore, of_keystore), self._keystore)
        roots = read_pem(self._truststore, of_truststore) if self._truststore else None
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)

    def _context(self) -> ssl.SSLContext:
        of_keystore, of_truststore = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_keystore(context, self._keystore, of_keystore)
        if self._truststore:
            context.load_verify_locations(cadata=read_pem(self._truststore, of_truststore).decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Renewals(Generic[_Made]):
    """The latest product of `make` from the files. Raises InvalidConfig at first, and never again."""

    def __init__(self, files: Sequence[str], make: Callable[[], _Made]) -> None:
        self._files = files
        self._make = make
        self._stamps = self._stamp()
        self._looked_s = time.monotonic()
        self._logged = ""
        self.latest = make()

    def renewed(self) -> _Made | None:
        """The new product, None where the files have not changed. Called for each connection."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return None
        self._looked_s = time.monotonic()
        stamps = self._stamp()
        if stamps == self._stamps:
            return None
        try:
            made = self._make()
        except InvalidConfig as error:
            if str(error) != self._logged:
                self._logged = str(error)
                logger.warning(
                    "the broker keeps its former certificates: it cannot read the new ones", error=str(error)
                )
            return None
        self._stamps, self._logged, self.latest = stamps, "", made
        logger.info("the broker took renewed certificates", keystore=self._files[0])
        return made

    def _stamp(self) -> list[tuple[int, int]]:
        stamps = []
        for file in self._files:
            try:
                status = pathlib.Path(file).stat()
                stamps.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                stamps.append((0, 0))
        return stamps
