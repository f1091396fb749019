"""A partition's state in pieces: the last record of each key is the state, and pieces that do not fit are no state."""

from __future__ import annotations

import random
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues import partition_queue as rules
from minilog_broker.coordinators.queues.partition_queue import Delivery, LeaseRequest, PartitionQueue
from minilog_broker.coordinators.queues.pieces import (
    BLOCK_OFFSETS,
    Block,
    DeathReason,
    PartitionHead,
    QueueKey,
    assembled,
    changed_pieces,
    digest,
)
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from minilog_broker.coordinators.queues.records import queue_codec
from minilog_broker.coordinators.table import Change, LogRecord
from tests.unit.coordinators.queueing import REJECT, RELEASE, Queueing, offsets

KEY = QueueKey("jobs", PartitionKey(bytes(16), 3))
CODEC = queue_codec()
REASONS = ("bad", "x" * 500, "übel")
STEP = st.tuples(
    st.sampled_from(("lease", "accept", "release", "reject", "begin", "abort", "trim", "cut")),
    st.integers(0, 200),
    st.integers(0, 70),
)


def step(queue: PartitionQueue, number: int, kind: str, first: int, more: int) -> PartitionQueue:
    holders = {part.lease_id for part in queue.ranges if part.first <= first <= part.last}
    settlement = queue_pb2.Settlement(lease_id=min(holders, default=0), first_offset=first, last_offset=first + more)
    settlement.reason = REASONS[more % len(REASONS)]
    after = Delivery(2, 0.0, keeps_dead=True)
    match kind:
        case "lease":
            wanted = LeaseRequest(number << 40, more, 300, 250, 1, takes_dead=bool(first % 2), limit=2)
            return rules.lease(queue, wanted, 0.0, 0.0).queue
        case "accept" | "release" | "reject":
            settlement.verdict = queue_pb2.Verdict.Value(f"VERDICT_{kind.upper()}")
            return rules.settle(queue, [settlement], after).queue
        case "begin":
            left, refused = rules._ended(
                queue, [settlement], lambda _, part: replace(part, state=RangeState.SETTLING, producer_id=7)
            )
            return queue if refused else left
        case "abort":
            return rules.end_settling(queue, 7, committed=False)
        case "trim":
            return rules.trim(queue, first)
    return rules.cut(queue, first, number)


@given(st.lists(STEP, min_size=1, max_size=30))
def test_the_last_record_of_each_key_is_the_state(steps: list[tuple[str, int, int]]) -> None:
    log: dict[bytes, bytes] = {}
    before, queue = None, PartitionQueue(0)
    for number, (kind, first, more) in enumerate(steps, 1):
        queue = step(queue, number, kind, first, more)
        records = [CODEC.encode(Change(*change)) for change in changed_pieces(KEY, before, queue)]
        assert CODEC.decode(records[-1]).key == KEY
        assert len({record.key for record in records}) == len(records)
        for key, value in records:
            log.pop(key, None)
            if value is not None:
                log[key] = value
        read = [CODEC.decode(LogRecord(key, value)) for key, value in log.items()]
        assert assembled((change.key, change.value) for change in read) == {KEY: queue}
        before = queue
        texts = {change.value.text for change in read if isinstance(change.value, DeathReason)}
        assert texts == {part.death_reason for part in queue.ranges if part.death_reason is not None}
    for change in changed_pieces(KEY, queue, None):
        del log[CODEC.encode(Change(*change)).key]
    assert log == {}


def test_a_decision_writes_no_other_block() -> None:
    ranges = tuple(Range(at, at, RangeState.LEASED, 1, 5) for at in range(0, 10 * BLOCK_OFFSETS, 2))
    before = PartitionQueue(1_000, 1, ranges)
    after = before.with_ranges(part for part in ranges if part.first != 4 * BLOCK_OFFSETS)
    block, head = changed_pieces(KEY, before, after)
    assert block.key == KEY._replace(block=4)
    assert head == Change(KEY, PartitionHead(1_000, 1, 0))


HEAD = (KEY, PartitionHead(100, 1, 0))
LEASED = Range(40, 45, RangeState.LEASED, 1, 5)
DEAD = Range(40, 40, RangeState.DEAD, 1, death_reason=digest("bad"))


@pytest.mark.parametrize(
    "pieces",
    [
        [(KEY._replace(block=1), Block((LEASED,)))],
        [HEAD, (KEY._replace(block=2), Block((LEASED,)))],
        [
            HEAD,
            (KEY._replace(block=0), Block((Range(9, 41, RangeState.LEASED, 1, 5),))),
            (KEY._replace(block=1), Block((LEASED,))),
        ],
        [(KEY, PartitionHead(45, 1, 0)), (KEY._replace(block=1), Block((LEASED,)))],
        [HEAD, (KEY._replace(block=1), Block((DEAD,)))],
    ],
    ids=["no head", "wrong block", "overlap", "behind the end", "no reason"],
)
def test_pieces_that_do_not_fit_together_are_no_state(pieces: list[tuple[QueueKey, object]]) -> None:
    with pytest.raises(CorruptMessage, match="log of queues"):
        assembled(pieces)


@pytest.mark.parametrize("numbers", [[], [40, 0], [40, 0, 1]])
def test_numbers_that_are_no_ranges_are_damage(numbers: list[int]) -> None:
    kinds = [records_pb2.QueueRangeKind(state=queue_pb2.RANGE_STATE_READY)]
    value = records_pb2.QueueBlockRecord(kinds=kinds, ranges=numbers).SerializeToString()
    with pytest.raises(CorruptMessage):
        CODEC.decode(LogRecord(CODEC.encode(Change(KEY._replace(block=1), None)).key, value))


def test_a_kind_of_range_that_is_not_known_is_of_a_later_version() -> None:
    kinds = [records_pb2.QueueRangeKind(state=queue_pb2.RangeState.ValueType(9))]
    value = records_pb2.QueueBlockRecord(kinds=kinds, ranges=[40, 0, 0]).SerializeToString()
    with pytest.raises(UnsupportedVersion):
        CODEC.decode(LogRecord(CODEC.encode(Change(KEY._replace(block=1), None)).key, value))


def test_a_new_coordinator_has_the_state_of_the_last_one_whatever_the_log_has_lost() -> None:
    world, dice = Queueing(), random.Random(7)
    world.coordinator._table.places.slack_records = 20
    world.alter(locks="500", **{"errors.deadletterqueue.topic.name": "letters"})
    world.has(5_000)
    for turn in range(150):
        asked = world.ask_to_lease(
            dice.randrange(1, 60), takes_dead_letters=bool(turn % 2), wait_ms=1, worker=str(turn)
        )
        world.pass_ms(3_000)
        leased = world.lease_answer(asked)
        held = offsets(leased)
        for at in dice.sample(held, len(held) * 3 // 4):
            verdict = dice.choice((queue_pb2.VERDICT_ACCEPT, queue_pb2.VERDICT_ACCEPT, RELEASE, REJECT))
            world.settle(leased, at, at, verdict)
        world.commit()
        if turn % 30 == 29:
            before = world.state()
            world.slack_records = 20
            world.lead()
            world.commit()
            assert world.state() == before
    assert world.log_start > 1_000
