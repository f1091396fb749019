"""What secures both systems alike: one authority, one certificate that brokers show, one user with a password.

Made by minilog, as `minilog up --secure` makes them.
"""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass

from benchmarks.clients.secured import SETTINGS_VARIABLE
from minilog_tools.local_security import LocalSecurity, open_security


@dataclass(frozen=True)
class Keys:
    """`security`: minilog's own way to see them."""

    security: LocalSecurity

    @property
    def authority(self) -> pathlib.Path:
        return (self.security.directory / "security" / "clients.pem").absolute()

    @property
    def server(self) -> pathlib.Path:
        return (self.security.directory / "security" / "server.pem").absolute()

    @property
    def user(self) -> str:
        return str(self.security.client_settings()["sasl.username"])

    @property
    def password(self) -> str:
        return str(self.security.client_settings()["sasl.password"])

    def librdkafka_settings(self) -> dict[str, str]:
        """Of confluent-kafka."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def make_keys(directory: pathlib.Path) -> Keys:
    """And tell the clients that are started from now on."""
    keys = Keys(open_security(directory, [1, 2, 3], "see the argument"))
    settings = {"minilog": keys.security.client_settings(), "kafka": keys.librdkafka_settings()}
    os.environ[SETTINGS_VARIABLE] = json.dumps(settings)
    return keys
