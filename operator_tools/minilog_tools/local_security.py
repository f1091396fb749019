"""The keys, certificates and passwords of a secured local cluster, for `minilog up --secure`.

    DIR/client.properties         the settings of a client: addresses of brokers, authority, the first user's password
    DIR/security/                 only the brokers read it
      brokers.pem, brokers.key    the authority that brokers trust for each other
      clients.pem, clients.key    the authority that clients trust
      broker-<id>.pem             a broker's key and certificate for the other brokers
      server.pem                  the key and certificate of all brokers for clients
      users.json                  the first user's verifier

They are made once, below the cluster's directory. The folder is made as a whole or not at all. A broker that is added
later gets its own certificate. To begin anew, remove the folder.
"""

from __future__ import annotations

import datetime
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism
from minilog.security.secret import Secret
from minilog_broker.failure import CommandFailed
from minilog_broker.security.certificates import (
    CURVE,
    Authority,
    CertificateOwner,
    InvalidCertificate,
    Signing,
    authority_certificate,
    broker_identity,
    certificate_pem,
    issue,
    key_pem,
    read_authority,
    server_identity,
)
from minilog_broker.server.access.scram_exchange import verifier_line

CLUSTER_NAME = "minilog"
USER_NAME = "admin"
OWNED_SETTINGS = frozenset(
    (
        "security.protocol",
        "listeners",
        "ssl.keystore.location",
        "cluster.name",
        "inter.broker.listen",
        "inter.broker.ssl.keystore.location",
        "inter.broker.ssl.truststore.location",
        "super.users",
        "sasl.scram.users.file",
    )
)
"""The settings that only `LocalSecurity.settings` gives."""
_HOSTS = ("127.0.0.1", "localhost", "::1")
_VALIDITY = datetime.timedelta(days=365)
_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700


@dataclass(frozen=True, slots=True)
class LocalSecurity:
    """The security of one cluster below `directory`. `open_security` makes it."""

    directory: pathlib.Path

    @property
    def client_properties(self) -> pathlib.Path:
        """The file that a client takes as --command-config, or as minilog.config.file."""
        return self.directory / "client.properties"

    @property
    def clients_authority(self) -> pathlib.Path:
        """The authority that clients believe."""
        return self._folder.absolute() / "clients.pem"

    @property
    def _folder(self) -> pathlib.Path:
        return self.directory / "security"

    def settings(self, broker_id: int, peer_address: str) -> dict[str, str]:
        """The settings of one broker."""
        folder = self._folder.absolute()
        return {
            "security.protocol": "SASL_SSL",
            "listeners": "",
            "ssl.keystore.location": str(folder / "server.pem"),
            "cluster.name": CLUSTER_NAME,
            "inter.broker.listen": peer_address,
            "inter.broker.ssl.keystore.location": str(folder / f"broker-{broker_id}.pem"),
            "inter.broker.ssl.truststore.location": str(folder / "brokers.pem"),
            "super.users": f"User:{USER_NAME}",
            "sasl.scram.users.file": str(folder / "users.json"),
        }

    def client_settings(self) -> dict[str, object]:
        """The settings of `client_properties`, without the addresses of brokers."""
        lines = self.client_properties.read_text().splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {name: value for name, _, value in pairs if name != "bootstrap.servers"}

    def add_brokers(self, broker_ids: Iterable[int]) -> None:
        """Make certificates for the brokers that have none yet. Raises CommandFailed."""
        for broker_id in broker_ids:
            file = self._folder / f"broker-{broker_id}.pem"
            if not file.exists() or not file.read_bytes():
                try:
                    key, certificate = ((self._folder / f"brokers.{ending}").read_bytes() for ending in ("key", "pem"))
                    authority = read_authority(certificate, key)
                    _replace(file, _keystore(broker_identity(CLUSTER_NAME, broker_id, _HOSTS), authority))
                except (OSError, InvalidCertificate) as error:
                    raise CommandFailed(
                        f"broker {broker_id} cannot get a certificate: {error} (to begin again, remove "
                        f"{self._folder} and {self.client_properties})"
                    ) from None


def open_security(directory: pathlib.Path, broker_ids: Sequence[int], bootstrap_servers: str) -> LocalSecurity:
    """The security below `directory`. It is made where there is none. Raises CommandFailed."""
    security = LocalSecurity(directory)
    folder, file = directory / "security", security.client_properties
    password = _recorded_password(file)
    if not folder.exists():
        unfinished = directory / "security.part"
        if unfinished.is_symlink():
            unfinished.unlink()
        shutil.rmtree(unfinished, ignore_errors=True)
        directory.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        unfinished.mkdir(mode=_OWNER_ONLY_FOLDER)
        _make_certificates(unfinished)
        unfinished.rename(folder)
        password = None
    _check_modes(folder, file)
    if password is None or not (folder / "users.json").exists():
        password = secrets.token_urlsafe(24)
        _replace(folder / "users.json", _verifier(password))
    _replace(file, _properties(folder, password, bootstrap_servers))  # the folder may have moved, and the ports
    security.add_brokers(broker_ids)
    return security


def _recorded_password(file: pathlib.Path) -> str | None:
    if not file.exists():
        return None
    words = [line.partition("=")[2] for line in file.read_text().splitlines() if line.startswith("sasl.password=")]
    return words[0] if words else None


def _check_modes(folder: pathlib.Path, properties: pathlib.Path) -> None:
    """Raises CommandFailed where other users of the machine may read keys or the password."""
    for path in (folder, *sorted(folder.iterdir()), properties):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            mode = "700" if path.is_dir() else "600"
            raise CommandFailed(f"other users may read {path}, which holds secrets: run chmod {mode} {path}")


def _make_certificates(folder: pathlib.Path) -> None:
    authorities = {}
    for name in ("brokers", "clients"):
        key = ec.generate_private_key(CURVE())
        authorities[name] = Authority(authority_certificate(key, _signing()), key)
        _write(folder / f"{name}.pem", certificate_pem(authorities[name].certificate))
        _write(folder / f"{name}.key", key_pem(key))
    _write(folder / "server.pem", _keystore(server_identity(_HOSTS), authorities["clients"]))


def _verifier(password: str) -> bytes:
    salt = secrets.token_bytes(SALT_BYTES)
    mechanism = ScramMechanism.SCRAM_SHA_512
    credential = ScramCredential.derive(mechanism, Secret(password), salt=salt, iterations=DEFAULT_ITERATIONS)
    return verifier_line(USER_NAME, credential).encode()


def _properties(folder: pathlib.Path, password: str, bootstrap_servers: str) -> bytes:
    lines = (
        "# made by minilog up --secure. The user below may do everything",
        f"bootstrap.servers={bootstrap_servers}",
        "security.protocol=SASL_SSL",
        f"ssl.truststore.location={folder.absolute() / 'clients.pem'}",
        "ssl.truststore.type=PEM",
        f"sasl.mechanism={ScramMechanism.SCRAM_SHA_512}",
        f"sasl.username={USER_NAME}",
        f"sasl.password={password}",
    )
    return ("\n".join(lines) + "\n").encode()


def _keystore(identity: CertificateOwner, authority: Authority) -> bytes:
    key = ec.generate_private_key(CURVE())
    return key_pem(key) + certificate_pem(issue(identity, key.public_key(), authority, _signing()))


def _signing() -> Signing:
    return Signing(x509.random_serial_number(), datetime.datetime.now(datetime.UTC), _VALIDITY)


def _write(file: pathlib.Path, content: bytes) -> None:
    """Write a new file that only its owner may read. An existing file or a link raises FileExistsError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _OWNER_ONLY_FILE)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)


def _replace(file: pathlib.Path, content: bytes) -> None:
    """Replace a file as a whole or not at all."""
    unfinished = file.with_name(file.name + ".part")
    unfinished.unlink(missing_ok=True)
    _write(unfinished, content)
    unfinished.rename(file)
