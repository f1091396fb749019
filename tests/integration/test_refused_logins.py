"""A password, a user or a certificate ends under running clients. Each call says AuthenticationFailed, and goes on
when the cause is corrected."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog import Admin, Consumer, NewTopic, Producer, QueueConsumer, TopicPartition
from minilog.admin.security import UserDeletion, UserUpsertion
from minilog.errors import AuthenticationFailed
from minilog_broker.security.certificates import (
    CURVE,
    Signing,
    certificate_pem,
    client_identity,
    issue,
    key_pem,
    read_authority,
)
from tests.cluster import HOST, free_ports
from tests.secured import SecuredCluster

TOPIC = "flights"
WITHIN_S = 8.0  # a broker takes 2 s to refuse a login
AGAIN_S = 30.0
RIGHT, WRONG = "the-first-password", "the-second-password"


class Clients:
    """One running client of each kind, and a call of each."""

    def __init__(self, config: dict[str, Any], stack: contextlib.ExitStack) -> None:
        self.producer = stack.enter_context(Producer(config))
        self.writer = stack.enter_context(Producer({**config, "transactional.id": "writer"}))
        self.reader = stack.enter_context(Consumer(config))
        self.member = stack.enter_context(Consumer({**config, "group.id": "group", "group.protocol": "consumer"}))
        self.worker = stack.enter_context(QueueConsumer({**config, "queue": "queue"}))
        self.admin = stack.enter_context(Admin(config))
        self.reader.assign([TopicPartition(TOPIC, 0, 0)])
        self.member.subscribe([TOPIC])
        self.worker.subscribe([TOPIC])

    @property
    def calls(self) -> dict[str, Callable[[], object]]:
        return {
            "send": lambda: self.producer.send(TOPIC, b"x").result(WITHIN_S),
            "transaction": self.write,
            "poll": lambda: self.reader.poll(3.0),
            "short poll": lambda: self.reader.poll(0.1),
            "member's poll": lambda: self.member.poll(WITHIN_S),
            "queue's poll": self.work,
            "admin": self.admin.list_topics,
        }

    def work(self) -> None:
        """Until no message is left. Those that were leased before are valid."""
        while messages := self.worker.poll(3.0):
            for message in messages:
                message.accept()

    def write(self) -> None:
        with self.writer.transaction():
            self.writer.send(TOPIC, b"x").result(WITHIN_S)


def refused(call: Callable[[], object]) -> float:
    """The seconds until the call says that the login is refused."""
    began_s = time.monotonic()
    with pytest.raises(AuthenticationFailed):
        call()
    return time.monotonic() - began_s


def works_again(call: Callable[[], object]) -> None:
    """A client may have an error of before that it has not told."""
    deadline_s = time.monotonic() + AGAIN_S
    while True:
        try:
            call()
        except AuthenticationFailed:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        else:
            return


@contextlib.contextmanager
def running(tmp_path: pathlib.Path, settings: dict[str, str]) -> Iterator[SecuredCluster]:
    """One broker, where ann may do everything, too."""
    cluster = SecuredCluster(tmp_path, 1)
    settings = {"super.users": "User:admin;User:ann", **settings}
    said = [f"--set={name}={value}" for name, value in settings.items()]
    cluster.arguments[1] = [*cluster.arguments[1], *said]
    try:
        cluster.start()
        cluster.wait_running()
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(TOPIC)])
        yield cluster
    finally:
        cluster.end()


@pytest.mark.dear("it makes six kinds of clients log in, before and after")
@pytest.mark.parametrize(
    "change", [UserUpsertion("ann", WRONG), pytest.param(UserDeletion("ann"), marks=pytest.mark.long)], ids=type
)
def test_each_call_tells_of_a_password_that_does_not_count_and_goes_on_when_it_counts_again(
    change: UserUpsertion | UserDeletion, tmp_path: pathlib.Path
) -> None:
    with running(tmp_path, {}) as cluster, contextlib.ExitStack() as stack:
        root = stack.enter_context(Admin(cluster.client))
        root.alter_users([UserUpsertion("ann", RIGHT)])
        config = {**cluster.client, "sasl.username": "ann", "sasl.password": RIGHT, "request.timeout.ms": 10_000}
        clients = Clients(config, stack)
        for call in clients.calls.values():
            call()
        root.alter_users([change])
        time.sleep(0.5)  # until the broker has ended the streams: what is out then may be written
        took_s = {name: refused(call) for name, call in clients.calls.items()}
        assert max(took_s.values()) < WITHIN_S, took_s
        root.alter_users([UserUpsertion("ann", RIGHT)])
        for call in clients.calls.values():
            works_again(call)


@pytest.mark.long
def test_each_call_tells_of_a_certificate_that_has_ended(tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    listener = {
        "listeners": f"certificates://{HOST}:{port}",
        "listener.security.protocol.map": "certificates:SSL",
        "listener.name.certificates.ssl.truststore.location": str((tmp_path / "security" / "clients.pem").absolute()),
    }
    with running(tmp_path, listener) as cluster, contextlib.ExitStack() as stack:
        keystore = tmp_path / "ann.pem"
        keystore.write_bytes(certificate_of_ann(cluster, datetime.timedelta(seconds=15)))
        ends_s = time.monotonic() + 15
        config = {
            "bootstrap.servers": f"{HOST}:{port}",
            "security.protocol": "SSL",
            "ssl.truststore.location": cluster.client["ssl.truststore.location"],
            "ssl.keystore.location": str(keystore),
            "request.timeout.ms": 10_000,
            "delivery.timeout.ms": 30_000,
        }
        clients = Clients(config, stack)
        for name in ("send", "short poll", "admin"):
            clients.calls[name]()
        time.sleep(max(0.0, ends_s + 1.0 - time.monotonic()))
        cluster.stop(1)  # connections outlive the certificates by which they began
        cluster.start(1)
        cluster.wait_running()
        took_s = {name: refused(call) for name, call in clients.calls.items()}
        assert max(took_s.values()) < 2 * WITHIN_S, took_s
        keystore.write_bytes(certificate_of_ann(cluster, datetime.timedelta(days=1)))
        for call in clients.calls.values():
            works_again(call)


def certificate_of_ann(cluster: SecuredCluster, lifetime: datetime.timedelta) -> bytes:
    key, now = ec.generate_private_key(CURVE()), datetime.datetime.now(datetime.UTC)
    authority = read_authority(
        (cluster.folder / "clients.pem").read_bytes(), (cluster.folder / "clients.key").read_bytes()
    )
    signing = Signing(x509.random_serial_number(), now, lifetime)
    return key_pem(key) + certificate_pem(issue(client_identity("ann"), key.public_key(), authority, signing))
