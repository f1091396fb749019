"""`minilog cert create` as it is called, and what its certificates do in gRPC's TLS: who is let in, and who is not."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog.security.channel_security import split_keystore
from minilog_broker.security.certificates import (
    Signing,
    broker_identity,
    broker_name,
    certificate_pem,
    issue,
    key_pem,
    read_authority,
)
from minilog_tools.cli.app import run

METHOD = "/test.Names/Name"
WITHIN_S = 20.0


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def cert(*arguments: str | pathlib.Path) -> Ended:
    """In this process: what is started anew each time costs a second."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(["cert", "create", *map(str, arguments)])
    return Ended(code, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two authorities, a broker and a client of each."""
    root = tmp_path_factory.mktemp("certificates")
    for name in ("brokers", "clients"):
        above = root / name / "authority"
        made = [cert("authority", "--out", above)]
        own = ("--cluster", "prod", "--id", "1", "--host", "localhost", "--host", "127.0.0.1")
        made.append(cert("broker", "--authority", above, *own, "--out", root / name / "broker"))
        made.append(cert("client", "--authority", above, "--name", "alice", "--out", root / name / "alice"))
        made.append(cert("server", "--authority", above, "--host", "127.0.0.1", "--out", root / name / "server"))
        assert [each.returncode for each in made] == [0, 0, 0, 0], made
    return root


def pems(directory: pathlib.Path) -> tuple[bytes, bytes]:
    """Key and certificate, in gRPC's order."""
    return split_keystore((directory / "keystore.pem").read_bytes(), "keystore.pem")


def expired(certs: pathlib.Path) -> tuple[bytes, bytes]:
    above = certs / "brokers" / "authority"
    key = ec.generate_private_key(ec.SECP256R1())
    authority = read_authority((above / "authority.pem").read_bytes(), (above / "authority.key").read_bytes())
    signing = Signing(x509.random_serial_number(), datetime.now(UTC) - timedelta(days=3), timedelta(days=1))
    made = issue(broker_identity("prod", 1, ["127.0.0.1"]), key.public_key(), authority, signing)
    return key_pem(key), certificate_pem(made)


def _name(request: bytes, context: grpc.ServicerContext) -> bytes:
    names: Any = context.auth_context().get("x509_common_name", [])
    return b",".join(names)


@contextlib.contextmanager
def serving(certs: pathlib.Path, own: tuple[bytes, bytes]) -> Iterator[int]:
    """A server that demands a certificate of the brokers' authority; its port."""
    trusted = (certs / "brokers" / "authority" / "authority.pem").read_bytes()
    server = grpc.server(ThreadPoolExecutor(2))
    handlers: dict[str, Any] = {"Name": grpc.unary_unary_rpc_method_handler(_name)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Names", handlers),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([own], trusted, require_client_auth=True))
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


def name_told(
    certs: pathlib.Path,
    port: int,
    own: tuple[bytes, bytes] | None,
    *,
    trusted: str = "brokers",
    server_name: str | None = None,
) -> bytes | grpc.StatusCode:
    """Who the server says the caller is; the status where the handshake fails."""
    root = (certs / trusted / "authority" / "authority.pem").read_bytes()
    key, chain = own or (None, None)
    options = [] if server_name is None else [("grpc.ssl_target_name_override", server_name)]
    credentials = grpc.ssl_channel_credentials(root, key, chain)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        call: Any = channel.unary_unary(METHOD, lambda sent: sent, lambda received: received).future(
            b"", timeout=WITHIN_S
        )
        code: grpc.StatusCode = call.code()  # waits for the end
        return bytes(call.result()) if code is grpc.StatusCode.OK else code


def test_a_broker_and_a_client_of_the_right_authority_are_let_in_by_name(certs: pathlib.Path) -> None:
    broker = pems(certs / "brokers" / "broker")
    with serving(certs, broker) as port:
        assert name_told(certs, port, broker, server_name=broker_name("prod", 1)) == b"broker:prod:1"
        assert name_told(certs, port, broker) == b"broker:prod:1"  # by its address
        assert name_told(certs, port, pems(certs / "brokers" / "alice")) == b"alice"


def test_a_caller_without_a_certificate_of_the_authority_is_not_let_in(certs: pathlib.Path) -> None:
    with serving(certs, pems(certs / "brokers" / "broker")) as port:
        for own in (None, pems(certs / "clients" / "broker"), pems(certs / "clients" / "alice"), expired(certs)):
            assert name_told(certs, port, own) is grpc.StatusCode.UNAVAILABLE


def test_keys_are_their_owners_alone(certs: pathlib.Path) -> None:
    for key in certs.glob("*/*/*key*"):  # authority.key, keystore.pem
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for directory in certs.glob("*/*"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700


def test_nothing_is_overwritten(certs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    above = certs / "brokers" / "authority"
    before = (above / "authority.key").read_bytes()
    again = cert("authority", "--out", above)
    assert (again.returncode, "overwrites nothing" in again.stderr) == (1, True)
    assert (above / "authority.key").read_bytes() == before
    (tmp_path / "authority.pem").write_text("mine")
    half = cert("client", "--authority", above, "--name", "bob", "--out", tmp_path)
    assert half.returncode == 1
    assert [each.name for each in tmp_path.iterdir()] == ["authority.pem"]


def test_no_link_is_followed(certs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    above, elsewhere = certs / "brokers" / "authority", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "keystore.pem").symlink_to(elsewhere / "stolen")
    (tmp_path / "linked").symlink_to(elsewhere)
    for out in (tmp_path / "out", tmp_path / "linked"):
        assert cert("client", "--authority", above, "--name", "bob", "--out", out).returncode == 1
    assert os.listdir(elsewhere) == []


def test_machines_are_told_what_was_written(certs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "bob"
    made = cert("client", "--authority", certs / "clients" / "authority", "--name", "bob", "--out", out, "--json")
    told = json.loads(made.stdout)
    assert told == {
        "name": "bob",
        "files": [str(out / each) for each in ("keystore.pem", "authority.pem")],
    }
    assert sorted(os.listdir(out)) == ["authority.pem", "keystore.pem"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("client", "--name", "broker:prod:1"), 2, "brokers"),
        (("client", "--name", "x" * 65), 2, "1 to 64"),
        (("broker", "--cluster", "a.b", "--id", "1", "--host", "h"), 2, "DNS name"),
        (("broker", "--cluster", "a", "--id", "1", "--host", "h:9"), 2, "not a host"),
        (("broker", "--cluster", "a", "--id", "1"), 2, "--host"),
        (("client", "--name", "a", "--days", "0"), 2, "--days"),
        (("client", "--name", "a"), 1, "make an authority first"),
    ],
)
def test_a_certificate_that_cannot_be_made_is_refused_in_words(
    arguments: tuple[str, ...], code: int, told: str, tmp_path: pathlib.Path
) -> None:
    ended = cert(*arguments, "--authority", tmp_path / "none", "--out", tmp_path / "out")
    assert ended.returncode == code
    assert told in ended.stderr
    assert not (tmp_path / "out").exists()


def test_every_command_has_an_example() -> None:
    for command in ("authority", "broker", "server", "client"):
        assert f"Examples: minilog cert create {command}" in " ".join(cert(command, "--help").stdout.split())


def test_an_authority_may_be_a_certificate_with_its_key_beside_it(certs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """`minilog up --secure` names its authorities so."""
    authority = certs / "clients" / "authority"
    for end in ("pem", "key"):
        shutil.copy(authority / f"authority.{end}", tmp_path / f"clients.{end}")
    made = cert("client", "--authority", tmp_path / "clients.pem", "--name", "bob", "--out", tmp_path / "bob")
    assert made.returncode == 0
    assert (tmp_path / "bob" / "authority.pem").read_bytes() == (authority / "authority.pem").read_bytes()
