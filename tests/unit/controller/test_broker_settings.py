"""Settings of running brokers at the controller: their check as a whole, their replay, and their description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from minilog.errors import InvalidConfig, LevelNotReached, MinilogError, NotController, ResourceNotFound
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.cluster_records import broker_setting_record
from minilog_broker.controller.image import ALL_BROKERS, MetadataImage
from minilog_broker.controller.record_kinds import apply_record
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import OPERATIONS_LEVEL, SECURITY_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import DEFAULTS, ControllerCluster, error_of

pytestmark = proves("MD.27")

LAG, RETENTION = "replica.lag.time.max.ms", "retention.ms"


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(OPERATIONS_LEVEL)
    return cluster


def alter(
    cluster: ControllerCluster, broker_id: int | None, set_: Mapping[str, str], unset: Iterable[str] = ()
) -> admin_pb2.AlterBrokerSettingsResponse:
    ticket = cluster.ticket()
    request = admin_pb2.AlterBrokerSettingsRequest(broker_id=broker_id, set_configs=set_, unset_configs=unset)
    cluster.controller.alter_broker_settings(ticket, request)
    return cluster.answer(ticket, admin_pb2.AlterBrokerSettingsResponse)


def kept(cluster: ControllerCluster) -> list[tuple[int | None, str, str]]:
    ticket = cluster.ticket()
    cluster.controller.describe_broker_settings(ticket, admin_pb2.DescribeBrokerSettingsRequest())
    response = cluster.answer(ticket, admin_pb2.DescribeBrokerSettingsResponse)
    return [
        (setting.broker_id if setting.HasField("broker_id") else None, setting.name, setting.value)
        for setting in response.settings
    ]


def refused(cluster: ControllerCluster, *arguments: object) -> MinilogError:
    """The error of a refused request, of which nothing is in the log."""
    before = len(cluster.records)
    error = error_of(alter(cluster, *arguments))  # type: ignore[arg-type]
    assert error is not None
    assert len(cluster.records) == before
    return error


def test_settings_are_kept_for_all_or_for_one_and_shown_with_those_of_all_first(cluster: ControllerCluster) -> None:
    assert error_of(alter(cluster, 2, {LAG: "5000", RETENTION: "-1"})) is None
    assert error_of(alter(cluster, None, {LAG: "20000"})) is None
    assert kept(cluster) == [(None, LAG, "20000"), (2, LAG, "5000"), (2, RETENTION, "-1")]
    assert cluster.image.broker_settings == {ALL_BROKERS: {LAG: "20000"}, 2: {LAG: "5000", RETENTION: "-1"}}
    assert cluster.image.take_changes().broker_settings


def test_a_request_is_one_batch_and_equal_settings_are_not_written(cluster: ControllerCluster) -> None:
    batches, records = len(cluster.batches), len(cluster.records)
    alter(cluster, None, {LAG: "20000", RETENTION: "1"})
    assert (len(cluster.batches), len(cluster.records)) == (batches + 1, records + 2)
    response = alter(cluster, None, {LAG: "20000"})
    assert (len(cluster.batches), len(cluster.records)) == (batches + 1, records + 2)
    assert [(setting.name, setting.value) for setting in response.former] == [(LAG, "20000")]


def test_deleted_settings_are_gone_and_absent_ones_are_no_error(cluster: ControllerCluster) -> None:
    alter(cluster, 3, {LAG: "20000"})
    response = alter(cluster, 3, {}, [LAG, RETENTION])
    assert [(setting.name, setting.value) for setting in response.former] == [(LAG, "20000")]
    assert kept(cluster) == []
    assert cluster.image.broker_settings == {}


def test_a_wrong_setting_refuses_the_whole_request(cluster: ControllerCluster) -> None:
    error = refused(cluster, None, {LAG: "20000", RETENTION: "-2"})
    assert isinstance(error, InvalidConfig)
    assert str(error) == "retention.ms=-2 (set while running) is not valid: expected a whole number of at least -1"


@pytest.mark.parametrize(
    ("broker_id", "set_", "unset", "kind", "words"),
    [
        (None, {"replica.lag.time.max.m": "1"}, (), InvalidConfig, "did you mean replica.lag.time.max.ms?"),
        (None, {}, ("nonsense",), InvalidConfig, "unknown setting nonsense"),
        (None, {"advertised.address": "a:1"}, (), InvalidConfig, "advertised.address needs a restart"),
        (None, {}, ("session.keepalive.ms",), InvalidConfig, "session.keepalive.ms needs a restart"),
        (None, {"log.level": "loud"}, (), InvalidConfig, "expected debug or info or warning or error"),
        (None, {"retention.ms": "9" * 10_000}, (), InvalidConfig, "is not valid"),
        (None, {}, (), InvalidConfig, "no setting is named"),
        (None, {LAG: "1"}, (LAG,), InvalidConfig, "set and deleted at once"),
        (9, {LAG: "1"}, (), ResourceNotFound, "broker 9 has never registered"),
        (-1, {LAG: "1"}, (), ResourceNotFound, "the brokers are 1, 2, 3"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(
    cluster: ControllerCluster,
    broker_id: int | None,
    set_: dict[str, str],
    unset: tuple[str, ...],
    kind: type[MinilogError],
    words: str,
) -> None:
    error = refused(cluster, broker_id, set_, unset)
    assert type(error) is kind
    assert words in str(error)
    assert len(str(error)) < 600


def test_below_its_level_nothing_is_written(cluster: ControllerCluster) -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.upgrade(SECURITY_LEVEL)
    error = refused(cluster, None, {LAG: "20000"})
    assert isinstance(error, LevelNotReached)
    assert "level 5" in str(error)


def test_settings_of_another_version_can_be_deleted(cluster: ControllerCluster) -> None:
    cluster.append_by_another(broker_setting_record(2, "of.the.future", "1"))
    assert kept(cluster) == [(2, "of.the.future", "1")]
    assert error_of(alter(cluster, 2, {}, ["of.the.future"])) is None
    assert kept(cluster) == []


def test_settings_survive_a_failover_and_a_snapshot(cluster: ControllerCluster) -> None:
    alter(cluster, None, {LAG: "20000"})
    alter(cluster, 1, {RETENTION: "1"})
    cluster.fail_over()
    assert kept(cluster) == [(None, LAG, "20000"), (1, RETENTION, "1")]
    snapshot_id = SnapshotId(cluster.image.end_offset, 1)
    loaded = decode_snapshot(encode_snapshot(cluster.image, 1), snapshot_id)
    assert loaded.broker_settings == cluster.image.broker_settings
    fresh = MetadataImage()
    fresh.become(loaded)
    assert fresh.take_changes().broker_settings


def test_a_snapshot_that_has_lost_a_setting_is_a_change_too() -> None:
    image, empty = MetadataImage(), MetadataImage()
    apply_record(image, 0, broker_setting_record(ALL_BROKERS, LAG, "1"))
    image.take_changes()
    image.become(empty)
    assert image.take_changes().broker_settings


def test_a_copy_of_an_image_is_its_own() -> None:
    image = MetadataImage()
    apply_record(image, 0, broker_setting_record(1, LAG, "1"))
    twin = image.copy()
    apply_record(twin, 1, broker_setting_record(1, LAG, "2"))
    assert image.broker_settings == {1: {LAG: "1"}}


def test_a_broker_that_is_not_the_controller_decides_nothing(cluster: ControllerCluster) -> None:
    cluster.controller.deactivate(2)
    assert isinstance(refused(cluster, None, {LAG: "20000"}), NotController)


def test_a_record_without_a_value_for_what_is_not_there_changes_nothing() -> None:
    image = MetadataImage()
    apply_record(image, 0, broker_setting_record(1, LAG, None))
    assert image.broker_settings == {}
    assert broker_setting_record(ALL_BROKERS, LAG, "1").broker_setting == records_pb2.BrokerSettingRecord(
        name=LAG, value="1"
    )


# -- the controller itself is reconfigured


def test_topics_are_made_with_what_counts_then_and_keep_what_they_have(cluster: ControllerCluster) -> None:
    before = cluster.created("before").topic_id
    cluster.reconfigure(num_partitions=3, default_replication_factor=2, defaults=replace(DEFAULTS, retention_ms=7))
    assert error_of(cluster.create("later", partitions=None)) is None
    later = cluster.image.topic("later")
    assert later is not None
    assert later.partition_count == 3
    assert cluster.image.effective_config(later.topic_id).retention_ms == 7
    assert len(cluster.image.partitions_of(later.topic_id)[0].replicas) == 2
    assert cluster.image.effective_config(before).retention_ms == DEFAULTS.retention_ms
    cluster.fail_over()
    assert error_of(cluster.create("last", partitions=None)) is None
    last = cluster.image.topic("last")
    assert last is not None
    assert last.partition_count == 3


def test_another_interval_of_rebalancing_counts_from_now_on(cluster: ControllerCluster) -> None:
    cluster.reconfigure(leader_imbalance_check_interval_ms=float("inf"))
    silent_until = cluster.controller.next_tick_ms
    cluster.reconfigure(leader_imbalance_check_interval_ms=10.0)
    assert cluster.controller.next_tick_ms == cluster.now_ms + 10.0 < silent_until
