"""A coordinator's log is kept short: what stands far back is carried along, and what nobody needs is deleted."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import NotLeaderOrFollower
from minilog_broker.coordinators.table import Change, CommittedTable, LogRecord
from tests.unit.coordinators.grouping import Grouping
from tests.unit.coordinators.transacting import ORDERS_0, ORDERS_1, TransactionCalls

SLACK = 4


@dataclass(frozen=True)
class Name:
    """A key that owns itself."""

    owner: str


class NameCodec:
    """Names and numbers."""

    def encode(self, change: Change[Name, int]) -> LogRecord:
        return LogRecord(change.key.owner.encode(), None if change.value is None else str(change.value).encode())

    def decode(self, record: LogRecord) -> Change[Name, int]:
        return Change(Name(record.key.decode()), None if record.value is None else int(record.value))


class ListLog:
    """What is in the log from `start` on, each record at its offset."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.start = 0
        self.fails = False

    def append(self, records: list[LogRecord]) -> int:
        if self.fails:
            raise NotLeaderOrFollower("no more")
        self.records += records
        return len(self.records)

    def table(self, end_offset: int) -> CommittedTable[Name, int]:
        """What another coordinator makes of it."""
        table: CommittedTable[Name, int] = CommittedTable(NameCodec(), self.append)  # type: ignore[arg-type]
        table.places.slack_records = SLACK
        table.clear(end_offset)
        for offset in range(self.start, end_offset):
            table.replay(self.records[offset], offset)
        return table


def trim(table: CommittedTable[Name, int], log: ListLog) -> None:
    """Delete what nobody needs, at once."""
    log.start = max(log.start, table.needed_from())
    table.trimmed(log.start)


DECISIONS = st.dictionaries(st.sampled_from("abcdefg"), st.none() | st.integers(0, 99), min_size=1, max_size=3)


@given(st.lists(st.one_of(DECISIONS, st.integers(0, 30), st.tuples(st.integers(0, 5))), max_size=60))
def test_whoever_takes_over_finds_what_was_committed(steps: list[dict[str, int | None] | int | tuple[int]]) -> None:
    """Decisions; the high watermark rises so far; another coordinator takes over, with so much of the rest."""
    log = ListLog()
    table, committed = log.table(0), 0
    ends = [0]
    wanted: dict[int, dict[str, int]] = {0: {}}  # after each decision, by its end
    for step in steps:
        match step:
            case dict():
                before = dict(wanted[ends[-1]])
                before.update({key: value for key, value in step.items() if value is not None})
                gone = [key for key, value in step.items() if value is None]
                table.write([Change(Name(key), value) for key, value in step.items()])
                ends.append(table.end_offset)
                wanted[table.end_offset] = {key: value for key, value in before.items() if key not in gone}
            case int():
                committed = max(end for end in ends if end <= committed + step)
                table.commit(committed)
                trim(table, log)
            case (kept,):
                at = ends.index(committed)
                del ends[at + 1 + kept :]
                del log.records[ends[-1] :]
                committed = ends[-1]
                table = log.table(committed)
        assert log.start <= table.committed_end() == committed
        assert {key.owner: value for key, value in table.committed().items()} == wanted[committed]
        assert log.table(committed).committed() == table.committed()


@pytest.mark.dear("it commits many offsets")
@given(st.lists(DECISIONS, min_size=100, max_size=200))
def test_the_log_stays_short(decisions: list[dict[str, int | None]]) -> None:
    log = ListLog()
    table = log.table(0)
    for decision in decisions:
        table.write([Change(Name(key), value) for key, value in decision.items()])
        table.commit(table.end_offset)
        trim(table, log)
        assert len(log.records) - log.start <= 3 * 7 + SLACK + 9, "three times the table, the slack, and one decision"


def test_idle_state_is_carried_along_only_while_the_log_is_long() -> None:
    log = ListLog()
    table = log.table(0)
    table.write([Change(Name(key), 1) for key in "abc"])
    for number in range(100):
        table.write([Change(Name("d"), number)])
        table.commit(table.end_offset)
        trim(table, log)
    carried = [record.key for record in log.records[3:] if record.key != b"d"]
    assert carried[:3] == [b"a", b"b", b"c"], "the furthest back first"
    assert len(carried) < 60


def test_a_decision_that_was_not_written_carries_nothing() -> None:
    log = ListLog()
    table = log.table(0)
    table.write([Change(Name(key), 1) for key in "abc"])
    for number in range(SLACK + 5):
        table.write([Change(Name("d"), number)])
    log.fails = True
    end_offset, records = table.end_offset, list(log.records)
    with pytest.raises(NotLeaderOrFollower):
        table.write([Change(Name("d"), 0)])
    assert (table.end_offset, log.records) == (end_offset, records)


def test_a_group_that_commits_for_ever_has_a_short_log_and_the_others_are_not_forgotten() -> None:
    cluster = Grouping()
    cluster.slack_records = 50
    cluster.fail_over()
    cluster.ask_to_commit({ORDERS_0: 7, ORDERS_1: 8}, group="idle")
    for offset in range(300):
        cluster.ask_to_commit({ORDERS_0: offset}, group="busy")
        cluster.commit()
    assert cluster.log_end - cluster.log_start < 3 * 3 + 2 * 50
    before = cluster.coordinator.committed_state()
    cluster.fail_over()
    assert cluster.coordinator.committed_state() == before
    assert {key.owner for key in before} == {"idle", "busy"}


def test_transactions_leave_a_short_log() -> None:
    cluster = TransactionCalls()
    cluster.slack_records = 50
    cluster.fail_over()
    for generation in range(100):
        cluster.end([cluster.writer(ORDERS_0, generation=generation, attempt=f"a{generation}")], generation=generation)
    assert cluster.log_start > 0
    before = cluster.coordinator.committed_state()
    cluster.fail_over()
    assert cluster.coordinator.committed_state() == before
