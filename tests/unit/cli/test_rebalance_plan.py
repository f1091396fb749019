"""The plan of `minilog cluster rebalance`: bytes and leaders become even, and nothing else changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minilog.types import BrokerDescription, TopicPartition
from minilog_tools.cli.rebalance_plan import EVEN_WITHIN, REPLICA_BYTES, Move, Placed, loads, plan_moves

MIB = 1 << 20


def broker(
    number: int, rack: str | None = None, state: str = "running", *, cordoned: bool = False
) -> BrokerDescription:
    return BrokerDescription(number, "h", 9092, rack, state, cordoned=cordoned)


def placed(*replicas: tuple[int, ...], size_bytes: int = MIB, is_moving: bool = False) -> list[Placed]:
    return [
        Placed(TopicPartition("flights", number), brokers, size_bytes, is_moving)
        for number, brokers in enumerate(replicas)
    ]


def after(partitions: list[Placed], moves: list[Move]) -> list[tuple[int, ...]]:
    changed = {move.partition: move.after for move in moves}
    return [changed.get(partition.partition, partition.replicas) for partition in partitions]


def test_an_even_cluster_stays_as_it_is() -> None:
    partitions = placed((1, 2), (2, 3), (3, 1))
    assert plan_moves(partitions, [broker(1), broker(2), broker(3)]) == []


def test_a_new_broker_gets_its_share_of_bytes_and_leaders() -> None:
    partitions = placed(*[(1, 2), (2, 1)] * 6)
    brokers = [broker(1), broker(2), broker(3)]
    moves = plan_moves(partitions, brokers)
    assert loads(partitions, moves, brokers) == dict.fromkeys((1, 2, 3), (8 * MIB, 4))
    assert sum(move.copied_bytes for move in moves) == 8 * MIB  # no replica is copied for nothing


def test_leaders_alone_are_spread_without_a_copy() -> None:
    partitions = placed((1, 2), (1, 2), (1, 2), (1, 2))
    moves = plan_moves(partitions, [broker(1), broker(2)])
    assert sorted(after(partitions, moves)) == [(1, 2), (1, 2), (2, 1), (2, 1)]
    assert [move.copied_bytes for move in moves] == [0, 0]


def test_nothing_goes_to_a_broker_that_is_cordoned_or_does_not_run() -> None:
    partitions = placed(*[(1, 2)] * 4)
    others = [broker(3, cordoned=True), broker(4, state="fenced")]
    moves = plan_moves(partitions, [broker(1), broker(2), *others])
    assert {number for replicas in after(partitions, moves) for number in replicas} == {1, 2}


def test_a_partition_that_moves_is_left_alone_and_counts() -> None:
    partitions = placed(*[(1, 2)] * 4, is_moving=True)
    assert plan_moves(partitions, [broker(1), broker(2), broker(3)]) == []


def test_no_partition_has_fewer_racks_than_before() -> None:
    partitions = placed(*[(1, 3)] * 6)
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b")]
    moves = plan_moves(partitions, brokers)
    racks = {1: "a", 2: "a", 3: "b"}
    assert all({racks[number] for number in replicas} == {"a", "b"} for replicas in after(partitions, moves))
    assert loads(partitions, moves, brokers)[2][0] == 3 * MIB


def test_a_partition_larger_than_all_others_stays() -> None:
    partitions = [Placed(TopicPartition("large", 0), (1,), 100 * MIB), *placed((2,), (2,))]
    assert plan_moves(partitions, [broker(1), broker(2)]) == []


CLUSTERS = st.integers(2, 6).flatmap(
    lambda count: st.tuples(
        st.just([broker(number + 1, "abc"[number % 3]) for number in range(count)]),
        st.lists(
            st.tuples(
                st.lists(st.integers(1, count), min_size=1, max_size=3, unique=True).map(tuple),
                st.integers(0, 64 * MIB),
            ),
            max_size=30,
        ),
    )
)


@given(CLUSTERS)
def test_any_plan_keeps_factors_and_makes_no_broker_fuller(
    cluster: tuple[list[BrokerDescription], list[tuple[tuple[int, ...], int]]],
) -> None:
    brokers, rows = cluster
    partitions = [Placed(TopicPartition("t", number), *row) for number, row in enumerate(rows)]
    moves = plan_moves(partitions, brokers)
    becomes = after(partitions, moves)
    assert [len(set(replicas)) for replicas in becomes] == [len(replicas) for replicas, _ in rows]

    def weights(which: list[tuple[int, ...]]) -> list[int]:
        return [
            sum(
                partition.size_bytes + REPLICA_BYTES
                for partition, on in zip(partitions, which, strict=True)
                if one.id in on
            )
            for one in brokers
        ]

    assert max(weights(becomes)) <= max(weights([replicas for replicas, _ in rows]))
    again = [
        Placed(partition.partition, replicas, partition.size_bytes)
        for partition, replicas in zip(partitions, becomes, strict=True)
    ]
    assert plan_moves(again, brokers) == []  # one plan is enough
    assert EVEN_WITHIN < 1
