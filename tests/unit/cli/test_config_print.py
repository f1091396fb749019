"""`minilog config print`: what counts, who says so, and no secret in any of it."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from minilog import config as client_config
from minilog.config import parse_config
from minilog_broker.server import config as broker_config
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.config_layers import load_config
from minilog_tools.cli.app import run

PLANTED = "hunter2-correct-horse"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{PLANTED}";'


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without what the machine's says."""
    for name in (*broker_config.setting_names(), *client_config.config_names()):
        monkeypatch.delenv(client_config.variable_of(name), raising=False)
    return monkeypatch


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[str, str, str]]:
    """By name: value, source, where."""
    assert run(["config", "print", *arguments, "--json"]) == 0
    document: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    assert all(each.keys() == {"name", "value", "source", "where"} for each in document)
    return {each["name"]: (each["value"], each["source"], each["where"]) for each in document}


def properties(folder: pathlib.Path, *lines: str) -> str:
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return str(file)


BETWEEN_BROKERS = {
    "inter.broker.listen": "127.0.0.1:9192",
    "inter.broker.ssl.keystore.location": "broker.pem",
    "inter.broker.ssl.truststore.location": "brokers.pem",
}


def options(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


class TestBroker:
    def test_all_settings_are_told_as_they_would_be_typed(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = printed(capsys, "broker")
        assert list(found) == broker_config.setting_names()
        assert {source for _, source, _ in found.values()} == {"default"}
        assert found["default.replication.factor"][0] == "auto"
        assert found["replica.lag.max.records"][0] == "off"
        typed = {name: value for name, (value, _, _) in found.items() if value}
        assert load_config(overrides=typed) == BrokerConfig()

    def test_each_value_has_the_layer_that_counts(
        self, capsys: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        file = tmp_path / "broker.toml"
        file.write_text('num.partitions = 4\nsegment.ms = 7\nretention.ms = 8\nsuper.users = "User:a; User:b"\n')
        environment.setenv("MINILOG_SEGMENT_MS", "9")
        environment.setenv("MINILOG_RETENTION_MS", "10")
        arguments = ("--config", str(file), "--set", "retention.ms=11", "--set", "unclean.leader.election.enable=TRUE")
        environment.setenv("MINILOG_SECURITY_PROTOCOL", "SSL")
        secured = {
            "ssl.keystore.location": "server.pem",
            "ssl.truststore.location": "clients.pem",
            **BETWEEN_BROKERS,
        }
        found = printed(capsys, "broker", *arguments, *options(secured), "--changed")
        assert found == {
            "num.partitions": ("4", "file", str(file)),
            "segment.ms": ("9", "environment", "MINILOG_SEGMENT_MS"),
            "retention.ms": ("11", "option", "-c"),
            "unclean.leader.election.enable": ("true", "option", "-c"),
            "super.users": ("User:a;User:b", "file", str(file)),
            "security.protocol": ("SSL", "environment", "MINILOG_SECURITY_PROTOCOL"),
            **{name: (value, "option", "-c") for name, value in secured.items()},
        }

    def test_settings_of_a_named_listener_are_printed_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        said = {
            "listeners": "OUTSIDE://127.0.0.1:9093,inside://[::1]:9094",
            "listener.security.protocol.map": "outside:SASL_SSL,inside:PLAINTEXT",
            "listener.name.Outside.ssl.keystore.location": "outside.pem",
            **BETWEEN_BROKERS,
        }
        found = printed(capsys, "broker", *options(said), "--changed")
        assert {name: value for name, (value, _, _) in found.items()} == {
            "listeners": "outside://127.0.0.1:9093,inside://[::1]:9094",
            "listener.security.protocol.map": "outside:SASL_SSL,inside:PLAINTEXT",
            "listener.name.outside.ssl.keystore.location": "outside.pem",
            **BETWEEN_BROKERS,
        }
        assert {(source, where) for _, source, where in found.values()} == {("option", "-c")}

    def test_settings_that_a_broker_refuses_are_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["config", "print", "broker", "--set", "segment.ms=soon"]) == 2
        assert "segment.ms=soon (-c) is not valid" in capsys.readouterr().err
        assert run(["config", "print", "broker", "--set", "sasl.oauthbearer.jwks.file=keys.json"]) == 2
        assert "the setting has an effect only with SASL_SSL" in capsys.readouterr().err

    @pytest.mark.parametrize("as_json", [True, False])
    def test_the_query_of_a_url_is_not_shown(self, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
        said = {
            "security.protocol": "SASL_SSL",
            "ssl.keystore.location": "server.pem",
            **BETWEEN_BROKERS,
            "sasl.oauthbearer.jwks.endpoint.url": f"https://issuer.example/jwks?key={PLANTED}",
        }
        assert run(["config", "print", "broker", *options(said), *(["--json"] if as_json else [])]) == 0
        told = capsys.readouterr()
        assert "https://issuer.example/jwks?***" in told.out
        assert PLANTED not in told.out + told.err

    def test_a_clients_password_in_the_environment_is_no_setting_of_a_broker(
        self, capsys: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch
    ) -> None:
        environment.setenv("MINILOG_SASL_PASSWORD", PLANTED)
        assert run(["config", "print", "broker"]) == 0
        assert PLANTED not in capsys.readouterr().out


SECURED = ("security.protocol=SASL_SSL", "sasl.username=alice")


class TestClient:
    def test_all_settings_are_told_as_they_would_be_typed(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = printed(capsys, "client")
        assert list(found) == list(client_config._TABLE)
        assert {source for _, source, _ in found.values()} == {"default"}
        typed = {name: value for name, (value, _, _) in found.items()}
        # linger.ms that is said counts otherwise than its default
        assert parse_config({**typed, "linger.ms": "5"}, {}) == parse_config(
            {"bootstrap.servers": "127.0.0.1:9092", "linger.ms": "5"}, {}
        )

    def test_each_value_has_the_layer_that_counts(
        self, capsys: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch, tmp_path: pathlib.Path
    ) -> None:
        file = properties(tmp_path, "linger.ms=7", "client.rack=b", "acks=1", "group.id=late")
        environment.setenv("MINILOG_CLIENT_RACK", "a")
        environment.setenv("MINILOG_CLIENT_ID", "job")
        environment.setenv("MINILOG_BOOTSTRAP_SERVERS", "one:1,[::1]:2")
        found = printed(capsys, "client", "--command-config", file, "-c", "group.id=early", "--changed")
        assert found == {
            "bootstrap.servers": ("one:1,[::1]:2", "environment", "MINILOG_BOOTSTRAP_SERVERS"),
            "client.id": ("job", "environment", "MINILOG_CLIENT_ID"),
            "acks": ("1", "file", file),
            "linger.ms": ("7", "file", file),
            "enable.idempotence": ("false", "derived", "acks"),
            "group.id": ("early", "option", "-c"),
            "client.rack": ("b", "file", file),
        }
        found = printed(capsys, "client", "-b", "two:2", "--changed")
        assert found["bootstrap.servers"] == ("two:2", "option", "-b")

    @pytest.mark.parametrize("as_json", [True, False])
    @pytest.mark.parametrize("place", ["file", "environment", "option", "jaas", "jaas in the environment"])
    def test_a_planted_password_is_never_shown(
        self,
        capsys: pytest.CaptureFixture[str],
        environment: pytest.MonkeyPatch,
        tmp_path: pathlib.Path,
        place: str,
        as_json: bool,
    ) -> None:
        lines, given = list(SECURED), []
        match place:
            case "file":
                lines.append(f"sasl.password={PLANTED}")
            case "environment":
                environment.setenv("MINILOG_SASL_PASSWORD", PLANTED)
            case "option":
                given = ["-c", f"sasl.password={PLANTED}"]
            case "jaas":
                lines = [SECURED[0], f"sasl.jaas.config={JAAS}"]
            case _:
                lines = [SECURED[0]]
                environment.setenv("MINILOG_SASL_JAAS_CONFIG", JAAS)
        given += ["--command-config", properties(tmp_path, *lines), *(["--json"] if as_json else [])]
        assert run(["config", "print", "client", *given]) == 0
        told = capsys.readouterr()
        assert PLANTED not in told.out + told.err
        assert "***" in told.out
        assert "alice" in told.out

    def test_jaas_is_told_as_what_it_says(self, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
        file = properties(tmp_path, SECURED[0], f"sasl.jaas.config={JAAS}")
        found = printed(capsys, "client", "--command-config", file)
        where = f"{file} (sasl.jaas.config)"
        assert found["sasl.username"] == ("alice", "file", where)
        assert found["sasl.password"] == ("***", "file", where)

    def test_a_password_that_is_not_set_is_told_as_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert printed(capsys, "client")["sasl.password"] == ("", "default", "")

    @pytest.mark.parametrize(
        ("lines", "told"),
        [
            ((*SECURED, f"sasl.passwort={PLANTED}"), "there is no setting 'sasl.passwort'"),
            ((SECURED[0], f"sasl.jaas.config={JAAS[:-2]}"), "sasl.jaas.config"),
            ((*SECURED, f"sasl.jaas.config={JAAS}"), "are both given"),
        ],
    )
    def test_settings_that_a_client_refuses_are_refused_without_a_secret(
        self, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, lines: tuple[str, ...], told: str
    ) -> None:
        assert run(["config", "print", "client", "--command-config", properties(tmp_path, *lines)]) == 2
        found: Any = capsys.readouterr()
        assert told in found.err
        assert PLANTED not in found.out + found.err
