"""Certificates of brokers, of servers for clients, and of clients, by an authority for tests and local clusters.

Use two authorities, one for brokers among themselves and one for the clients' listener, since they give other rights.

    certificate   common name            names that are checked                            used as
    authority     minilog authority XX   none                                              signs, but no authority
    broker        broker:<cluster>:<id>  the hosts, and broker-<id>.<cluster>.minilog      server and client
    server        the first host         the hosts                                         server
    client        alice                  none                                              client

The addresses of brokers change. A peer checks `broker_name(...)`, which does not. The signatures are ECDSA on P-256
with SHA-256. This module has no I/O, clock or chance: keys, serial numbers and times come in as arguments.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CURVE = ec.SECP256R1
AUTHORITY_NAME = "minilog authority"
MAX_VALIDITY_DAYS = 3_650
MAX_HOSTS = 100
# Clocks differ: a new certificate is valid also for a machine that is some minutes behind.
BACKDATED = timedelta(minutes=5)
MAX_COMMON_NAME_CHARACTERS = 64  # RFC 5280, ub-common-name
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII | re.IGNORECASE)
_MAX_DNS_NAME_CHARACTERS = 253
_BROKER_PREFIX = "broker:"


class InvalidCertificate(ValueError):
    """The input for a certificate is not valid."""


@dataclass(frozen=True, slots=True)
class CertificateOwner:
    """The owner of a certificate: its common name, its hosts, and the uses of the certificate."""

    common_name: str
    hosts: tuple[str, ...]
    is_server: bool
    is_client: bool


@dataclass(frozen=True, slots=True)
class Authority:
    """The signer: a certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Signing:
    """The input from outside: a random serial number (`x509.random_serial_number()`), the time, and the validity."""

    serial_number: int
    now: datetime
    validity: timedelta


def broker_name(cluster: str, broker_id: int) -> str:
    """The DNS name in a broker's certificate, the same for each address. Peers check it as the TLS server name.

    Raises InvalidCertificate where the cluster's name cannot be part of a DNS name."""
    if _DNS_LABEL.fullmatch(cluster) is None:
        raise InvalidCertificate(
            f"the cluster name {cluster!r} cannot be part of a DNS name: take letters, digits and hyphens, at most 63"
        )
    return f"broker-{broker_id}.{cluster.lower()}.minilog"


def broker_identity(cluster: str, broker_id: int, hosts: Sequence[str]) -> CertificateOwner:
    """The identity of a broker for other brokers: as server and as client."""
    if broker_id < 0:
        raise InvalidCertificate(f"{broker_id} is not a broker id: give 0 or more")
    name = broker_name(cluster, broker_id)
    return _checked(
        CertificateOwner(f"{_BROKER_PREFIX}{cluster}:{broker_id}", (*hosts, name), is_server=True, is_client=True)
    )


def server_identity(hosts: Sequence[str]) -> CertificateOwner:
    """The identity of a broker for clients."""
    if not hosts:
        raise InvalidCertificate("a server's certificate needs the names or addresses that clients connect to")
    return _checked(
        CertificateOwner(hosts[0][:MAX_COMMON_NAME_CHARACTERS], tuple(hosts), is_server=True, is_client=False)
    )


def client_identity(name: str) -> CertificateOwner:
    """The identity of a client that logs in with its certificate."""
    if name.startswith(_BROKER_PREFIX):
        raise InvalidCertificate(
            f"a client cannot have the name {name!r}: only brokers have names with {_BROKER_PREFIX}"
        )
    return _checked(CertificateOwner(name, (), is_server=False, is_client=True))


def authority_certificate(key: ec.EllipticCurvePrivateKey, signing: Signing) -> x509.Certificate:
    """A certificate that signs others, and no authorities."""
    # Each authority has a name of its own: a peer that trusts two could else check a signature with the wrong key.
    name = _common_name(f"{AUTHORITY_NAME} {signing.serial_number & 0xFFFFFFFF:08x}")
    builder = _begun(name, name, key.public_key(), signing)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256())


def issue(
    identity: CertificateOwner, public_key: ec.EllipticCurvePublicKey, authority: Authority, signing: Signing
) -> x509.Certificate:
    """The certificate of `identity`, valid at most as long as its authority's. Raises InvalidCertificate where the
    authority has expired, or may not sign."""
    _check_authority(authority, signing)
    left = authority.certificate.not_valid_after_utc - signing.now
    shorter = Signing(signing.serial_number, signing.now, min(signing.validity, left))
    builder = _begun(_common_name(identity.common_name), authority.certificate.subject, public_key, shorter)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    used_as = [ExtendedKeyUsageOID.SERVER_AUTH] * identity.is_server
    used_as += [ExtendedKeyUsageOID.CLIENT_AUTH] * identity.is_client
    builder = builder.add_extension(x509.ExtendedKeyUsage(used_as), critical=False)
    if identity.hosts:
        names = x509.SubjectAlternativeName([_host_name(host) for host in dict.fromkeys(identity.hosts)])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return builder.add_extension(above, critical=False).sign(authority.key, hashes.SHA256())


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The PEM text of a certificate."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The PEM text of a key, in PKCS 8. It is not encrypted, for nobody enters a passphrase when a broker starts at
    night. The file's mode guards it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_authority(certificate: bytes, key: bytes) -> Authority:
    """The authority of two PEM texts. Raises InvalidCertificate where one is not valid, or they do not belong
    together."""
    try:
        read_certificate = x509.load_pem_x509_certificate(certificate)
        read_key = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidCertificate(f"the authority's certificate or key cannot be read: {error}") from None
    if not isinstance(read_key, ec.EllipticCurvePrivateKey) or read_key.public_key() != read_certificate.public_key():
        raise InvalidCertificate("the authority's key does not belong to its certificate")
    return Authority(read_certificate, read_key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, signing: Signing
) -> x509.CertificateBuilder:
    if not timedelta(0) < signing.validity <= timedelta(days=MAX_VALIDITY_DAYS):
        raise InvalidCertificate(f"a certificate is valid for more than 0 and at most {MAX_VALIDITY_DAYS} days")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(signing.serial_number)
        .not_valid_before(signing.now - BACKDATED)
        .not_valid_after(signing.now + signing.validity)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _check_authority(authority: Authority, signing: Signing) -> None:
    certificate = authority.certificate
    try:
        signs = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        signs = False
    if not signs:
        raise InvalidCertificate("the certificate of the authority may not sign others: give one of an authority")
    if certificate.not_valid_after_utc <= signing.now:
        raise InvalidCertificate(
            f"the authority expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: make a new one"
        )


def _checked(identity: CertificateOwner) -> CertificateOwner:
    name = identity.common_name
    if not 1 <= len(name) <= MAX_COMMON_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise InvalidCertificate(
            f"{name[:100]!r} cannot be a certificate's name: a name has 1 to {MAX_COMMON_NAME_CHARACTERS} printable "
            "characters, and no spaces at its ends"
        )
    if len(identity.hosts) > MAX_HOSTS:
        raise InvalidCertificate(f"{len(identity.hosts)} hosts are too many for one certificate: at most {MAX_HOSTS}")
    for host in identity.hosts:
        _host_name(host)
    return identity


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        labels = host.split(".")
    if len(host) > _MAX_DNS_NAME_CHARACTERS or not all(_DNS_LABEL.fullmatch(label) for label in labels):
        raise InvalidCertificate(
            f"{host[:100]!r} is not a host: give an address or a DNS name, without port or wildcard"
        )
    return x509.DNSName(host.lower())
