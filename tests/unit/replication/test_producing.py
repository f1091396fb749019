"""What a leader takes in, when it answers, and that unknown is never failed. docs/spec/replication.md § Producing."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CorruptMessage,
    InvalidRequiredAcks,
    InvalidTimestamp,
    MessageTooLarge,
    MinilogError,
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


def test_a_topic_is_known_by_its_id() -> None:
    cluster = ReplicaCluster()
    other = PartitionKey(bytes(16), 0)
    assert error_of(cluster, 1, cluster.produce(1, batch(key=other), key=other)) is UnknownTopicId


@proves("PR.11")
def test_a_batch_for_another_partition_is_refused() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, batch(key=PartitionKey(KEY.topic_id, 1)))
    assert error_of(cluster, 1, ticket) is CorruptMessage


def test_entries_that_are_no_batch_too_large_or_of_unknown_acks_are_refused() -> None:
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
