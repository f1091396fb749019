"""What a leader takes in, when it answers, and that unknown is never failed. docs/spec/replication.md § Producing."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    MinilogError,
    NoSpace,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import decode_header
from minilog_broker.replication.replica_effects import AppendToLog
from tests.rules import proves
from tests.unit.replication.cluster import KEY, NOW_US, ReplicaCluster, batch


def error_of(cluster: ReplicaCluster, broker_id: int, ticket: int) -> type[MinilogError] | None:
    error = cluster[broker_id].answers[ticket].error
    return None if error is None else type(error)


def isolated(cluster: ReplicaCluster, *, isr: tuple[int, ...]) -> None:
    """The ISR becomes `isr`, the others are cut off."""
    for broker_id in set(cluster.brokers) - set(isr):
        cluster.cut.add((broker_id, 1))
        if 1 in cluster[broker_id].links:
            cluster.break_link(cluster[broker_id].links[1])
        cluster.controller.fence(broker_id)
    cluster.settle()


@proves("PR.1")
def test_acks_all_is_answered_when_the_high_watermark_covers_it() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, batch(3))
    while cluster[1].disk:
        cluster[1].work()
    cluster[1].flush()
    assert ticket not in cluster[1].answers
    cluster.settle()
    answer = cluster[1].answers[ticket]
    assert (answer.error, answer.base_offset, answer.leader_epoch) == (None, 0, 0)


@proves("PR.1")
def test_acks_1_is_answered_at_the_leaders_durable_end() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, acks=1)
    cluster[1].work()
    assert ticket not in cluster[1].answers
    cluster[1].flush()
    assert error_of(cluster, 1, ticket) is None


@proves("PR.1")
def test_acks_0_is_answered_only_where_it_is_refused() -> None:
    """Its producer must hear that somebody else leads: else it would go on for metadata.max.age.ms."""
    cluster = ReplicaCluster()
    tickets = [cluster.produce(1, acks=0), cluster.produce(2, acks=0), cluster.produce(1, b"rubbish", acks=0)]
    cluster.settle()
    assert [each for each in tickets if any(each in broker.answers for broker in cluster.brokers.values())] == tickets[
        1:
    ]
    assert cluster[1].ends()[2] == 1


HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("now_us", "error"),
    [(NOW_US, None), (NOW_US - HOUR_US, None), (NOW_US - HOUR_US - 1, InvalidTimestamp), (None, None)],
)
def test_a_time_stamp_of_the_future_is_refused_while_the_clock_is_trusted(
    now_us: int | None, error: type[MinilogError] | None
) -> None:
    """Built in is an hour, as Kafka has it."""
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, now_us=now_us)
    cluster.settle()
    assert error_of(cluster, 1, ticket) is error
    assert cluster[1].ends()[2] == (0 if error else 1)


@proves("PR.2")
def test_below_min_acks_all_is_refused_before_anything_is_written() -> None:
    cluster = ReplicaCluster()
    isolated(cluster, isr=(1,))
    ticket = cluster.produce(1)
    assert error_of(cluster, 1, ticket) is NotEnoughReplicas
    cluster.settle()
    assert cluster[1].ends()[2] == 0


@proves("PR.2")
def test_below_min_acks_1_is_stored_and_not_visible() -> None:
    cluster = ReplicaCluster()
    isolated(cluster, isr=(1,))
    ticket = cluster.produce(1, acks=1)
    cluster.settle()
    assert error_of(cluster, 1, ticket) is None
    assert cluster[1].ends() == (0, 1, 1)


@proves("PR.2")
def test_when_the_isr_falls_below_min_after_the_append_the_outcome_is_unknown() -> None:
    cluster = ReplicaCluster()
    cluster.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        cluster.break_link(cluster[broker_id].links[1])
    ticket = cluster.produce(1)
    cluster.settle()
    cluster.controller.fence(2)
    cluster.controller.fence(3)
    cluster.settle()
    assert error_of(cluster, 1, ticket) is NotEnoughReplicasAfterAppend
    assert issubclass(NotEnoughReplicasAfterAppend, UnknownOutcome)
    assert cluster[1].ends()[2] == 1


@proves("PR.3")
def test_a_pending_produce_times_out_with_an_unknown_outcome() -> None:
    cluster = ReplicaCluster()
    cluster.cut.add((3, 1))
    cluster.break_link(cluster[3].links[1])
    ticket = cluster.produce(1, timeout_ms=100)
    cluster.advance(99)
    assert ticket not in cluster[1].answers
    cluster.advance(2)
    assert error_of(cluster, 1, ticket) is RequestTimedOut
    assert issubclass(RequestTimedOut, UnknownOutcome)


@proves("PR.3")
@pytest.mark.parametrize("acks", [-1, 1])
def test_losing_leadership_answers_what_is_pending_with_an_unknown_outcome(acks: int) -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, acks=acks)
    cluster.controller.move(KEY, 2)
    while cluster[1].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[1])
    assert error_of(cluster, 1, ticket) is UnknownOutcome


@proves("PR.3")
def test_stopping_answers_what_is_pending_with_an_unknown_outcome() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1)
    cluster[1].manager.stop_leading(cluster.now_ms)
    cluster[1].run()
    assert error_of(cluster, 1, ticket) is UnknownOutcome


def test_only_the_leader_takes_records_and_only_in_its_epoch() -> None:
    cluster = ReplicaCluster()
    assert error_of(cluster, 2, cluster.produce(2)) is NotLeaderOrFollower
    cluster.controller.move(KEY, 1)
    cluster.settle()
    assert error_of(cluster, 1, cluster.produce(1, leader_epoch=0)) is FencedLeaderEpoch
    assert error_of(cluster, 1, cluster.produce(1, leader_epoch=2)) is UnknownLeaderEpoch


def test_a_topic_is_known_by_its_id() -> None:
    cluster = ReplicaCluster()
    other = PartitionKey(bytes(16), 0)
    assert error_of(cluster, 1, cluster.produce(1, batch(key=other), key=other)) is UnknownTopicId


@proves("PR.11")
def test_a_batch_for_another_partition_is_refused() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, batch(key=PartitionKey(KEY.topic_id, 1)))
    assert error_of(cluster, 1, ticket) is CorruptMessage


def test_what_is_no_batch_too_large_or_has_unknown_acks_is_refused() -> None:
    cluster = ReplicaCluster()
    assert error_of(cluster, 1, cluster.produce(1, b"x" * 100)) is CorruptMessage
    assert error_of(cluster, 1, cluster.produce(1, b"x" * (9 << 20))) is MessageTooLarge
    assert error_of(cluster, 1, cluster.produce(1, acks=2)) is InvalidRequiredAcks
    assert cluster[1].ends()[2] == 0


def test_the_producers_bytes_are_not_copied() -> None:
    cluster = ReplicaCluster()
    data = batch(size_bytes=1_000)
    cluster.produce(1, data)
    (appended,) = (effect for effect in cluster[1].history if isinstance(effect, AppendToLog))
    placed, rest = appended.batches.buffers
    assert isinstance(rest, memoryview)
    assert rest.obj is data
    assert len(placed) + len(rest) == len(data)


# -- idempotence


def sent(
    cluster: ReplicaCluster, broker_id: int, sequence: int, *, epoch: int = 0, rows: int = 1, acks: int = -1
) -> int:
    return cluster.produce(broker_id, batch(rows, producer=(7, epoch, sequence)), acks=acks)


@proves("PR.5")
def test_a_duplicate_is_answered_with_the_offsets_of_the_first() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    first = sent(cluster, 1, 0)
    cluster.settle()
    again = sent(cluster, 1, 0)
    assert cluster[1].answers[again].base_offset == cluster[1].answers[first].base_offset == 1
    assert cluster[1].ends()[2] == 2


@proves("PR.5")
def test_a_duplicate_of_a_batch_still_in_the_queue_is_found() -> None:
    cluster = ReplicaCluster()
    first, again = sent(cluster, 1, 0), sent(cluster, 1, 0)
    cluster.settle()
    assert cluster[1].answers[first].base_offset == cluster[1].answers[again].base_offset == 0
    assert cluster[1].ends()[2] == 1


@proves("PR.5")
def test_a_duplicate_waits_for_the_same_condition_as_the_original() -> None:
    cluster = ReplicaCluster()
    cluster.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        cluster.break_link(cluster[broker_id].links[1])
    first = sent(cluster, 1, 0)
    cluster.settle()
    again = sent(cluster, 1, 0)
    assert again not in cluster[1].answers
    cluster.cut.clear()
    cluster.advance(500)
    assert error_of(cluster, 1, first) is error_of(cluster, 1, again) is None


@proves("PR.5")
def test_a_duplicate_below_min_is_unknown_not_unwritten() -> None:
    cluster = ReplicaCluster()
    isolated(cluster, isr=(1,))
    sent(cluster, 1, 0, acks=1)
    cluster.settle()
    assert error_of(cluster, 1, sent(cluster, 1, 0)) is NotEnoughReplicasAfterAppend


@proves("PR.4")
def test_a_gap_is_out_of_order_against_state_and_queue() -> None:
    cluster = ReplicaCluster()
    sent(cluster, 1, 0)
    assert error_of(cluster, 1, sent(cluster, 1, 2)) is OutOfOrderSequenceNumber
    sent(cluster, 1, 1)
    cluster.settle()
    assert error_of(cluster, 1, sent(cluster, 1, 3)) is OutOfOrderSequenceNumber
    sent(cluster, 1, 2)
    cluster.settle()
    assert cluster[1].ends()[2] == 3


@proves("PR.4")
def test_at_most_five_are_on_their_way_into_the_log() -> None:
    cluster = ReplicaCluster()
    tickets = [sent(cluster, 1, sequence) for sequence in range(6)]
    assert error_of(cluster, 1, tickets[5]) is OutOfOrderSequenceNumber
    cluster.settle()
    assert all(error_of(cluster, 1, ticket) is None for ticket in tickets[:5])
    assert cluster[1].ends()[2] == 5


@proves("PR.6")
def test_sequences_wrap() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1, batch(2, producer=(7, 0, 2**31 - 2)))
    after = sent(cluster, 1, 0)
    cluster.settle()
    assert error_of(cluster, 1, after) is None
    assert cluster[1].ends()[2] == 3


@proves("PR.6")
def test_a_new_epoch_starts_at_0_and_fences_the_old_one() -> None:
    cluster = ReplicaCluster()
    sent(cluster, 1, 0)
    assert error_of(cluster, 1, sent(cluster, 1, 3, epoch=1)) is OutOfOrderSequenceNumber
    sent(cluster, 1, 0, epoch=1)
    cluster.settle()
    assert error_of(cluster, 1, sent(cluster, 1, 1)) is InvalidProducerEpoch


def test_older_than_the_last_five_is_a_duplicate_whose_place_is_not_known() -> None:
    cluster = ReplicaCluster()
    for sequence in range(7):
        sent(cluster, 1, sequence)
        cluster.settle()
    assert error_of(cluster, 1, sent(cluster, 1, 0)) is DuplicateSequenceNumber


@proves("PR.6")
def test_an_unknown_producer_is_accepted_at_any_sequence() -> None:
    cluster = ReplicaCluster()
    ticket = sent(cluster, 1, 40)
    cluster.settle()
    assert error_of(cluster, 1, ticket) is None


@proves("PR.9")
def test_the_state_survives_failover() -> None:
    cluster = ReplicaCluster()
    first = sent(cluster, 1, 0)
    cluster.settle()
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    again = sent(cluster, 2, 0)
    gap = sent(cluster, 2, 2)
    cluster.settle()
    assert cluster[2].answers[again].base_offset == cluster[1].answers[first].base_offset
    assert error_of(cluster, 2, gap) is OutOfOrderSequenceNumber


def test_the_state_survives_a_restart_and_its_own_snapshot() -> None:
    cluster = ReplicaCluster(brokers=1)
    first = sent(cluster, 1, 0)
    cluster.settle()
    cluster[1].manager.stop_leading(cluster.now_ms)
    cluster[1].run()
    cluster[1].work()
    cluster[1].crash()
    cluster[1].restart()
    cluster.settle()
    again = sent(cluster, 1, 0)
    cluster.settle()
    assert cluster[1].answers[again].base_offset == cluster[1].answers[first].base_offset == 0


@proves("PR.9")
def test_the_state_is_truncated_with_the_log() -> None:
    cluster = ReplicaCluster()
    cluster.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        cluster.break_link(cluster[broker_id].links[1])
    sent(cluster, 1, 0, acks=1)
    cluster.settle()
    cluster.controller.move(KEY, 2)
    cluster.produce(2)
    cluster.settle()
    cluster.produce(2, acks=1)
    cluster.settle()
    cluster.controller.move(KEY, 1)
    cluster.settle()
    leader = cluster[1].leader()
    assert leader is not None
    assert leader.producers.entry(7) is None


@proves("ISR.15", "PR.4")
def test_a_failed_append_drops_the_batch_and_all_behind_it() -> None:
    cluster = ReplicaCluster()
    cluster[1].files.fill("/")
    tickets = [sent(cluster, 1, 0), sent(cluster, 1, 1)]
    cluster.settle()
    assert [error_of(cluster, 1, ticket) for ticket in tickets] == [NoSpace, NoSpace]
    assert error_of(cluster, 1, sent(cluster, 1, 2)) is NoSpace, "refused for a while, nothing is written"
    cluster[1].files.fill()
    cluster.advance(1_100)
    again = sent(cluster, 1, 0)
    cluster.settle()
    assert cluster[1].answers[again].base_offset == 0


@proves("ISR.15")
def test_reading_goes_on_when_the_disk_is_full() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster[1].files.fill("/")
    cluster.produce(1)
    cluster.settle()
    session_id = cluster.consume(1, 0)
    cluster.settle()
    assert cluster.pushed(1, session_id)[0][1]


@proves("ISR.15")
def test_a_failed_sync_takes_the_replica_offline_and_the_outcome_is_unknown() -> None:
    cluster = ReplicaCluster()
    cluster[1].files.fail("fdatasync", errno.EIO)
    ticket = cluster.produce(1)
    cluster.settle()
    assert error_of(cluster, 1, ticket) is UnknownOutcome
    assert KEY in cluster[1].offline
    assert cluster[1].leader() is None


def test_a_batch_that_was_validated_already_is_not_validated_again_and_its_error_is_the_answer() -> None:
    cluster = ReplicaCluster()
    data = batch()
    manager, now_ms = cluster[1].manager, cluster.now_ms
    manager.produce("good", KEY, 0, -1, 100.0, data, now_ms, None, decode_header(data))
    manager.produce("bad", KEY, 0, -1, 100.0, data, now_ms, None, CorruptMessage("as was found before"))
    cluster.settle()
    assert cluster[1].answers["good"].error is None
    assert str(cluster[1].answers["bad"].error) == "as was found before"
    assert cluster[1].ends() == (1, 1, 1)
