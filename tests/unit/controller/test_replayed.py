"""How far brokers have replayed the metadata log: what the controller tells of it, and who is late."""

from __future__ import annotations

from minilog_broker.controller.replayed import Replayed
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster

pytestmark = proves("MD.11")

LATE_MS = 3_000.0


def test_the_replayed_offset_is_that_of_the_heartbeats() -> None:
    replayed = Replayed()
    assert replayed.offsets() == {}
    replayed.report(1, 10, 12, 0.0)
    replayed.report(2, 12, 12, 0.0)
    replayed.report(1, 11, 12, 300.0)
    assert replayed.offsets() == {1: 11, 2: 12}


def test_a_broker_is_late_that_does_not_reach_what_there_was() -> None:
    replayed = Replayed()
    for now_ms in range(0, 9_000, 300):
        replayed.report(1, now_ms, now_ms + 300, now_ms)  # always one behind, and never long behind the same
        replayed.report(2, 0, now_ms + 300, now_ms)  # it says something, and knows nothing
    assert list(replayed.late(LATE_MS, 9_000.0)) == [2]
    replayed.report(2, 9_000, 9_000, 9_000.0)
    assert list(replayed.late(LATE_MS, 9_001.0)) == []


def test_a_broker_is_late_that_says_nothing() -> None:
    replayed = Replayed()
    replayed.report(1, 10, 10, 0.0)
    assert list(replayed.late(LATE_MS, LATE_MS)) == []
    assert list(replayed.late(LATE_MS, LATE_MS + 1)) == [1]


def test_a_controller_tells_it_of_its_own_term_alone() -> None:
    cluster = ControllerCluster()
    cluster.start_all()
    cluster.heartbeat(2, metadata_offset=3)
    reported = cluster.controller.reported(cluster.now_ms)
    assert (reported.replayed[2], reported.late) == (3, frozenset())
    assert 2 in cluster.controller.reported(cluster.now_ms + 60_000.0).late
    cluster.controller.deactivate()
    assert cluster.controller.reported(cluster.now_ms).replayed == {}
