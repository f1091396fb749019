"""What a channel needs to know whom it talks to, and to say who talks: TLS by PEM files, and a session where passwords
or tokens are used (net/sessions.py).

Files are read anew for each channel that is opened: a certificate that was renewed counts from the next connection on,
without a restart.
"""

from __future__ import annotations

import pathlib
import ssl
from dataclasses import dataclass

import grpc

from minilog.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Kafka's stores, as PEM. `keystore`: a private key and the chain of its certificate, one file; empty: none.
    `truststore`: the authorities that are trusted; empty: those of gRPC's own bundle, and of the system for streams."""

    keystore: str = ""
    truststore: str = ""

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """TLS of calls with what the files hold now. Raises InvalidConfig."""
        roots = read_pem(self.truststore, "ssl.truststore.location") if self.truststore else None
        if not self.keystore:
            return grpc.ssl_channel_credentials(roots)
        key, chain = split_keystore(read_pem(self.keystore, "ssl.keystore.location"), self.keystore)
        return grpc.ssl_channel_credentials(roots, key, chain)

    def context(self) -> ssl.SSLContext:
        """TLS of streams with what the files hold now. Raises InvalidConfig."""
        roots = read_pem(self.truststore, "ssl.truststore.location").decode("ascii") if self.truststore else None
        context = ssl.create_default_context(cadata=roots)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.keystore:
            load_keystore(context, self.keystore)
        return context


@dataclass(frozen=True, slots=True)
class ChannelSecurity:
    """`server_name`: the name that the other side's certificate must have; None: the host that is connected to."""

    files: PemFiles
    server_name: str | None = None

    def options(self) -> tuple[tuple[str, str], ...]:
        """gRPC's options for it."""
        return () if self.server_name is None else (("grpc.ssl_target_name_override", self.server_name),)


def load_keystore(context: ssl.SSLContext, file: str, setting: str = "ssl.keystore.location") -> None:
    """What one side shows: its private key and its certificates. Raises InvalidConfig."""
    split_keystore(read_pem(file, setting), file)
    try:
        context.load_cert_chain(file)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{setting}={file} cannot be used: {error}") from None


def read_pem(file: str, setting: str) -> bytes:
    """A PEM file. Raises InvalidConfig."""
    try:
        content = pathlib.Path(file).read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{setting}={file} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise InvalidConfig(f"{setting}={file} is not PEM: stores of Java (JKS, PKCS12) are not read")
    return content


def split_keystore(content: bytes, file: str) -> tuple[bytes, bytes]:
    """The private key and the certificates of one PEM file. Raises InvalidConfig where one of them is missing."""
    key: list[bytes] = []
    chain: list[bytes] = []
    part: list[bytes] | None = None
    for line in content.splitlines(keepends=True):
        if line.startswith(b"-----BEGIN "):
            if b"ENCRYPTED" in line:
                raise InvalidConfig(
                    f"ssl.keystore.location={file}: its private key is encrypted. Decrypt it, and give it mode 0600"
                )
            part = key if b"PRIVATE KEY" in line else chain if b"CERTIFICATE" in line else None
        if part is not None:
            part.append(line)
        if line.startswith(b"-----END "):
            part = None
    if not key or not chain:
        missing = "private key" if not key else "certificate"
        raise InvalidConfig(f"ssl.keystore.location={file} has no {missing}: it holds both, in PEM")
    return b"".join(key), b"".join(chain)
