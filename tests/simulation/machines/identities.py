"""Who is who in a simulated cluster that is closed to strangers: certificates of brokers, users and their passwords.

Keys, certificates and verifiers are real files, made as `minilog up --secure` makes them. TLS itself is not simulated:
a connection says who is at its ends, and both sides ask as they ask gRPC (calls.py).
"""

from __future__ import annotations

import pathlib
import secrets
import tempfile

from minilog.security.scram import SALT_BYTES, ScramCredential, ScramMechanism
from minilog.security.secret import Secret
from minilog_broker.server.access.scram_exchange import verifier_line
from minilog_broker.server.clients.peer_channels import server_name
from minilog_tools.local_security import CLUSTER_NAME, USER_NAME, open_security

ADMIN = USER_NAME
APP, GUEST, FORGER, GLUTTON = "app", "guest", "forger", "glutton"
PASSWORD = "simulated"
ITERATIONS = 4_096  # the least: each login of each client costs them
MECHANISM = ScramMechanism.SCRAM_SHA_256


class Identities:
    """Of one run; the files are gone with `close`."""

    def __init__(self, brokers: int, bootstrap_servers: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="minilog-simulation-")
        directory = pathlib.Path(self._folder.name) / "cluster"
        self._local = open_security(directory, range(1, brokers + 1), bootstrap_servers)
        salt = secrets.token_bytes(SALT_BYTES)
        credential = ScramCredential.derive(MECHANISM, Secret(PASSWORD), salt=salt, iterations=ITERATIONS)
        (directory / "security" / "users.json").write_text(verifier_line(ADMIN, credential))

    def of_broker(self, number: int, peer_address: str) -> dict[str, str]:
        """Its settings."""
        return self._local.settings(number, peer_address)

    def of_user(self, name: str) -> dict[str, object]:
        """The settings of a client."""
        user = {"sasl.mechanism": str(MECHANISM), "sasl.username": name, "sasl.password": PASSWORD}
        return {**self._local.client_settings(), **user}

    def close(self) -> None:
        self._folder.cleanup()


def certificate_of(number: int) -> str:
    """The common name of a broker's certificate."""
    return f"broker:{CLUSTER_NAME}:{number}"


def server_name_of(number: int) -> str:
    """The DNS name in it."""
    return server_name(CLUSTER_NAME, number)
