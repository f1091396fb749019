"""What is not in memory is read by others, while sessions go on. docs/spec/replication.md § Reading the log."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2, data_pb2
from minilog_broker.replication.replica_effects import ReadRun
from tests.rules import proves
from tests.unit.replication.cluster import KEY, TOPIC_ID, ReplicaCluster, batch, quick_settings

OTHER = PartitionKey(TOPIC_ID, 1)
BATCHES = 4


def cold(*, brokers: int = 1, batches: int = BATCHES, size_bytes: int = 10) -> ReplicaCluster:
    """Some batches of one record each, committed; nothing of them is in memory at broker 1."""
    cluster = ReplicaCluster(brokers, min_in_sync=1, settings=quick_settings())
    for _ in range(batches):
        cluster.produce(1, batch(size_bytes=size_bytes))
        cluster.settle()
    cluster.advance(100)
    cluster[1].files.get_cold(1.0)
    return cluster


def pull(cluster: ReplicaCluster, session_id: int) -> None:
    """What the session has to say by now."""
    while session_id in cluster[1].consumers_ready:
        cluster.pull_consumer(cluster[1], session_id)


def offsets(cluster: ReplicaCluster, session_id: int) -> list[int]:
    return [
        header.base_offset for _, batches in cluster.pushed(1, session_id) for _, header in iterate_headers(batches)
    ]


def asked(cluster: ReplicaCluster) -> list[ReadRun]:
    return list(cluster[1].reads)


def read_all(cluster: ReplicaCluster) -> None:
    while cluster[1].reads:
        cluster[1].read()


def tell_all(cluster: ReplicaCluster) -> None:
    while cluster[1].found:
        cluster[1].tell_of_read()


def position(request: data_pb2.FetchRequest, key: PartitionKey, offset: int = 0, number: int = 1) -> None:
    wanted = request.positions.add(fetch_offset=offset, position_number=number, leader_epoch=-1)
    wanted.partition_id.topic_id, wanted.partition_id.partition = key


def test_a_run_that_has_to_be_waited_for_is_asked_for_and_sent_when_it_is_read() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    assert offsets(cluster, session_id) == []
    (run,) = asked(cluster)
    assert (run.key, run.position_number, run.offset, run.end_offset) == (KEY, 1, 0, BATCHES)
    cluster.settle()
    assert offsets(cluster, session_id) == [0, 1, 2, 3]


@proves("RD.7")
def test_while_a_read_is_under_way_its_session_gives_signs_of_life() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    before = len(cluster[1].consumers[session_id])
    for _ in range(3):
        cluster.advance(cluster.settings.session_keepalive_ms, settle=False)
        pull(cluster, session_id)
    assert asked(cluster), "it is read still"
    assert len(cluster[1].consumers[session_id]) >= before + 3


@proves("RD.3")
def test_runs_in_memory_are_sent_while_another_partition_is_read_from_the_disk() -> None:
    cluster = cold()
    cluster.controller.create(OTHER, (1,), 1)
    cluster.settle()
    cluster.produce(1, batch(key=OTHER), key=OTHER)
    cluster.settle()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    assert asked(cluster)
    cluster[1].files.get_cold(0.0)
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    position(request, OTHER)
    cluster[1].manager.fetch_request(session_id, request, cluster.now_ms)
    cluster[1].run()
    pull(cluster, session_id)
    assert [run.partition_id.partition for run, batches in cluster.pushed(1, session_id) if batches] == [1]


@proves("RD.2")
def test_a_session_has_one_read_at_a_time_and_its_partitions_take_turns() -> None:
    cluster = cold()
    cluster.controller.create(OTHER, (1,), 1)
    cluster.settle()
    cluster.produce(1, batch(key=OTHER), key=OTHER)
    cluster.settle()
    session_id = cluster.session_id()
    cluster[1].consumers[session_id] = []
    request = data_pb2.FetchRequest(credit_bytes=1 << 30)
    position(request, KEY)
    position(request, OTHER)
    cluster[1].manager.open_consumer_session(session_id, request, cluster.now_ms)
    cluster[1].manager.fetch_request(session_id, request, cluster.now_ms)
    cluster[1].run()
    pull(cluster, session_id)
    assert [run.key for run in asked(cluster)] == [KEY]
    read_all(cluster)
    tell_all(cluster)
    assert asked(cluster) == [], "the next one is asked for when this one goes"
    pull(cluster, session_id)
    assert [run.key for run in asked(cluster)] == [OTHER]


@proves("RD.4")
def test_runs_for_an_abandoned_position_are_sent_to_nobody() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    cluster[1].read()
    cluster.fetch(1, session_id, 2, position_number=2)
    cluster[1].tell_of_read()
    cluster.settle()
    runs = [(run.position_number, run.first_offset) for run, batches in cluster.pushed(1, session_id) if batches]
    assert runs == [(2, 2)]
    assert offsets(cluster, session_id) == [2, 3]


@proves("RD.2")
def test_a_reader_that_gives_up_each_position_has_one_read_all_the_same() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    for number in range(2, 20):
        cluster.fetch(1, session_id, number % BATCHES, position_number=number)
        pull(cluster, session_id)
        assert len(asked(cluster)) == 1
    assert not cluster[1].manager.waits_for(asked(cluster)[0]), "whose thread need not begin"
    cluster.settle()
    assert offsets(cluster, session_id) == [3]


def test_a_read_of_a_session_that_is_closed_is_of_no_use() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    cluster[1].manager.close_session(session_id, cluster.now_ms)
    assert not cluster[1].manager.waits_for(asked(cluster)[0])
    cluster.settle()
    assert offsets(cluster, session_id) == []


@proves("RD.5")
def test_records_that_were_deleted_while_they_were_read_are_not_sent() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    cluster[1].read()
    cluster.delete_records(1, 2)
    while cluster[1].disk:
        cluster[1].work()
    cluster[1].tell_of_read()
    cluster.advance(20)
    assert offsets(cluster, session_id) == []
    assert cluster.runs(1, session_id)[-1].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


@proves("RD.5")
def test_runs_read_before_a_follower_cut_its_log_are_not_sent() -> None:
    """A position may be judged anew, by the same leader, when the log has gone another way: the run is of no use."""
    cluster = cold(brokers=3)
    follower = cluster[2]
    follower.files.get_cold(1.0)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    while session_id in follower.consumers_ready:
        cluster.pull_consumer(follower, session_id)
    (run,) = follower.reads
    log = follower.manager._replicas[KEY].log
    assert log is not None
    follower.read()
    log.begin_truncation(BATCHES)
    log.truncated()
    follower.tell_of_read()
    while session_id in follower.consumers_ready:
        cluster.pull_consumer(follower, session_id)
    assert not any(batches for _, batches in cluster.pushed(2, session_id))
    (again,) = follower.reads
    assert again.cuts == run.cuts + 2
    cluster.settle()
    assert [run.first_offset for run, batches in cluster.pushed(2, session_id) if batches] == [0]


def test_an_error_of_the_disk_takes_the_replica_offline_and_the_reader_is_told() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    run = cluster[1].reads.popleft()
    cluster[1].manager.read_failed(run, OSError(errno.EIO, "the disk failed"), cluster.now_ms)
    cluster[1].run()
    cluster.advance(20)
    assert KEY in cluster[1].offline
    assert cluster.runs(1, session_id)[-1].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert offsets(cluster, session_id) == []


@proves("RD.4")
@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk failed"), CorruptMessage("no batch begins there")])
def test_an_error_of_a_read_that_nobody_waits_for_is_nobodys(error: Exception) -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    run = cluster[1].reads.popleft()
    cluster.fetch(1, session_id, 1, position_number=2)
    cluster[1].manager.read_failed(run, error, cluster.now_ms)
    cluster[1].run()
    cluster.settle()
    assert not cluster[1].offline
    assert offsets(cluster, session_id) == [1, 2, 3]


@proves("RD.5")
def test_runs_cut_during_their_read_are_asked_for_again() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    run = cluster[1].reads.popleft()
    log = cluster[1].manager._replicas[KEY].log
    assert log is not None
    log.begin_truncation(BATCHES)
    log.truncated()
    cluster[1].manager.read_failed(run, CorruptMessage("the file ends before"), cluster.now_ms)
    cluster[1].run()
    cluster.settle()
    assert not cluster[1].offline
    assert offsets(cluster, session_id) == [0, 1, 2, 3]


@proves("RD.3")
def test_an_awaited_read_has_half_of_the_credit_and_the_rest_goes_on() -> None:
    cluster = cold(size_bytes=1_000)
    credit = 2 * len(batch(size_bytes=1_000))
    session_id = cluster.consume(1, 0, credit=credit)
    pull(cluster, session_id)
    (run,) = asked(cluster)
    assert run.max_bytes == credit // 2
    cluster.settle()
    assert offsets(cluster, session_id) == [0, 1], "credit that came back would have let go more"


def test_without_credit_nothing_is_read() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0, credit=0)
    pull(cluster, session_id)
    assert asked(cluster) == []
    cluster.fetch(1, session_id, 0, credit=1, position_number=2)
    cluster.settle()
    assert offsets(cluster, session_id) == [0], "with any left one batch of any size goes"


def test_a_topic_that_is_deleted_while_it_is_read_is_not_sent() -> None:
    cluster = cold()
    session_id = cluster.consume(1, 0)
    pull(cluster, session_id)
    cluster.controller.delete(KEY)
    while cluster[1].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[1])
    cluster.advance(20)
    assert offsets(cluster, session_id) == []
    assert cluster.runs(1, session_id)[-1].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
