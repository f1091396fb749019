"""Markers in a partition: once, all of a call in one batch, and who is marked writes no more."""

from __future__ import annotations

import pytest

from minilog.errors import (
    InvalidArgument,
    InvalidTxnState,
    NoSpace,
    NotLeaderOrFollower,
    ProducerFenced,
)
from minilog_broker.replication.replica_effects import EndMarker
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import (
    abort,
    appends,
    begin,
    commit,
    cut_off,
    error_of,
    send,
    stable,
)


@proves("TX.5")
def test_all_markers_of_a_call_are_one_control_batch() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    begin(cluster, 8)
    before = appends(cluster)
    ticket = cluster.write_markers(1, commit(7), abort(8), abort(9))
    assert ticket not in cluster[1].marked
    cluster.settle()
    assert cluster[1].marked[ticket] is None
    assert appends(cluster) == before + 1
    assert cluster[1].headers()[-1].is_control


@proves("TX.5")
def test_markers_are_answered_when_they_are_below_the_high_watermark() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cut_off(cluster, 2, 3)
    first = cluster.write_markers(1, commit(7))
    cluster.settle()
    again = cluster.write_markers(1, commit(7))
    cluster.settle()
    assert not cluster[1].marked, "the second writes nothing, and waits for the first one's"
    cluster.cut.clear()
    cluster.advance(500)
    assert cluster[1].marked == {first: None, again: None}
    assert cluster[1].ends()[2] == 2


@proves("TX.5")
def test_a_repeated_marker_writes_nothing_and_is_answered_at_once() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster.write_markers(1, commit(7))
    cluster.settle()
    again = cluster.write_markers(1, commit(7))
    assert cluster[1].marked[again] is None
    assert cluster[1].ends()[2] == 2


@proves("TX.5")
def test_a_repeated_marker_on_its_way_writes_nothing() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    tickets = [cluster.write_markers(1, abort(7)), cluster.write_markers(1, abort(7), abort(8))]
    cluster.settle()
    assert [cluster[1].marked[ticket] for ticket in tickets] == [None, None]
    assert cluster[1].ends()[2] == 3, "the second batch is that of 8"


@proves("TX.5")
def test_a_marker_survives_failover_and_is_not_written_again() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster.write_markers(1, commit(7))
    cluster.settle()
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    end = cluster[2].ends()[2]
    again = cluster.write_markers(2, commit(7))
    cluster.settle()
    assert cluster[2].marked[again] is None
    assert cluster[2].ends()[2] == end
    assert error_of(cluster, send(cluster, 7, 1, to=2), at=2) is ProducerFenced


@proves("TX.6")
def test_a_commit_that_does_not_match_what_is_there_is_refused_whole() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    begin(cluster, 8)
    for markers in ([commit(7, 1)], [commit(8), commit(7, -1)], [abort(8), commit(9)]):
        assert isinstance(cluster[1].marked[cluster.write_markers(1, *markers)], InvalidTxnState)
    cluster.settle()
    assert cluster[1].ends()[2] == 2, "nothing was marked"
    nothing_written = cluster.write_markers(1, commit(9, -1))
    cluster.settle()
    assert cluster[1].marked[nothing_written] is None


@proves("TX.6")
def test_a_commit_is_judged_by_log_and_queue() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    send(cluster, 7, 1, rows=3)
    ticket = cluster.write_markers(1, commit(7, 3))
    cluster.settle()
    assert cluster[1].marked[ticket] is None


@proves("TX.6")
def test_who_was_aborted_is_not_committed_nor_the_other_way_round() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster.write_markers(1, abort(7))
    assert isinstance(cluster[1].marked[cluster.write_markers(1, commit(7))], InvalidTxnState), "on its way"
    cluster.settle()
    assert isinstance(cluster[1].marked[cluster.write_markers(1, commit(7))], InvalidTxnState), "in the log"


@proves("TX.4")
def test_a_marker_cancels_who_waits_for_the_coordinator() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    cluster.write_markers(1, abort(7))
    assert error_of(cluster, ticket) is ProducerFenced
    cluster.register(1)
    cluster.settle()
    assert cluster[1].ends()[2] == 1, "only the marker: a late answer of the coordinator writes nothing"


@proves("TX.4")
def test_a_producer_that_ended_or_ends_is_fenced() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster.write_markers(1, commit(7))
    assert error_of(cluster, send(cluster, 7, 1)) is ProducerFenced, "its marker is on its way"
    cluster.settle()
    assert error_of(cluster, send(cluster, 7, 1)) is ProducerFenced
    assert error_of(cluster, cluster.produce(1, batch(producer=(7, 0, 1)))) is ProducerFenced
    assert not cluster[1].registrations


def test_losing_leadership_answers_markers_that_this_broker_leads_no_more() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cut_off(cluster, 2, 3)
    ticket = cluster.write_markers(1, abort(7))
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert isinstance(cluster[1].marked[ticket], NotLeaderOrFollower)
    assert isinstance(cluster[1].marked[cluster.write_markers(1, abort(7))], NotLeaderOrFollower)


def test_markers_that_are_not_committed_in_time_are_to_be_asked_for_again() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cut_off(cluster, 2, 3)
    ticket = cluster.write_markers(1, abort(7))
    cluster.advance(cluster.settings.markers_timeout_ms - 1)
    assert ticket not in cluster[1].marked
    cluster.advance(2)
    error = cluster[1].marked[ticket]
    assert error is not None
    assert not isinstance(error, InvalidTxnState)


@proves("TX.10")
def test_a_full_disk_writes_no_marker_and_the_producer_has_not_ended() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cluster[1].files.fill("/")
    ticket = cluster.write_markers(1, abort(7))
    cluster.settle()
    assert isinstance(cluster[1].marked[ticket], NoSpace)
    cluster[1].files.fill()
    cluster.advance(1_100)
    next_batch = send(cluster, 7, 1)
    cluster.settle()
    assert error_of(cluster, next_batch) is None
    assert stable(cluster) == 0


@pytest.mark.parametrize("markers", [[], [abort(7), abort(7)]])
def test_a_call_without_markers_or_with_two_of_one_producer_is_refused(markers: list[EndMarker]) -> None:
    cluster = ReplicaCluster()
    assert isinstance(cluster[1].marked[cluster.write_markers(1, *markers)], InvalidArgument)
