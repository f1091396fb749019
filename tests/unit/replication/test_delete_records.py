"""Deleting records up to an offset: refused, on its way, answered; and what no election brings back."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import (
    MinilogError,
    NoSpace,
)
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch
from tests.unit.replication.cluster import ReplicaCluster


def filled(records: int = 5, *, rows: int = 1, brokers: int = 3) -> ReplicaCluster:
    cluster = ReplicaCluster(brokers)
    for _ in range(records):
        cluster.produce(1, batch(rows))
    rest(cluster)
    return cluster


def rest(cluster: ReplicaCluster) -> None:
    """All that can happen soon: news is held back for some milliseconds."""
    cluster.settle()
    cluster.advance(20)
    cluster.settle()


def starts(cluster: ReplicaCluster) -> list[int]:
    return [broker.logs[KEY].log_start_offset for broker in cluster.brokers.values()]


def refused(cluster: ReplicaCluster, ticket: int, *, at: int = 1) -> MinilogError:
    error = cluster[at].deleted[ticket].error
    assert error is not None
    return error


# -- what is refused


# -- when it is answered


def test_a_full_disk_is_said_and_it_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled()
    log = cluster[1].logs[KEY]
    with monkeypatch.context() as full:

        def no_space(offset: int | None = None) -> None:
            raise OSError(errno.ENOSPC, "no space")

        full.setattr(log, "write_checkpoint", no_space)
        ticket = cluster.delete_records(1, 3)
        with pytest.raises(OSError, match="no space"):
            cluster[1].work()
        cluster[1].manager.log_failed(KEY, OSError(errno.ENOSPC, "no space"), cluster.now_ms)
        cluster[1].run()
    assert isinstance(refused(cluster, ticket), NoSpace)
    assert log.log_start_offset == 0, "what is not durable is not seen"
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 3


# -- what no election brings back


@proves("DEL.3")
def test_nobody_joins_the_isr_with_a_lower_log_start() -> None:
    """Cut off from the news, a follower has all records and not the start: it could bring them back."""
    cluster = filled()
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    ticket = cluster.delete_records(1, 5)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 5
    cluster[3].restart()
    for _ in range(2_000):
        leader = cluster[1].leader()
        if leader is not None and 3 in leader.in_sync.maximal:
            break
        steps = cluster.steps()
        if not steps:
            cluster.advance(20, settle=False)
            continue
        steps[0]()
    assert leader is not None
    assert 3 in leader.in_sync.maximal
    assert starts(cluster)[2] == 5


@proves("DEL.5")
def test_a_follower_follows_when_its_own_stable_offset_allows_it() -> None:
    """Never above what it knows to be committed (V1)."""
    cluster = filled()
    cluster.advance(100)  # the high watermark of the last batch comes with a sign of life
    replica = cluster[2].manager._replicas[KEY].log
    assert replica is not None
    assert not replica.ask_log_start(6)
    assert replica.ask_log_start(5)
    assert not replica.ask_log_start(5), "it is on its way"


# -- a start in the middle of a batch (KAFKA-6975)


# -- producers of deleted batches: what they send again is in no log, and was written all the same


# -- readers and producers
