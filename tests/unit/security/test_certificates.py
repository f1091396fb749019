"""What is in the certificates that `minilog cert create` makes, and what cannot be asked for."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minilog_broker.security.certificates import (
    Authority,
    CertificateOwner,
    InvalidCertificate,
    Signing,
    authority_certificate,
    broker_identity,
    broker_name,
    certificate_pem,
    client_identity,
    issue,
    key_pem,
    read_authority,
    server_identity,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
YEAR = timedelta(days=365)
KEY = ec.derive_private_key(12_345, ec.SECP256R1())
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def signing(serial_number: int = 7, *, now: datetime = NOW, validity: timedelta = YEAR) -> Signing:
    return Signing(serial_number, now, validity)


def authority(number: int = 1, *, now: datetime = NOW, validity: timedelta = YEAR) -> Authority:
    key = ec.derive_private_key(99 + number, ec.SECP256R1())
    return Authority(authority_certificate(key, signing(number, now=now, validity=validity)), key)


def issued(identity: CertificateOwner, above: Authority | None = None) -> x509.Certificate:
    return issue(identity, KEY.public_key(), above or authority(), signing())


def common_name(certificate: x509.Certificate) -> object:
    return certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


def uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_broker_has_its_hosts_and_the_name_that_peers_check() -> None:
    made = issued(broker_identity("prod", 3, ["db.example", "127.0.0.1", "::1"]))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert common_name(made) == "broker:prod:3"
    assert names.get_values_for_type(x509.DNSName) == ["db.example", "broker-3.prod.minilog"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(each) for each in ("127.0.0.1", "::1")]
    assert uses(made) == [SERVER, CLIENT]


def test_a_client_serves_nothing_and_has_no_host() -> None:
    made = issued(client_identity("alice"))
    assert common_name(made) == "alice"
    assert uses(made) == [CLIENT]
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_a_server_is_no_client() -> None:
    made = issued(server_identity(["db.example", "10.0.0.1"]))
    assert common_name(made) == "db.example"
    assert uses(made) == [SERVER]


def test_issued_certificates_sign_nothing_and_an_authority_signs_no_authority() -> None:
    above = authority()
    made = issued(client_identity("alice"), above)
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not made.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    constraints = above.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (True, 0, True)
    with pytest.raises(InvalidCertificate, match="may not sign"):
        issue(client_identity("bob"), KEY.public_key(), Authority(made, KEY), signing())


def test_a_certificate_is_signed_with_sha_256_by_the_authority_alone() -> None:
    made = issued(client_identity("alice"))
    made.verify_directly_issued_by(authority().certificate)
    assert isinstance(made.signature_hash_algorithm, hashes.SHA256)
    with pytest.raises(ValueError, match="Issuer"):
        made.verify_directly_issued_by(authority(2).certificate)


def test_times_and_serial_numbers_come_from_the_caller() -> None:
    made = issue(client_identity("alice"), KEY.public_key(), authority(), signing(41, validity=timedelta(days=30)))
    assert made.serial_number == 41
    assert made.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert made.not_valid_after_utc == NOW + timedelta(days=30)


def test_a_certificate_is_not_valid_for_longer_than_its_authority() -> None:
    short = authority(validity=timedelta(days=10))
    assert issued(client_identity("alice"), short).not_valid_after_utc == NOW + timedelta(days=10)
    expired = authority(now=NOW - YEAR, validity=timedelta(days=10))
    with pytest.raises(InvalidCertificate, match="expired at 2029-01-12"):
        issued(client_identity("alice"), expired)


@pytest.mark.parametrize("validity", [timedelta(0), -YEAR, timedelta(days=3_651)])
def test_a_certificate_is_valid_for_some_time_and_not_for_ever(validity: timedelta) -> None:
    with pytest.raises(InvalidCertificate, match="3650 days"):
        authority(validity=validity)


def test_the_name_that_peers_check_belongs_to_one_broker_of_one_cluster() -> None:
    assert broker_name("Prod", 1) == "broker-1.prod.minilog"
    assert broker_name("prod", 11) != broker_name("prod-1", 1)


@pytest.mark.parametrize("cluster", ["", "a.b", "a b", "-a", "a-", "*", "x" * 64, "caf\u00e9", "a:b", "a\n"])
def test_a_cluster_that_is_no_part_of_a_dns_name_is_refused(cluster: str) -> None:
    with pytest.raises(InvalidCertificate, match="DNS name"):
        broker_identity(cluster, 1, ["h"])


@pytest.mark.parametrize(
    "host", ["", "*", "*.example", "h:9092", "a..b", "x" * 64, "a b", "h\n", ".".join(["abc"] * 64)]
)
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(InvalidCertificate, match="not a host"):
        server_identity(["good.example", host])


@pytest.mark.parametrize("name", ["", "x" * 65, " alice", "a\0b", "a\nb"])
def test_a_client_name_that_would_not_be_seen_as_it_is_is_refused(name: str) -> None:
    with pytest.raises(InvalidCertificate, match="cannot be a certificate's name"):
        client_identity(name)


def test_a_client_cannot_be_named_like_a_broker() -> None:
    with pytest.raises(InvalidCertificate, match="only brokers have names"):
        client_identity("broker:prod:1")


def test_a_server_without_hosts_and_a_broker_below_zero_are_refused() -> None:
    with pytest.raises(InvalidCertificate, match="names or addresses"):
        server_identity([])
    with pytest.raises(InvalidCertificate, match="not a broker id"):
        broker_identity("prod", -1, [])
    with pytest.raises(InvalidCertificate, match="too many"):
        server_identity([f"h{number}" for number in range(101)])


def test_an_authority_is_read_as_it_was_written() -> None:
    above = authority()
    read = read_authority(certificate_pem(above.certificate), key_pem(above.key))
    assert read.certificate == above.certificate
    assert key_pem(read.key) == key_pem(above.key)


def test_an_authority_that_is_none_is_refused() -> None:
    above = authority()
    whole = certificate_pem(above.certificate)
    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    for certificate, key in ((whole, key_pem(KEY)), (whole, b""), (b"", key_pem(above.key)), (b"\xff", b"\xff")):
        with pytest.raises(InvalidCertificate, match="authority"):
            read_authority(certificate, key)
    with pytest.raises(InvalidCertificate, match="does not belong"):
        read_authority(whole, key_pem(other))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("identity", "purpose"),
    [
        (broker_identity("prod", 1, ["127.0.0.1"]), "sslserver"),
        (broker_identity("prod", 1, ["127.0.0.1"]), "sslclient"),
        (server_identity(["127.0.0.1"]), "sslserver"),
        (client_identity("alice"), "sslclient"),
    ],
)
def test_openssl_verifies_it(identity: CertificateOwner, purpose: str, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    made, right, wrong = issued(identity), authority(), authority(2)
    made.verify_directly_issued_by(right.certificate)
    if openssl is None:
        return
    for name, certificate in (("made", made), ("right", right.certificate), ("wrong", wrong.certificate)):
        (tmp_path / f"{name}.pem").write_bytes(certificate_pem(certificate))

    def verifies(above: str, use: str) -> bool:
        arguments = ["-x509_strict", "-purpose", use, "-attime", str(int(NOW.timestamp()) + 60)]
        command = [openssl, "verify", *arguments, "-CAfile", f"{above}.pem", "made.pem"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0

    assert verifies("right", purpose)
    assert not verifies("wrong", purpose)
    other = {"sslserver": "sslclient", "sslclient": "sslserver"}[purpose]
    assert verifies("right", other) == (identity.is_server and identity.is_client)
