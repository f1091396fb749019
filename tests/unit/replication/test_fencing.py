"""A leader that the controller does not hear any more: it goes on, and stops where another may be elected uncleanly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import LeaderNotAvailable, UnknownOutcome, error_from_wire
from minilog.v1 import metadata_pb2
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster

pytestmark = proves("ISR.13")

SESSION_MS = 3_000.0


def heard(cluster: ReplicaCluster, broker_id: int, sent_ms: float | None = None) -> None:
    """A heartbeat was answered."""
    sent_ms = cluster.now_ms if sent_ms is None else sent_ms
    cluster[broker_id].manager.session_lasts_until(sent_ms, sent_ms + SESSION_MS, cluster.now_ms)
    cluster[broker_id].run()


def led(*, unclean: bool = True) -> ReplicaCluster:
    """Broker 1 leads, and was heard at the beginning of its time."""
    cluster = ReplicaCluster()
    cluster.controller.alter(replace(cluster.config, unclean_leader_election=unclean))
    for broker_id in cluster.brokers:
        heard(cluster, broker_id)
    cluster.settle()
    return cluster


def latest(cluster: ReplicaCluster, broker_id: int = 1) -> metadata_pb2.ListOffsetsResult:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    return cluster[broker_id].manager.list_offsets(entry, cluster.now_ms)


def written(cluster: ReplicaCluster, acks: int = -1) -> Exception | None:
    ticket = cluster.produce(1, acks=acks)
    cluster.settle()
    return cluster[1].answers[ticket].error


def test_it_serves_while_heartbeats_are_answered() -> None:
    cluster = led()
    for _ in range(5):
        cluster.advance(SESSION_MS - 1)
        assert written(cluster) is None
        heard(cluster, 1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_it_stops_a_session_after_the_sending_of_the_last_heartbeat_that_was_answered(acks: int) -> None:
    cluster = led()
    sent_ms = cluster.now_ms
    cluster.advance(1_000)
    heard(cluster, 1, sent_ms=sent_ms + 500)  # the answer took its time
    cluster.advance(SESSION_MS - 501)
    assert written(cluster, acks) is None
    cluster.advance(1)
    refused = written(cluster, acks)
    assert isinstance(refused, LeaderNotAvailable)
    assert refused.retriable
    assert "has not heard the controller for a session" in str(refused)
    assert "ask another broker for the leader" in str(refused)
    assert isinstance(error_from_wire(latest(cluster).error), LeaderNotAvailable)


def test_a_process_that_stood_still_knows_when_it_wakes_before_its_timer_has_fired() -> None:
    cluster = led()
    cluster.now_ms += SESSION_MS
    refused = cluster.produce(1)
    assert isinstance(cluster[1].answers[refused].error, LeaderNotAvailable)


def test_what_waits_is_unknown_and_nothing_is_acknowledged_or_committed_behind_the_end() -> None:
    cluster = led()
    pending, at_leader = cluster.produce(1, timeout_ms=60_000), cluster.produce(1, acks=1, timeout_ms=60_000)
    while cluster[1].disk:
        cluster[1].work()
    cluster.now_ms += SESSION_MS
    cluster.tick()
    for ticket in (pending, at_leader):
        assert isinstance(cluster[1].answers[ticket].error, UnknownOutcome)
    cluster.settle()
    assert cluster[1].ends()[0] == 0


def test_deleting_records_is_refused() -> None:
    cluster = led()
    assert written(cluster) is None
    cluster.advance(SESSION_MS)
    ticket = cluster.delete_records(1, 1)
    assert isinstance(cluster[1].deleted[ticket].error, LeaderNotAvailable)


def test_what_was_committed_is_read_on() -> None:
    cluster = led()
    assert written(cluster) is None
    cluster.advance(SESSION_MS)
    session = cluster.consume(1, 0)
    cluster.settle()
    assert [run.high_watermark for run, batches in cluster.pushed(1, session) if batches] == [1]


def test_heard_again_it_serves_again_and_what_was_appended_counts() -> None:
    cluster = led()
    cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    cluster.now_ms += SESSION_MS
    cluster.tick()
    cluster.settle()
    assert cluster[1].ends()[0] == 0
    heard(cluster, 1)
    cluster.settle()
    assert cluster[1].ends()[0] == 1
    assert written(cluster) is None
    assert latest(cluster).high_watermark == 2


def test_an_answer_that_came_late_does_not_shorten_a_session() -> None:
    cluster = led()
    heard(cluster, 1, sent_ms=cluster.now_ms - 1_000)
    cluster.advance(SESSION_MS - 1)
    assert written(cluster) is None


def test_without_unclean_election_it_goes_on() -> None:
    cluster = led(unclean=False)
    cluster.advance(10 * SESSION_MS)
    assert written(cluster) is None
    assert latest(cluster).high_watermark == 1


def test_before_the_first_answer_it_serves_nothing_that_could_be_elected_uncleanly() -> None:
    cluster = ReplicaCluster()
    cluster.controller.alter(replace(cluster.config, unclean_leader_election=True))
    cluster.settle()
    assert isinstance(written(cluster), LeaderNotAvailable)
