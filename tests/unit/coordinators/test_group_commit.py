"""Decisions that share a batch of a coordinator's log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minilog.errors import MessageTooLarge, MinilogError, NotEnoughReplicas, NotLeaderOrFollower
from minilog_broker.coordinators.group_commit import BATCH_BYTES, GroupCommit
from minilog_broker.coordinators.table import LogRecord
from tests.rules import proves

pytestmark = proves("CO.4")


class Batches:
    """A log of numbered decisions."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.full: MinilogError | None = None
        self.over: MinilogError | None = None

    def require_room(self) -> None:
        if self.full is not None:
            raise self.full

    def append(self, records: Sequence[LogRecord]) -> int:
        if self.over is not None:
            raise self.over
        self.batches.append([int(record.key) for record in records])
        return sum(map(len, self.batches))


def decision(*numbers: int, size_bytes: int = 1) -> list[LogRecord]:
    return [LogRecord(b"%d" % number, bytes(size_bytes)) for number in numbers]


def test_a_decision_alone_waits_for_nothing() -> None:
    log = Batches()
    commit = GroupCommit(log)
    assert commit.write(decision(1)) == 1
    commit.committed(1)
    assert commit.write(decision(2, 3)) == 3
    assert log.batches == [[1], [2, 3]]


def test_decisions_that_come_while_a_batch_is_on_its_way_share_the_next_one() -> None:
    log = Batches()
    commit = GroupCommit(log)
    assert [commit.write(decision(1, 2)), commit.write(decision(3)), commit.write(decision(4, 5))] == [2, 3, 5]
    assert log.batches == [[1, 2]]
    commit.committed(1)
    assert log.batches == [[1, 2]], "it is not committed as a whole"
    commit.committed(2)
    assert log.batches == [[1, 2], [3, 4, 5]]
    assert commit.write(decision(6)) == 6
    commit.committed(5)
    assert log.batches[2:] == [[6]]


def test_more_than_fits_into_a_batch_waits_for_nothing() -> None:
    log = Batches()
    commit = GroupCommit(log)
    for number in (1, 2, 3):
        commit.write(decision(number, size_bytes=BATCH_BYTES // 2))
    assert log.batches == [[1], [2]], "2 and 3 are too large for one batch"
    assert commit.write(decision(4, size_bytes=BATCH_BYTES)) == 4
    assert log.batches == [[1], [2], [3], [4]], "in their order"
    assert commit.write(decision(5)) == 5
    commit.committed(3)
    assert log.batches == [[1], [2], [3], [4]]
    commit.committed(4)
    assert log.batches[4:] == [[5]]


def test_a_refused_decision_has_no_place() -> None:
    log = Batches()
    commit = GroupCommit(log)
    commit.write(decision(1))
    assert commit.write(decision(2)) == 2
    log.full = NotEnoughReplicas("the ISR is too small")
    with pytest.raises(NotEnoughReplicas):
        commit.write(decision(3))
    commit.committed(1)
    assert log.batches == [[1], [2]], "what was decided is appended"
    log.full = None
    log.over = MessageTooLarge("a decision is too large")
    with pytest.raises(MessageTooLarge):
        commit.write(decision(3, size_bytes=2 * BATCH_BYTES))
    commit.committed(2)
    with pytest.raises(MessageTooLarge):
        commit.write(decision(4))
    log.over = None
    assert commit.write(decision(5)) == 3
    assert log.batches == [[1], [2], [5]]


def test_changes_that_wait_in_a_term_that_is_over_are_dropped() -> None:
    log = Batches()
    commit = GroupCommit(log)
    commit.write(decision(1))
    commit.write(decision(2))
    log.over = NotLeaderOrFollower("another broker leads")
    with pytest.raises(NotLeaderOrFollower):
        commit.committed(1)
    log.over = None
    commit.begin(1)
    assert commit.write(decision(3)) == 2
    assert log.batches == [[1], [3]]
