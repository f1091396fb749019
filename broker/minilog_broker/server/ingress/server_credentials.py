"""TLS of a listener: what it shows, whom it believes. The files are looked at when somebody connects, at most once a
second: a certificate that was renewed counts without a restart. One that cannot be read leaves the former in force."""

from __future__ import annotations

import pathlib
import time

import grpc
import structlog

from minilog.errors import InvalidConfig
from minilog.security.channel_security import read_pem, split_keystore

logger = structlog.get_logger()
_LOOK_EVERY_S = 1.0


class ServerFiles:
    """`truststore` empty: clients show no certificate. `settings`: which the two files were told by."""

    def __init__(
        self,
        keystore: str,
        truststore: str,
        settings: tuple[str, str] = ("ssl.keystore.location", "ssl.truststore.location"),
    ) -> None:
        self._keystore = keystore
        self._truststore = truststore
        self._settings = settings
        self._stamps = self._stamp()
        self._looked_s = time.monotonic()
        self._told = ""

    def credentials(self) -> grpc.ServerCredentials:
        """For a listener. Raises InvalidConfig where a file cannot be read now."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._renewed,  # type: ignore[arg-type]  # None is allowed: the former stays
            require_client_authentication=bool(self._truststore),
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        of_keystore, of_truststore = self._settings
        key, chain = split_keystore(read_pem(self._keystore, of_keystore), self._keystore)
        roots = read_pem(self._truststore, of_truststore) if self._truststore else None
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)

    def _stamp(self) -> list[tuple[int, int]]:
        found = []
        for file in filter(None, (self._keystore, self._truststore)):
            try:
                status = pathlib.Path(file).stat()
                found.append((status.st_mtime_ns, status.st_ino))
            except OSError:
                found.append((0, 0))
        return found

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC for each connection; None: as before."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return None
        self._looked_s = time.monotonic()
        stamps = self._stamp()
        if stamps == self._stamps:
            return None
        try:
            configuration = self._configuration()
        except InvalidConfig as error:
            if str(error) != self._told:
                self._told = str(error)
                logger.warning("certificates stay as they were", error=str(error))
            return None
        self._stamps, self._told = stamps, ""
        logger.info("certificates were renewed", keystore=self._keystore)
        return configuration
