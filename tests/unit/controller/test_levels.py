"""The level of a cluster: who may register, when it may go up, and that it stays (docs/spec/levels.md)."""

from __future__ import annotations

import pytest

from minilog.errors import LevelNotReached, UnsupportedVersion
from minilog.v1 import admin_pb2
from minilog.versions import VersionRange
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import records_of
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import QUEUES_LEVEL, SECURITY_LEVEL, ClusterLevel
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.22")

BOTH, OLD, NEW = VersionRange(1, 2), VersionRange(1, 1), VersionRange(2, 2)


def test_records_of_a_level_are_written_from_there_on() -> None:
    level = ClusterLevel(BOTH)
    assert [level.allows(each) for each in (1, 2)] == [True, False]
    level.reach(2)
    assert [level.allows(each) for each in (1, 2, 3)] == [True, True, False]


def upgrade(cluster: ControllerCluster, level: int | None = None) -> admin_pb2.UpgradeLevelResponse:
    ticket = cluster.ticket()
    cluster.controller.upgrade_level(ticket, admin_pb2.UpgradeLevelRequest(level=level))
    return cluster.answer(ticket, admin_pb2.UpgradeLevelResponse)


def of_two_versions() -> ControllerCluster:
    """Brokers 1 and 2 of a version that knows level 2, broker 3 of one that does not."""
    cluster = ControllerCluster(levels=BOTH)
    for broker_id, levels in ((1, BOTH), (2, BOTH), (3, OLD)):
        cluster.register(broker_id, levels=levels)
    return cluster


def test_the_level_goes_up_when_all_support_it_and_not_before() -> None:
    cluster = of_two_versions()
    before = len(cluster.records)
    for level in (None, 2):
        refusal = error_of(upgrade(cluster, level))
        assert isinstance(refusal, UnsupportedVersion)
        assert "level 2 is not supported by broker 3 (version unknown supports 1)" in str(refusal)
    assert (len(cluster.records), cluster.image.level) == (before, 1)
    cluster.register(3, levels=BOTH)
    answer = upgrade(cluster)
    assert (error_of(answer), answer.former_level, answer.level, cluster.image.level) == (None, 1, 2, 2)


def test_a_broker_that_is_fenced_counts() -> None:
    cluster = of_two_versions()
    cluster.fence(3)
    assert "broker 3" in str(error_of(upgrade(cluster)))


def test_all_that_stand_in_the_way_are_named() -> None:
    cluster = of_two_versions()
    cluster.register(2, levels=OLD)
    assert "brokers 2 (version unknown supports 1), 3 (version" in str(error_of(upgrade(cluster)))


def test_a_voter_that_never_registered_is_waited_for() -> None:
    cluster = ControllerCluster(voters=(1, 2, 3), levels=BOTH)
    cluster.register(1, levels=BOTH)
    assert "voters [2, 3] have never registered" in str(error_of(upgrade(cluster)))


def test_the_controller_itself_supports_what_it_writes() -> None:
    cluster = ControllerCluster(levels=OLD)
    cluster.register(1, levels=BOTH)
    refusal = error_of(upgrade(cluster))
    assert "the controller supports level 1, not 2" in str(refusal)
    assert cluster.image.level == 1


def test_a_level_that_nobody_supports_is_refused() -> None:
    cluster = ControllerCluster(levels=BOTH)
    cluster.register(1, levels=BOTH)
    assert "level 3 is not supported by broker 1" in str(error_of(upgrade(cluster, 3)))


def test_there_is_no_way_back_and_twice_is_once() -> None:
    cluster = ControllerCluster(levels=BOTH)
    cluster.register(1, levels=BOTH)
    upgrade(cluster)
    before = len(cluster.records)
    assert "cannot go back to 1" in str(error_of(upgrade(cluster, 1)))
    again = upgrade(cluster, 2)
    assert (error_of(again), again.former_level, again.level) == (None, 2, 2)
    assert len(cluster.records) == before


@pytest.mark.parametrize(
    ("at", "levels", "what_to_do"),
    [(2, OLD, "start this broker with a version that supports level 2"), (1, NEW, "raise the level")],
)
def test_a_broker_that_cannot_read_the_level_is_not_registered(at: int, levels: VersionRange, what_to_do: str) -> None:
    cluster = ControllerCluster(levels=BOTH)
    cluster.register(1, levels=BOTH)
    upgrade(cluster, at)
    before = len(cluster.records)
    response = cluster.register(2, levels=levels)
    refusal = error_of(response)
    assert isinstance(refusal, UnsupportedVersion)
    assert not refusal.retriable
    for part in ("broker 2", f"level {at}", f"supports {levels}", what_to_do):
        assert part.lower() in str(refusal).lower()
    assert (response.broker_epoch, len(cluster.records)) == (-1, before)


def test_a_snapshot_begins_with_the_level_and_keeps_what_brokers_support() -> None:
    cluster = of_two_versions()
    cluster.register(3, levels=BOTH)
    upgrade(cluster)
    assert next(records_of(cluster.image)).cluster_level.level == 2
    loaded = decode_snapshot(encode_snapshot(cluster.image, 1), SnapshotId(cluster.image.end_offset, 1))
    assert loaded == cluster.image
    assert (loaded.level, loaded.brokers[3].levels) == (2, BOTH)
    other = MetadataImage()
    other.become(loaded)
    assert other.level == 2


@proves("MD.23")
def test_a_host_label_waits_for_its_level() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    before = len(cluster.records)
    refusal = error_of(cluster.register(3, host_label="m3"))
    assert isinstance(refusal, LevelNotReached)
    assert "broker 3 has a host label, m3" in str(refusal)
    assert "run `minilog cluster upgrade`" in str(refusal)
    assert len(cluster.records) == before
    cluster.upgrade(SECURITY_LEVEL)
    cluster.restart(3, host_label="m3")
    assert cluster.image.brokers[3].host_label == "m3"


def test_the_topic_of_queues_comes_with_its_level() -> None:
    """An earlier broker does not know its coordinators, and would end at the first of them that it is to lead."""
    levels = VersionRange(1, QUEUES_LEVEL)
    cluster = ControllerCluster(levels=levels)
    for broker_id in (1, 2, 3):
        cluster.register(broker_id, levels=levels)
        cluster.heartbeat(broker_id)
    for level in range(2, QUEUES_LEVEL):
        assert error_of(upgrade(cluster, level)) is None
        assert isinstance(error_of(cluster.create_internal("__queues")), LevelNotReached)
    assert error_of(upgrade(cluster, QUEUES_LEVEL)) is None
    assert error_of(cluster.create_internal("__queues")) is None
