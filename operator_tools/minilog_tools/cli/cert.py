"""`minilog cert create` makes keys and certificates of a test authority, as PEM files.

Only the owner can read a key (mode 0600, in directories of 0700). The commands write through no link, and overwrite
nothing, because nobody can make a lost key again. Only these commands import the library for certificates.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from minilog_broker.failure import CommandFailed
from minilog_tools.cli.verb import Output, verb

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from minilog_broker.security.certificates import Authority, CertificateOwner, Signing

app = typer.Typer(no_args_is_help=True)
create = typer.Typer(no_args_is_help=True, help="Create an authority, or a certificate that it signs.")
app.add_typer(create, name="create")

AUTHORITY_CERTIFICATE, AUTHORITY_KEY = "authority.pem", "authority.key"
KEYSTORE = "keystore.pem"
"""A key and its certificate in one file, as `ssl.keystore.location` wants them."""
_MAX_FILE_BYTES = 64 << 10  # a certificate has one or two KiB

Out = Annotated[
    pathlib.Path, typer.Option("--out", metavar="DIR", help="The directory for the files. The command makes it.")
]
AuthorityDirectory = Annotated[
    pathlib.Path,
    typer.Option(
        "--authority",
        metavar="PATH",
        help="The directory of `create authority`, or the certificate of an authority with its key beside it, such as "
        "security/clients.pem of `minilog up --secure`.",
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=3_650, help="For how many days it is valid.")]
Hosts = Annotated[
    list[str], typer.Option("--host", metavar="NAME", help="A DNS name or an address to connect to. Repeatable.")
]


@verb(
    create,
    "minilog cert create authority --out certs/brokers",
    "minilog cert create authority --out certs/clients --days 3650",
)
def authority(out: Out, days: Days = 365) -> Output:
    """Create an authority. Use one for brokers among themselves, and another one for the clients' listener."""
    from minilog_broker.security import certificates

    with _invalid_is_usage():
        key = _new_key()
        certificate = certificates.authority_certificate(key, _signing(days))
        written = {AUTHORITY_KEY: certificates.key_pem(key)}
        written[AUTHORITY_CERTIFICATE] = certificates.certificate_pem(certificate)
    return _write(out, written, certificates.AUTHORITY_NAME)


@verb(
    create,
    "minilog cert create broker --authority certs/brokers --cluster prod --id 1 --host 127.0.0.1 --out broker-1",
    "minilog cert create broker --authority certs/brokers --cluster prod --id 2 --host 10.0.0.2 --out broker-2",
)
def broker(
    authority: AuthorityDirectory,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="The cluster's name.")],
    broker_id: Annotated[int, typer.Option("--id", min=0, help="The broker's id.")],
    hosts: Hosts,
    out: Out,
    days: Days = 365,
) -> Output:
    """Create the key and the certificate that a broker shows to other brokers, in calls of both directions."""
    from minilog_broker.security.certificates import broker_identity

    return _create(lambda: broker_identity(cluster, broker_id, hosts), authority, out, days)


@verb(
    create,
    "minilog cert create server --authority certs/clients --host 127.0.0.1 --out certs/server-1",
    "minilog cert create server --authority certs/clients --host b2 --host 10.0.0.2 --out server-2 --days 90",
)
def server(authority: AuthorityDirectory, hosts: Hosts, out: Out, days: Days = 365) -> Output:
    """Create the key and the certificate that a broker shows to clients."""
    from minilog_broker.security.certificates import server_identity

    return _create(lambda: server_identity(hosts), authority, out, days)


@verb(
    create,
    "minilog cert create client --authority certs/clients --name alice --out certs/alice",
    "minilog cert create client --authority certs/clients --name report --out certs/report --days 30",
)
def client(
    authority: AuthorityDirectory,
    name: Annotated[str, typer.Option("--name", metavar="USER", help="The user's name. Rules call it User:NAME.")],
    out: Out,
    days: Days = 365,
) -> Output:
    """Create the key and the certificate that a client shows to brokers."""
    from minilog_broker.security.certificates import client_identity

    return _create(lambda: client_identity(name), authority, out, days)


def _create(identity: Callable[[], CertificateOwner], authority: pathlib.Path, out: pathlib.Path, days: int) -> Output:
    from minilog_broker.security import certificates

    with _invalid_is_usage():
        wanted = identity()
    signer = _read_authority(authority)
    with _invalid_is_usage():
        key = _new_key()
        certificate = certificates.issue(wanted, key.public_key(), signer, _signing(days))
    written = {KEYSTORE: certificates.key_pem(key) + certificates.certificate_pem(certificate)}
    written[AUTHORITY_CERTIFICATE] = certificates.certificate_pem(signer.certificate)
    return _write(out, written, wanted.common_name)


@contextlib.contextmanager
def _invalid_is_usage() -> Iterator[None]:
    from minilog_broker.security.certificates import InvalidCertificate

    try:
        yield
    except InvalidCertificate as error:
        raise typer.BadParameter(str(error)) from None


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    from minilog_broker.security.certificates import CURVE

    return ec.generate_private_key(CURVE())


def _signing(days: int) -> Signing:
    from cryptography import x509

    from minilog_broker.security.certificates import Signing

    return Signing(x509.random_serial_number(), datetime.now(UTC), timedelta(days=days))


def _read_authority(directory: pathlib.Path) -> Authority:
    from minilog_broker.security.certificates import InvalidCertificate, read_authority

    try:
        certificate, key = _authority_files(directory)
        return read_authority(_read(certificate), _read(key))
    except FileNotFoundError as missing:
        raise CommandFailed(
            f"{missing.filename} does not exist: make an authority first, with `minilog cert create authority --out "
            f"{directory}`. Those of `minilog up --secure` are security/clients.pem and security/brokers.pem"
        ) from None
    except InvalidCertificate as error:
        raise CommandFailed(f"{directory}: {error}") from None


def _authority_files(given: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The certificate and the key: of the directory of `create authority`, or a certificate with its key beside it."""
    if given.is_dir():
        return given / AUTHORITY_CERTIFICATE, given / AUTHORITY_KEY
    return given, given.with_suffix(".key")


def _read(path: pathlib.Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _write(out: pathlib.Path, files: Mapping[str, bytes], name: str) -> Output:
    """Write all of `files` into the directory `out`, or none. A failure removes the files that were written before."""
    existing = [out / file_name for file_name in files if os.path.lexists(out / file_name)]
    if existing:
        raise CommandFailed(f"{existing[0]} exists, and the command overwrites nothing: give another --out")
    for level in (*reversed(out.parents), out):  # mkdir's `parents` would let everybody read them
        level.mkdir(mode=0o700, exist_ok=True)
    directory = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    written: list[str] = []
    try:
        for file_name, content in files.items():
            _write_new(directory, file_name, content, written)
        os.fsync(directory)
    except BaseException:
        for file_name in written:
            os.unlink(file_name, dir_fd=directory)
        raise
    finally:
        os.close(directory)
    paths = [str(out / file_name) for file_name in files]
    return Output({"name": name, "files": paths}, *(f"{name}: {path}" for path in paths))


def _write_new(directory: int, name: str, content: bytes, written: list[str]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o600 if name in (KEYSTORE, AUTHORITY_KEY) else 0o644
    with os.fdopen(os.open(name, flags, mode, dir_fd=directory), "wb") as file:
        written.append(name)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
