"""Commit markers that are asked for again when their producer was forgotten, and markers of deposed coordinators."""

from __future__ import annotations

import pytest

from minilog.errors import FencedLeaderEpoch, InvalidTxnState, LeaderNotAvailable, MinilogError
from minilog_broker.replication.replica_effects import EndMarker, FindEnds
from minilog_broker.storage import find_ends
from minilog_broker.storage.producer_state import recover_producer_state
from minilog_broker.storage.transactions import PartitionTransactions
from tests.rules import proves
from tests.unit.replication.broker import KEY
from tests.unit.replication.cluster import COORDINATOR_PARTITION, ReplicaCluster
from tests.unit.replication.transacting import abort, begin, commit

pytestmark = proves("TX.9")

KEPT = 3


@pytest.fixture(autouse=True)
def few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of memory, made small."""
    monkeypatch.setattr(PartitionTransactions.__init__, "__kwdefaults__", {"max_ended": KEPT})


def ended(cluster: ReplicaCluster, *producer_ids: int) -> None:
    for producer_id in producer_ids:
        begin(cluster, producer_id)
        assert ask(cluster, commit(producer_id)) is None


def ask(cluster: ReplicaCluster, *markers: EndMarker, epoch: int = 0, to: int = 1) -> MinilogError | None:
    ticket = cluster.write_markers(to, *markers, epoch=epoch)
    cluster.settle()
    return cluster[to].marked[ticket]


def searches(cluster: ReplicaCluster) -> int:
    return sum(isinstance(effect, FindEnds) for effect in cluster[1].history)


def test_a_commit_that_is_repeated_after_its_producer_was_forgotten_is_done() -> None:
    """Else the coordinator asks for ever, and the transaction never becomes visible as a whole."""
    cluster = ReplicaCluster()
    ended(cluster, *range(100, 100 + 2 * KEPT))
    end = cluster[1].ends()[2]
    assert isinstance(ask(cluster, commit(100), commit(101)), LeaderNotAvailable), "the log is searched"
    assert ask(cluster, commit(100), commit(101)) is None
    assert cluster[1].ends()[2] == end, "nothing is written again"
    assert searches(cluster) == 1


def test_a_new_leader_searches_its_own_log() -> None:
    cluster = ReplicaCluster()
    ended(cluster, *range(100, 100 + 2 * KEPT))
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    assert isinstance(ask(cluster, commit(100), to=2), LeaderNotAvailable)
    assert ask(cluster, commit(100), to=2) is None


def test_the_identity_of_a_forgotten_producer_is_not_changed() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 99)
    assert ask(cluster, abort(99)) is None
    ended(cluster, *range(100, 100 + 2 * KEPT))
    assert isinstance(ask(cluster, commit(99)), LeaderNotAvailable)
    refusal = ask(cluster, commit(99))
    assert isinstance(refusal, InvalidTxnState)
    assert "aborted" in str(refusal)


def test_a_commit_of_what_was_lost_is_never_done() -> None:
    """It wrote three records, and nothing is here: neither in memory nor, once some are forgotten, in the log."""
    cluster = ReplicaCluster()
    ended(cluster, *range(100, 100 + KEPT))
    assert isinstance(ask(cluster, commit(7, 2)), InvalidTxnState)
    assert searches(cluster) == 0, "nobody was forgotten: it never ended here"
    ended(cluster, *range(200, 200 + KEPT))
    assert isinstance(ask(cluster, commit(7, 2)), LeaderNotAvailable)
    for _ in range(3):
        assert isinstance(ask(cluster, commit(7, 2)), InvalidTxnState)
    assert searches(cluster) == 1


def test_whose_marker_was_trimmed_with_its_records_is_done() -> None:
    cluster = ReplicaCluster()
    ended(cluster, *range(100, 100 + 2 * KEPT))
    ticket = cluster.delete_records(1, cluster[1].ends()[2])
    cluster.advance(500)
    assert cluster[1].deleted[ticket].error is None
    assert isinstance(ask(cluster, commit(100)), LeaderNotAvailable)
    assert ask(cluster, commit(100)) is None


def test_a_search_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_ends, "STEP_BATCHES", 2)
    cluster = ReplicaCluster()
    ended(cluster, *range(100, 100 + 2 * KEPT))
    log = cluster[1].logs[KEY]
    within = recover_producer_state(log).transactions.forgotten
    assert within is not None
    search, steps = find_ends.EndsSearch({100, 102}, within), 0
    while not search.finished:
        search.step(log)
        steps += 1
    assert {producer_id: end.committed for producer_id, end in search.ends.items()} == {100: True, 102: True}
    assert steps > 1


@proves("TX.8")
def test_a_coordinator_that_was_deposed_has_no_marker_written() -> None:
    """By any leader of the partition: the highest epoch is in the log, with the markers."""
    cluster = ReplicaCluster()
    ended(cluster, 1)
    begin(cluster, 7)
    begin(cluster, 8)
    assert ask(cluster, commit(7), epoch=4) is None
    refusal = ask(cluster, abort(8), epoch=3)
    assert isinstance(refusal, FencedLeaderEpoch)
    assert "epoch 4" in str(refusal)
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    assert isinstance(ask(cluster, abort(8), epoch=3, to=2), FencedLeaderEpoch)
    assert ask(cluster, commit(8), epoch=4, to=2) is None
    assert recover_producer_state(cluster[2].logs[KEY]).transactions.coordinator_epoch(COORDINATOR_PARTITION) == 4
