"""Delegation tokens on a secured cluster: who gets one, what it is good for, and what an enemy does with it."""

from __future__ import annotations

import json
import pathlib
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, properties_file
from minilog.admin.security import DelegationToken, TokenInformation, UserUpsertion
from minilog.errors import (
    AuthenticationFailed,
    DelegationTokenNotFound,
    DelegationTokenRequestNotAllowed,
    MinilogError,
)
from minilog.security.access_rules import Operation
from minilog_tools.cli.app import run
from pyspark_minilog.login import task_login
from pyspark_minilog.options.table import parse_source_options
from tests.integration.users import PASSWORD, rule
from tests.programs import unboxed
from tests.rules import proves
from tests.secured import SecuredCluster, running_secured_cluster

pytestmark = proves("MD.28", "MD.29")

TOPIC = "flights"
WITHIN_S = 20.0
REFUSAL = "authentication failed: see the user's name and password, or the token"
EXPIRY_MS = 4_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Tokens are good for four seconds."""
    folder = tmp_path_factory.mktemp("tokens")
    settings = {"delegation.token.expiry.time.ms": str(EXPIRY_MS), "delegation.token.expiry.check.interval.ms": "500"}
    with running_secured_cluster(folder, 1, settings) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(TOPIC)])
            admin.alter_users([UserUpsertion(each, PASSWORD) for each in ("alice", "bob", "eve")])
            admin.create_access_rules([rule("alice", Operation.ALL, TOPIC)])
        yield running


def by_password(cluster: SecuredCluster, name: str, password: str = PASSWORD) -> dict[str, Any]:
    return {**cluster.client, "sasl.username": name, "sasl.password": password, "request.timeout.ms": 10_000}


def by_token(cluster: SecuredCluster, token: DelegationToken, **more: object) -> dict[str, Any]:
    return {**cluster.client, **token.client_settings(), "request.timeout.ms": 10_000, **more}


def created(
    cluster: SecuredCluster, name: str = "alice", *renewers: str, life_ms: int | None = None
) -> DelegationToken:
    with Admin(by_password(cluster, name)) as admin:
        return admin.create_delegation_token(renewers, life_ms)


def ids(found: list[TokenInformation]) -> list[str]:
    return [each.token_id for each in found]


def refusal(settings: dict[str, Any]) -> str:
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed) as refused:
        admin.list_topics()
    return str(refused.value)


class TestWhoHasOne:
    def test_a_token_logs_in_as_its_owner(self, cluster: SecuredCluster) -> None:
        token = created(cluster)
        assert token.information.owner == "User:alice"
        assert token.information.expiry_timestamp_ms - token.information.issue_timestamp_ms == EXPIRY_MS
        without = {name: each for name, each in cluster.client.items() if not name.startswith("sasl.")}
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        name, hmac = token.information.token_id, token.hmac.reveal()
        of_kafka = f'{module} required username="{name}" password="{hmac}" tokenauth="true";'
        for settings in (
            by_token(cluster, token, **{"sasl.mechanism": "SCRAM-SHA-256"}),
            by_token(cluster, token, **{"sasl.mechanism": "SCRAM-SHA-512"}),
            {**without, "sasl.jaas.config": of_kafka},
        ):
            with Admin(settings) as admin:
                assert admin.list_topics() == [TOPIC]
        with Admin(by_password(cluster, "eve")) as admin:
            assert admin.list_topics() == []

    def test_a_token_is_renewed_and_ended_by_its_renewer_and_seen_by_an_administrator(
        self, cluster: SecuredCluster
    ) -> None:
        token = created(cluster, "alice", "User:bob")
        with Admin(by_password(cluster, "bob")) as bob, Admin(cluster.client) as admin:
            assert ids(bob.describe_delegation_tokens()) == [token.information.token_id]
            assert bob.renew_delegation_token(token.information.token_id, 60_000) > time.time() * 1000 + 50_000
            assert token.information.token_id in ids(admin.describe_delegation_tokens())
            assert admin.describe_delegation_tokens(["User:eve"]) == []
            bob.expire_delegation_token(token.information.token_id)
            assert bob.describe_delegation_tokens() == []
        assert refusal(by_token(cluster, token)) == REFUSAL

    def test_no_repr_log_or_file_of_a_broker_has_the_secret_of_a_token(self, cluster: SecuredCluster) -> None:
        token = created(cluster)
        secret = token.hmac.reveal()
        assert secret not in f"{token!r} {token} {token.client_settings()!r}"
        time.sleep(0.2)
        assert secret not in cluster.log_text(1)
        for file in cluster.directory.rglob("*"):
            if file.is_file() and "broker-1" in str(file):
                assert secret.encode() not in file.read_bytes(), file


class TestTime:
    def test_a_renewed_token_goes_on_while_a_client_works(self, cluster: SecuredCluster) -> None:
        """It is good for four seconds; the client works for eight."""
        token = created(cluster)
        found = 0
        settings = by_token(cluster, token, **{"auto.offset.reset": "latest"})
        with (
            Admin(by_password(cluster, "alice")) as owner,
            Producer(settings) as producer,
            Consumer(settings) as consumer,
        ):
            consumer.subscribe([TOPIC])
            consumer.poll(2.0)
            for number in range(8):
                owner.renew_delegation_token(token.information.token_id)
                producer.send(TOPIC, bytes([number])).result(timeout=WITHIN_S)
                found += len(consumer.poll(1.0))
            deadline = time.monotonic() + WITHIN_S
            while found < 8 and time.monotonic() < deadline:
                owner.renew_delegation_token(token.information.token_id)
                found += len(consumer.poll(0.5))
        assert found == 8

    @pytest.mark.dear("it waits for the end of a session")
    def test_a_token_that_is_not_renewed_ends_with_its_sessions(self, cluster: SecuredCluster) -> None:
        token = created(cluster, life_ms=2_000)
        with Producer(by_token(cluster, token, **{"delivery.timeout.ms": 3_000})) as producer:
            producer.send(TOPIC, b"in time").result(timeout=WITHIN_S)
            time.sleep(2.5)
            with pytest.raises(MinilogError):
                producer.send(TOPIC, b"too late").result(timeout=WITHIN_S)
        assert refusal(by_token(cluster, token)) == REFUSAL
        wait_until_gone(cluster, token)

    def test_an_expired_token_ends_sessions_and_streams_at_once(self, cluster: SecuredCluster) -> None:
        token = created(cluster)
        with Admin(by_password(cluster, "alice")) as owner, Admin(by_token(cluster, token)) as admin:
            owner.renew_delegation_token(token.information.token_id, 60_000)
            assert admin.list_topics() == [TOPIC]
            owner.expire_delegation_token(token.information.token_id)
            with pytest.raises(AuthenticationFailed):
                admin.list_topics()


def wait_until_gone(cluster: SecuredCluster, token: DelegationToken) -> None:
    """The controller removes it; whoever asks for it is told that there is none."""
    deadline = time.monotonic() + WITHIN_S
    with Admin(by_password(cluster, "alice")) as owner:
        while time.monotonic() < deadline:
            try:
                owner.renew_delegation_token(token.information.token_id)
            except DelegationTokenNotFound:
                return
            except MinilogError:
                time.sleep(0.2)
    raise AssertionError("an expired token is still there")


class TestEnemies:
    def test_a_holder_of_a_token_makes_no_other(self, cluster: SecuredCluster) -> None:
        """Else a token that was stolen would never end."""
        with Admin(by_token(cluster, created(cluster))) as thief, pytest.raises(DelegationTokenRequestNotAllowed):
            thief.create_delegation_token()

    @pytest.mark.dear("failed logins wait")
    def test_a_wrong_secret_and_a_token_as_a_user_get_the_same_answer(self, cluster: SecuredCluster) -> None:
        token, other = created(cluster), created(cluster)
        for wrong in ({"sasl.password": other.hmac}, {"sasl.tokenauth": "false"}):
            assert refusal(by_token(cluster, token, **wrong)) == REFUSAL


class TestTheCommandLine:
    @pytest.fixture
    def alice(self, cluster: SecuredCluster, tmp_path: pathlib.Path) -> list[str]:
        file = tmp_path / "alice.properties"
        file.touch(0o600)
        told = {**by_password(cluster, "alice")}
        file.write_text("".join(f"{name}={each}\n" for name, each in told.items()))
        return ["--command-config", str(file)]

    def test_a_token_has_a_life(
        self, alice: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "token.properties"
        assert run(["token", "create", "--out", str(out), "--renewer-principal", "User:bob", "--json", *alice]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told.keys() == {"id", "owner", "renewers", "issue_timestamp", "expiry_timestamp", "max_timestamp"}
        assert (told["owner"], told["renewers"]) == ("User:alice", ["User:bob"])
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        assert run(["topic", "list", "--command-config", str(out)]) == 0
        assert TOPIC in capsys.readouterr().out
        assert run(["token", "renew", told["id"], "--renew-time-period", "60000", "--json", *alice]) == 0
        assert json.loads(capsys.readouterr().out)["expiry_timestamp"] > told["expiry_timestamp"]
        assert run(["token", "list", *alice]) == 0
        shown = capsys.readouterr().out
        assert told["id"] in shown
        assert properties_file(out)["sasl.password"] not in shown
        assert run(["token", "expire", told["id"], *alice]) == 0
        assert run(["topic", "list", "--command-config", str(out)]) == 1
        assert REFUSAL in capsys.readouterr().err

    def test_a_secret_goes_where_the_command_says(self, alice: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["token", "create", "--print", "--json", *alice]) == 0
        assert len(json.loads(capsys.readouterr().out)["hmac"]) == 44
        assert run(["token", "create", *alice]) == 2
        assert "--out FILE or --print" in unboxed(capsys.readouterr().err)

    def test_a_file_that_exists_is_left_as_it_is(
        self, cluster: SecuredCluster, alice: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "kept"
        out.write_text("mine")
        with Admin(by_password(cluster, "alice")) as admin:
            before = ids(admin.describe_delegation_tokens())
            assert run(["token", "create", "--out", str(out), *alice]) == 1
            assert set(ids(admin.describe_delegation_tokens())) <= set(before)
        assert "exists, and is left as it is" in capsys.readouterr().err
        assert out.read_text() == "mine"

    def test_a_refused_command_leaves_no_file(
        self, cluster: SecuredCluster, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "none"
        config = tmp_path / "wrong.properties"
        config.touch(0o600)
        config.write_text("".join(f"{n}={v}\n" for n, v in by_password(cluster, "alice", "wrong").items()))
        assert run(["token", "create", "--out", str(out), "--command-config", str(config)]) == 1
        assert not out.exists()
        capsys.readouterr()


def test_a_job_whose_token_is_no_more_gets_another_one(
    cluster: SecuredCluster, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has expired it, or the cluster at that address is another one: its tasks would be refused for as long as
    the token was to be good."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(task_login, "_now_ms", lambda: now_ms)  # by the driver's clock it is good for all of the test
    settings = {name: str(each) for name, each in by_password(cluster, "alice").items()}
    options = parse_source_options({"bootstrap.servers": cluster.bootstrap_servers, "subscribe": TOPIC})
    job = replace(options, client=settings, delegates=True)

    def token_id() -> str:
        login = task_login.task_login(job)
        assert login is not None
        return str(login.applied(job).client["sasl.username"])

    first = token_id()
    assert token_id() == first
    with Admin(by_password(cluster, "alice")) as admin:
        admin.expire_delegation_token(first)
    assert token_id() == first, "it was made a moment ago, and is believed"
    monkeypatch.setattr(task_login, "_BELIEVED_S", 0.0)
    second = token_id()
    assert second != first
    with Admin(by_password(cluster, "alice")) as admin:
        assert second in ids(admin.describe_delegation_tokens())
