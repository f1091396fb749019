"""Configuration: four layers, the nearest name for an unknown one, and errors that say what would be right."""

from __future__ import annotations

import pathlib

import pytest

from minilog.errors import InvalidConfig
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.config_layers import load_config
from minilog_broker.storage.compaction.newest_offsets import MAX_BUFFER_BYTES
from minilog_tools.cli.common import parse_assignments
from tests.rules import proves

pytestmark = proves("DOC.2")


def test_defaults_are_those_of_the_contract() -> None:
    config = load_config()
    assert config == BrokerConfig()
    assert (config.num_partitions, config.min_insync_replicas, config.default_replication_factor) == (1, 2, None)
    assert config.flush_on_append
    assert config.max_message_bytes == 8 * 1024 * 1024
    assert (config.transaction_timeout_ms, config.transaction_max_timeout_ms) == (900_000, 86_400_000)


def test_the_cleaner_has_kafkas_settings_and_no_larger_table_than_it_uses() -> None:
    config = load_config(overrides={"log.cleaner.dedupe.buffer.size": str(MAX_BUFFER_BYTES)})
    assert config.log_cleaner_dedupe_buffer_size == MAX_BUFFER_BYTES
    with pytest.raises(InvalidConfig, match="a whole number from 1048576 to 1073741824"):
        load_config(overrides={"log.cleaner.dedupe.buffer.size": str(MAX_BUFFER_BYTES + 1)})
    with pytest.raises(InvalidConfig, match=r"unknown setting log\.cleaner\.threads"):
        load_config(overrides={"log.cleaner.threads": "1"})
    config = load_config()
    assert (config.log_cleaner_enable, config.log_cleaner_backoff_ms) == (True, 15_000)
    assert (config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_max_bytes_per_second) == (1 << 27, 1 << 26)


def test_later_layers_win(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('num.partitions = 4\nflush.policy = "os"\nunclean.leader.election.enable = true\nsegment.ms = 7\n')
    environment = {"MINILOG_NUM_PARTITIONS": "5", "MINILOG_SEGMENT_MS": "8", "PATH": "/bin"}
    config = load_config(file, environment, {"segment.ms": "9"})
    assert (config.num_partitions, config.segment_ms) == (5, 9)
    assert not config.flush_on_append
    assert config.unclean_leader_election_enable


def test_client_names_in_the_environment_are_not_the_brokers_business() -> None:
    assert load_config(environment={"MINILOG_BOOTSTRAP_SERVERS": "a:1"}) == BrokerConfig()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"min.insync.replica": "2"}, r"unknown setting min\.insync\.replica \(-c\): did you mean min\.insync\.rep"),
        ({"flush.policy": "never"}, r"flush\.policy=never \(-c\) is not valid: expected fsync or os"),
        ({"segment.ms": "soon"}, r"segment\.ms=soon .* expected a whole number of at least 1"),
        ({"advertised.address": "here"}, r"advertised\.address=here .* expected HOST:PORT"),
        ({"broker.session.timeout.ms": "300"}, r"more than broker\.heartbeat\.interval\.ms, which is 300"),
        ({"min.insync.replicas": "3", "default.replication.factor": "1"}, r"at most default\.replication\.factor"),
        ({"transaction.timeout.ms": "2000", "transaction.max.timeout.ms": "1000"}, r"at most transaction\.max\.time"),
    ],
)
def test_wrong_settings_are_named_with_the_right_ones(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load_config(overrides=overrides)


def test_a_mistyped_environment_variable_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"environment variable MINILOG_NUM_PARTITION\): did you mean num\.part"):
        load_config(environment={"MINILOG_NUM_PARTITION": "3"})


def test_a_file_that_is_missing_or_not_toml_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("= 3")
    with pytest.raises(InvalidConfig, match="is not TOML"):
        load_config(tmp_path / "broken.toml")


def test_replication_factor_one_does_not_need_min_insync_replicas_said() -> None:
    assert load_config(overrides={"default.replication.factor": "1"}).default_replication_factor == 1


def test_an_assignment_needs_an_equals_sign() -> None:
    assert parse_assignments(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidConfig, match="-c a: expected key=value"):
        parse_assignments(["a"])


ENDPOINT = "sasl.oauthbearer.jwks.endpoint"


@pytest.mark.parametrize("url", ["http://issuer.example/jwks", "file:///keys", "https://alice:hunter2@issuer.example/"])
def test_an_endpoint_of_keys_is_https_and_what_was_said_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url \(-c\) is not valid: expected an https URL") as told:
        load_config(overrides={f"{ENDPOINT}.url": url})
    assert url not in str(told.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"sasl.oauthbearer.jwks.file": "keys.json"}, "are both given: keep one of them"),
        (
            {"security.protocol": "PLAINTEXT", "ssl.keystore.location": ""},
            "the setting has an effect only with SASL_SSL",
        ),
        ({f"{ENDPOINT}.url": ""}, r"truststore\.location is given, and .*\.url is not"),
        ({f"{ENDPOINT}.retry.backoff.max.ms": "99"}, r"at least .*\.retry\.backoff\.ms, which is 100"),
    ],
)
def test_keys_of_tokens_come_from_one_place(overrides: dict[str, str], message: str) -> None:
    secured = {
        "security.protocol": "SASL_SSL",
        "ssl.keystore.location": "server.pem",
        "inter.broker.listen": "127.0.0.1:9192",
        "inter.broker.ssl.keystore.location": "broker.pem",
        "inter.broker.ssl.truststore.location": "brokers.pem",
        f"{ENDPOINT}.url": "https://issuer.example/jwks",
        f"{ENDPOINT}.ssl.truststore.location": "house.pem",
    }
    assert load_config(overrides=secured).sasl_oauthbearer_jwks_endpoint_refresh_ms == 3_600_000
    with pytest.raises(InvalidConfig, match=message):
        load_config(overrides=secured | overrides)
