"""The configuration of a running broker: the precedence of its origins, its subscribers, and unknown settings."""

from __future__ import annotations

import dataclasses

import pytest
from structlog.testing import capture_logs

from minilog.effective import Origin, Source
from minilog.errors import InvalidConfig
from minilog_broker.controller.image import ALL_BROKERS
from minilog_broker.server.config import DYNAMIC_NAMES, BrokerConfig, setting_names
from minilog_broker.server.config_layers import load_with_origins
from minilog_broker.server.running_config import Kept, RunningConfig, check_dynamic
from tests.rules import proves

pytestmark = proves("MD.27")

LAG, RETENTION, LEVEL = "replica.lag.time.max.ms", "retention.ms", "log.level"


class Running:
    """Broker 2 with one setting on its command line, and the calls to a subscriber of two settings."""

    def __init__(self) -> None:
        config, origins = load_with_origins(None, {}, {LAG: "4000"})
        self.running = RunningConfig(2, config, origins)
        self.heard: list[tuple[float, int]] = []
        self.running.subscribe((LAG, RETENTION), self._changed)

    def _changed(self, config: BrokerConfig) -> None:
        self.heard.append((config.replica_lag_time_max_ms, config.retention_ms))

    def apply(self, kept: Kept) -> None:
        self.running.apply(kept)

    def effective(self, name: str) -> tuple[str, Origin]:
        (setting,) = [setting for setting in self.running.effective() if setting.name == name]
        return setting.value, setting.origin


@pytest.fixture
def broker() -> Running:
    return Running()


@pytest.mark.parametrize(
    ("kept", "value", "source", "where"),
    [
        ({}, "4000", Source.OPTION, "-c"),
        ({ALL_BROKERS: {LAG: "5000"}}, "5000", Source.METADATA, "all brokers"),
        ({2: {LAG: "6000"}}, "6000", Source.METADATA, "broker 2"),
        ({ALL_BROKERS: {LAG: "5000"}, 2: {LAG: "6000"}}, "6000", Source.METADATA, "broker 2"),
        ({2: {LAG: "6000"}, ALL_BROKERS: {LAG: "5000"}}, "6000", Source.METADATA, "broker 2"),
        ({ALL_BROKERS: {LAG: "5000"}, 3: {LAG: "6000"}}, "5000", Source.METADATA, "all brokers"),
        ({3: {LAG: "6000"}}, "4000", Source.OPTION, "-c"),
    ],
)
def test_its_own_counts_before_that_of_all_and_both_before_its_command_line(
    broker: Running, kept: Kept, value: str, source: Source, where: str
) -> None:
    broker.apply(kept)
    assert broker.effective(LAG) == (value, Origin(source, where))
    assert broker.running.config.replica_lag_time_max_ms == int(value)
    assert broker.effective(RETENTION)[1] == Origin(Source.DEFAULT)


def test_a_deleted_setting_has_the_broker_s_own_value_again(broker: Running) -> None:
    broker.apply({ALL_BROKERS: {LAG: "5000"}, 2: {LAG: "6000"}})
    broker.apply({ALL_BROKERS: {LAG: "5000"}})
    assert broker.effective(LAG)[0] == "5000"
    broker.apply({})
    assert broker.effective(LAG) == ("4000", Origin(Source.OPTION, "-c"))


def test_a_subscriber_hears_of_a_change_of_its_settings_once_and_of_no_other(broker: Running) -> None:
    default = BrokerConfig().retention_ms
    broker.apply({2: {LEVEL: "debug"}})
    assert broker.heard == []
    broker.apply({2: {LEVEL: "debug", LAG: "6000", RETENTION: "5"}})
    assert broker.heard == [(6000, 5)]
    broker.apply({ALL_BROKERS: {LAG: "6000", RETENTION: "5"}})
    assert broker.heard == [(6000, 5)], "somebody else says the same"
    broker.apply({})
    assert broker.heard == [(6000, 5), (4000, default)]


def test_settings_unknown_to_this_version_are_logged_and_ignored(broker: Running) -> None:
    with capture_logs() as logs:
        broker.apply({ALL_BROKERS: {LAG: "5000"}, 2: {LAG: "-1", "of.the.future": "1", "listeners": "a://b:1"}})
    assert broker.effective(LAG) == ("5000", Origin(Source.METADATA, "all brokers"))
    warned = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["setting"] for entry in warned] == [LAG, "of.the.future", "listeners"]
    assert "expected a whole number of at least 1" in warned[0]["reason"]
    changed = [entry for entry in logs if entry["event"] == "a setting changed"]
    assert [(entry["setting"], entry["value"], entry["former"], entry["source"]) for entry in changed] == [
        (LAG, 5000, 4000, "metadata all brokers")
    ]


def test_nobody_subscribes_to_what_needs_a_restart(broker: Running) -> None:
    with pytest.raises(AssertionError, match=r"advertised\.address"):
        broker.running.subscribe(("advertised.address",), lambda config: None)


def test_each_setting_is_dynamic_or_needs_a_restart() -> None:
    for name in setting_names():
        if name in DYNAMIC_NAMES:
            check_dynamic(name, None)
        else:
            with pytest.raises(InvalidConfig, match="needs a restart"):
                check_dynamic(name, None)


def test_settings_checked_together_at_the_start_are_not_dynamic() -> None:
    """Of another broker's own configuration the controller knows nothing: a setting that another one bounds could make
    a broker's configuration one that it would not start with."""
    together = {
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "transaction.timeout.ms",
        "transaction.max.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.consumer.heartbeat.interval.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    }
    assert not together & DYNAMIC_NAMES
    names = {field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig)}
    assert together <= names
