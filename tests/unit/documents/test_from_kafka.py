"""docs/guides/from-kafka.md: names that it calls the same exist, and names that it calls absent do not."""

from __future__ import annotations

import pathlib
import re

import pytest

from minilog.config import config_names
from minilog.errors import InvalidConfig
from minilog_broker.controller.topic_config import TOPIC_CONFIG_NAMES
from minilog_broker.server.config import setting_names
from minilog_broker.server.config_layers import load_config
from tests.rules import proves

pytestmark = proves("DOC.9")

PAGE = (pathlib.Path(__file__).parents[3] / "docs/guides/from-kafka.md").read_text()
CLIENTS, BROKERS = (
    PAGE.partition(f"## Settings of {of}\n")[2].partition("\n## ")[0] for of in ("clients", "topics and brokers")
)
READ_BESIDE_THE_TABLE = {"sasl.jaas.config", "ssl.*"}
ABSENT = {
    name
    for row in re.findall(r"^\| (`.*) \| not there", CLIENTS, re.MULTILINE)
    for name in re.findall(r"`([^`]+)`", row)
}


def names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z]+(?:\.[a-z*]+)*)`", text))


def test_the_settings_of_clients_that_are_the_same_are_settings() -> None:
    same = names(CLIENTS.partition("\n| setting | differs |")[0])
    assert len(same) > 25
    assert same - READ_BESIDE_THE_TABLE <= set(config_names())


def test_the_settings_of_topics_and_brokers_that_are_the_same_are_settings() -> None:
    same = names(BROKERS.partition("\n| Kafka | minilog |")[0])
    assert len(same) > 15
    assert same <= {*TOPIC_CONFIG_NAMES, *setting_names()}


def test_the_settings_that_are_not_there_are_no_settings() -> None:
    assert len(ABSENT) > 5
    assert not ABSENT & {*config_names(), *TOPIC_CONFIG_NAMES, *setting_names()}


def test_a_setting_of_kafka_that_is_an_option_here_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.dirs"):
        load_config(overrides={"log.dirs": "/data"})
