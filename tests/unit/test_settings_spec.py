"""settings.md and limits.md have what the code's tables have: names, defaults, allowed values, limits, and no more."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from minilog import config as client_config
from minilog.errors import InvalidConfig
from minilog_broker.controller import topic_config
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server import config as broker_config
from minilog_broker.server.ingress.rules import request_limits
from tests.rules import proves

pytestmark = proves("DOC.1", "MD.27")

ROOT = pathlib.Path(__file__).parents[2]
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()
LIMITS = (ROOT / "docs/spec/limits.md").read_text()
CONFIGURED = {field.name for field in dataclasses.fields(broker_config.BrokerConfig)}


def rows(document: str, heading: str) -> list[list[str]]:
    """The cells of the table's rows under a heading, or behind a sentence; the backticks of names are off."""
    _, _, behind = document.partition(heading)
    assert behind, f"{heading!r} is not in the document"
    table = re.search(r"^\|.*?(?=\n\n|\Z)", behind, re.MULTILINE | re.DOTALL)
    assert table
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


BROKER, TOPIC, CLIENT = rows(SETTINGS, "\n## Brokers"), rows(SETTINGS, "\n## Topics"), rows(SETTINGS, "\n## Clients")


def test_all_settings_are_in_the_tables_in_the_order_of_the_code() -> None:
    assert [row[0] for row in BROKER] == broker_config.setting_names()
    assert [row[0] for row in TOPIC] == list(topic_config.TOPIC_CONFIG_NAMES)
    assert [row[0] for row in CLIENT] == list(client_config._TABLE)


@pytest.mark.parametrize("row", BROKER, ids=lambda row: row[0])
def test_a_setting_of_a_broker(row: list[str]) -> None:
    name, default, _, allowed, while_running, _ = row
    (field,) = [each for each in dataclasses.fields(broker_config.BrokerConfig) if each.name == name.replace(".", "_")]
    kind = field.metadata["kind"]
    assert allowed == kind.expected
    assert (None if default == "(none)" else kind.parse(default)) == field.default
    assert while_running == ("yes" if name in broker_config.DYNAMIC_NAMES else "restart")


@pytest.mark.parametrize("row", TOPIC, ids=lambda row: row[0])
def test_a_setting_of_a_topic(row: list[str]) -> None:
    name, built_in, _, allowed, _ = row
    key = topic_config._KEYS[name]
    assert allowed == key.expected
    parsed = key.parse(built_in)
    assert parsed == (getattr(topic_config.BUILT_IN, key.attribute) if key.attribute else None)


@pytest.mark.parametrize("row", CLIENT, ids=lambda row: row[0])
def test_a_setting_of_a_client(row: list[str]) -> None:
    name, default, _, allowed, _ = row
    parse, known = client_config._TABLE[name]
    with pytest.raises(InvalidConfig) as refused:
        parse(name, object())
    assert str(refused.value).endswith(f"it must be {allowed}")
    if known is None:
        assert default == "(required)"
    else:
        assert parse(name, "" if default == "(empty)" else default) == parse(name, known)


@pytest.mark.parametrize(
    ("kind", "heading"), [(ReplicationSettings, "Of replication ("), (QuorumSettings, "Of the quorum (")]
)
def test_fixed_periods_are_those_of_the_specification(
    kind: type[ReplicationSettings | QuorumSettings], heading: str
) -> None:
    told = {name: float(value) for name, value, _ in rows(LIMITS, heading)}
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    configured = {name for name in fields if name in CONFIGURED or f"quorum_{name}" in CONFIGURED}
    assert told == {name: default for name, default in fields.items() if name not in configured}


def test_limits_of_a_request_are_those_of_the_specification() -> None:
    told = {(name, most, why) for name, most, why in rows(LIMITS, "## What one request may name")}
    counts = {(name, str(most), why) for name, (most, why) in request_limits._MAX.items()}
    sums = {(f"{name}`, the sum", str(most), why) for name, (most, why) in request_limits._MAX_SUM.items()}
    assert told == counts | sums
