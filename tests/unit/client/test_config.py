"""Client configuration: the contract's names and defaults, and errors that say what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

import minilog
import minilog.aio
from minilog.config import parse_config
from minilog.errors import InvalidConfig
from tests.rules import proves

pytestmark = proves("DOC.2")

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


def test_defaults_are_those_of_the_contract() -> None:
    config = parse_config(SERVERS)
    assert (config.acks, config.linger_ms, config.batch_size, config.buffer_memory) == (-1, 5, 2**20, 64 * 2**20)
    assert (config.request_timeout_ms, config.delivery_timeout_ms) == (30_000, 120_000)
    assert config.isolation_level == "read_committed"
    assert config.enable_idempotence
    assert config.session_keepalive_ms == 1_000


def test_every_name_of_the_contract_is_known() -> None:
    names = """client.id acks linger.ms batch.size compression.type enable.idempotence delivery.timeout.ms
        request.timeout.ms group.id auto.offset.reset isolation.level fetch.max.wait.ms fetch.max.bytes client.rack"""
    values = {"compression.type": "lz4", "enable.idempotence": "true", "isolation.level": "read_uncommitted"}
    values |= {"auto.offset.reset": "earliest", "acks": "all"}
    parse_config(SERVERS | {name: values.get(name, "1000") for name in names.split()})


def test_values_may_be_text() -> None:
    config = parse_config(SERVERS | {"linger.ms": "7", "enable.idempotence": "FALSE", "acks": 1})
    assert (config.linger_ms, config.enable_idempotence, config.acks) == (7, False, 1)


def test_several_servers_and_ipv6() -> None:
    config = parse_config({"bootstrap.servers": "a:1, [::1]:2"})
    assert config.bootstrap_servers == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap.server": "a:1"}, r"no setting 'bootstrap.server': the nearest is 'bootstrap.servers'"),
        ({"lingerms": 1}, r"the nearest is 'linger.ms'"),
        ({"session.timeout.ms": 1}, r"Kafka's clients is no setting here: brokers and groups have group.consumer"),
        ({"auto.leader.rebalance": 1}, r"no setting 'auto.leader.rebalance': docs/reference/settings.md"),
        ({}, r"bootstrap.servers is missing: give it as HOST:PORT"),
        ({"bootstrap.servers": "a"}, r"bootstrap.servers='a' is not possible: it must be HOST:PORT"),
        (SERVERS | {"acks": "2"}, r"acks='2' is not possible: it must be all or -1 or 0 or 1"),
        (SERVERS | {"linger.ms": "soon"}, r"linger.ms='soon' is not possible: it must be a whole number from 0"),
        (SERVERS | {"batch.size": 0}, r"batch.size=0 is not possible"),
        (SERVERS | {"batch.size": True}, r"batch.size=True is not possible"),
        (SERVERS | {"auto.offset.reset": "first"}, r"earliest or latest or error"),
        (SERVERS | {"acks": 1, "enable.idempotence": True}, r"acks=1 .* all while enable.idempotence is true"),
        (SERVERS | {"acks": 1, "transactional.id": "t"}, r"acks=1 .* all where a transactional.id is given"),
        (
            SERVERS | {"enable.idempotence": False, "transactional.id": "t"},
            r"enable.idempotence=False .* true where a transactional.id",
        ),
        (
            SERVERS | {"queue": "q", "group.id": "g"},
            r"queue='q' and group.id='g' are both given",
        ),
        (SERVERS | {"queue": "q", "isolation.level": "read_uncommitted"}, r"isolation.level=.* must be read_committed"),
        (SERVERS | {"max.poll.records": 0}, r"max.poll.records=0 .* a whole number from 1"),
        (SERVERS | {"linger.ms": 9, "delivery.timeout.ms": 8}, r"delivery.timeout.ms=8 .* at least linger.ms"),
    ],
)
def test_wrong_settings_are_named_with_the_right_ones(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_config(settings)


def test_acks_1_without_a_word_about_idempotence_turns_it_off() -> None:
    assert not parse_config(SERVERS | {"acks": "1"}).enable_idempotence


def test_the_environment_is_between_the_defaults_and_what_is_given() -> None:
    environment = {"MINILOG_LINGER_MS": "7", "MINILOG_CLIENT_RACK": "a", "MINILOG_BOOTSTRAP_SERVERS": "b:1"}
    config = parse_config({"client.rack": "here"}, environment)
    assert (config.linger_ms, config.client_rack, config.bootstrap_servers) == (7, "here", (("b", 1),))


def test_a_bad_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(InvalidConfig, match=r"environment variable MINILOG_LINGER_MS: linger.ms='soon'"):
        parse_config(SERVERS, {"MINILOG_LINGER_MS": "soon"})


def test_acks_and_idempotence_are_judged_together_wherever_they_come_from() -> None:
    with pytest.raises(InvalidConfig, match=r"acks='1' .* all while enable.idempotence is true"):
        parse_config(SERVERS | {"enable.idempotence": True}, {"MINILOG_ACKS": "1"})


def test_variables_of_a_broker_are_none_of_a_clients_business() -> None:
    parse_config(SERVERS, {"MINILOG_NUM_PARTITIONS": "x", "MINILOG_NONSENSE": "1"})


@pytest.mark.parametrize("kind", [minilog.Consumer, minilog.aio.Consumer])
def test_a_consumer_refuses_a_queue_and_names_the_class_that_takes_it(
    kind: Callable[[Mapping[str, object]], object],
) -> None:
    with pytest.raises(InvalidConfig, match=r"queue='q' is for minilog.QueueConsumer"):
        kind(SERVERS | {"queue": "q"})


@pytest.mark.parametrize("kind", [minilog.QueueConsumer, minilog.aio.QueueConsumer])
def test_a_queue_consumer_needs_a_queue(kind: Callable[[Mapping[str, object]], object]) -> None:
    with pytest.raises(InvalidConfig, match="queue is missing"):
        kind(SERVERS)
