"""What `minilog queue peek` reads, by the description of a queue."""

from __future__ import annotations

import pytest

from minilog import TopicPartition
from minilog.types import QueueDescription, QueuePosition, QueueRange
from minilog_tools.cli.queue_peek import Peeked, pieces

RANGES = [
    QueueRange(4, 6, "leased", 2, 11, "shipper-1", 20_000),
    QueueRange(7, 7, "dead", 5, 0, "", 0, "no JSON"),
    QueueRange(8, 8, "ready", 1, 0, "", 0),
]
DESCRIPTION = QueueDescription(
    "jobs",
    {},
    [QueuePosition("orders", 0, 4, 9, 12, RANGES, 0, 1), QueuePosition("orders", 1, 0, 0, None, [], 0, 0)],
)
ENDS = {TopicPartition("orders", 0): 12, TopicPartition("orders", 1): 3}
PLACES = {
    Peeked.READY: [(8, 9)],
    Peeked.LEASED: [(4, 7)],
    Peeked.SETTLING: [],
    Peeked.DEAD: [(7, 8)],
    Peeked.FRESH: [(9, 12), (0, 3)],
    Peeked.ALL: [(4, 7), (7, 8), (8, 9), (9, 12), (0, 3)],
}


@pytest.mark.parametrize("shown", Peeked)
def test_peek_reads_the_offsets_of_that_state(shown: Peeked) -> None:
    every = list(pieces(DESCRIPTION, ENDS, shown))
    assert [(piece.partition.offset, piece.partition.end_offset) for piece in every] == PLACES[shown]


def test_a_piece_has_what_the_coordinator_knows_of_its_records() -> None:
    leased, dead, _, fresh, _ = pieces(DESCRIPTION, ENDS, Peeked.ALL)
    assert (leased.state, leased.delivery_count, leased.worker_id) == ("leased", 2, "shipper-1")
    assert (dead.state, dead.death_reason) == ("dead", "no JSON")
    assert (fresh.state, fresh.delivery_count) == ("fresh", 0)


def test_the_leaders_say_where_a_partition_ends_and_not_the_coordinator() -> None:
    ends = {**ENDS, TopicPartition("orders", 0): 9}
    assert [piece.partition.partition for piece in pieces(DESCRIPTION, ends, Peeked.FRESH)] == [1]
