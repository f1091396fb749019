"""How much one micro-batch reads: caps shared in proportion, none starving, and small batches held back."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_minilog.options.limits import Limits, Pace, SizeMarks, capped, share, share_bytes, sizes_to_ask
from pyspark_minilog.options.offsets import Partition
from tests.rules import proves
from tests.unit.storage.logs import batch, open_log, run_of
from tests.world.disk import MemoryDisk

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)
MIB = 1 << 20


class TestSharingOffsets:
    @proves("SPO.6")
    def test_in_proportion_to_backlog(self) -> None:
        assert share({A0: 0, A1: 100}, {A0: 900, A1: 400}, 120) == {A0: 90, A1: 130}

    def test_below_the_limit_everything_is_read(self) -> None:
        assert share({A0: 0}, {A0: 100}, 100) == {A0: 100}

    @proves("SPO.6")
    def test_small_partitions_never_starve(self) -> None:
        assert share({A0: 0, A1: 0}, {A0: 10**9, A1: 1}, 10) == {A0: 9, A1: 1}

    @proves("SPO.6")
    def test_sums_of_the_largest_offsets_do_not_overflow(self) -> None:
        partitions = [Partition("a", n) for n in range(100)]
        end = dict.fromkeys(partitions, 2**63 - 1)
        assert share(dict.fromkeys(partitions, 0), end, 2**63 - 1) == dict.fromkeys(partitions, (2**63 - 1) // 100)

    @given(
        st.dictionaries(
            st.integers(0, 50).map(lambda n: Partition("a", n)),
            st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
            min_size=1,
        ),
        st.integers(1, 2**62),
    )
    def test_the_limit_holds_and_every_partition_moves(
        self, ranges: dict[Partition, tuple[int, int]], limit: int
    ) -> None:
        begin = {p: start for p, (start, _) in ranges.items()}
        end = {p: start + size for p, (start, size) in ranges.items()}
        shared = share(begin, end, limit)
        assert shared.keys() == end.keys()
        assert all(begin[p] <= shared[p] <= end[p] and (shared[p] > begin[p] or begin[p] == end[p]) for p in end)
        assert sum(shared[p] - begin[p] for p in end) <= limit + len(end)


def measured(start: int, sizes: list[int], asked: list[int]) -> SizeMarks:
    """What a broker answers of records of these sizes, when its index knows every record."""
    ends = list(accumulate(sizes))
    points = []
    for size in asked:
        number = next((n for n, end in enumerate(ends) if end >= size), len(ends) - 1)
        points.append((start + number + 1, ends[number]))
    return SizeMarks.ascending(start, points)


class TestSharingBytes:
    def test_in_proportion_to_the_bytes_that_are_there(self) -> None:
        marks = {
            A0: measured(0, [100] * 900, sizes_to_ask(12_000)),
            A1: measured(50, [1_000] * 30, sizes_to_ask(12_000)),
        }
        assert share_bytes({A0: 0, A1: 50}, {A0: 900, A1: 80}, 12_000, marks) == {A0: 90, A1: 53}

    def test_below_the_limit_everything_is_read(self) -> None:
        marks = {A0: measured(0, [100] * 9, sizes_to_ask(900))}
        assert share_bytes({A0: 0}, {A0: 9}, 900, marks) == {A0: 9}

    def test_a_record_larger_than_the_limit_is_read_alone(self) -> None:
        marks = {A0: measured(0, [MIB] * 5, sizes_to_ask(10)), A1: measured(0, [1] * 5, sizes_to_ask(10))}
        assert share_bytes({A0: 0, A1: 0}, {A0: 5, A1: 5}, 10, marks) == {A0: 1, A1: 1}

    def test_small_records_behind_large_ones_are_not_counted_as_large(self) -> None:
        marks = {A0: measured(0, [MIB] * 10 + [100] * 100_000, sizes_to_ask(4 * MIB))}
        assert share_bytes({A0: 0}, {A0: 100_010}, 4 * MIB, marks) == {A0: 4}
        later = {A0: measured(10, [100] * 100_000, sizes_to_ask(4 * MIB))}
        assert share_bytes({A0: 10}, {A0: 100_010}, 4 * MIB, later)[A0] == 10 + 4 * MIB // 100

    def test_an_end_below_the_brokers_latest_counts_only_to_there(self) -> None:
        """AvailableNow: its target is older than what the broker measures."""
        marks = {A0: measured(0, [100] * 1_000, sizes_to_ask(5_000))}
        assert share_bytes({A0: 0}, {A0: 40}, 5_000, marks) == {A0: 40}

    def test_a_partition_that_has_nothing_to_give_stays(self) -> None:
        marks = {A0: measured(0, [100] * 10, sizes_to_ask(500))}
        assert share_bytes({A0: 0, A1: 7}, {A0: 10, A1: 7}, 500, marks) == {A0: 5, A1: 7}

    @given(
        st.lists(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), min_size=1, max_size=6),
        st.integers(1, 50_000),
    )
    def test_every_partition_moves_and_the_batch_is_at_most_about_twice_the_limit(
        self, records: list[list[int]], limit: int
    ) -> None:
        partitions = {Partition("a", n): sizes for n, sizes in enumerate(records)}
        begin, end = dict.fromkeys(partitions, 0), {p: len(sizes) for p, sizes in partitions.items()}
        marks = {p: measured(0, sizes, sizes_to_ask(limit)) for p, sizes in partitions.items()}
        shared = share_bytes(begin, end, limit, marks)
        assert all(0 < shared[p] <= end[p] for p in end)
        read = sum(sum(sizes[: shared[p]]) for p, sizes in partitions.items())
        assert read <= 2 * limit + sum(map(max, records))

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 60), st.integers(0, 60))
    def test_sizes_of_a_broker_count_only_where_they_ascend(
        self, points: list[tuple[int, int]], offset: int, size: int
    ) -> None:
        marks = SizeMarks.ascending(10, points)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(marks.points, marks.points[1:], strict=False))
        assert marks.bytes_to(offset) >= 0
        assert marks.offset_at(size) >= 10

    @given(st.integers(1, 2**63 - 1))
    def test_questions_of_sizes_are_the_cap_its_halves_and_all(self, cap: int) -> None:
        asked = sizes_to_ask(cap)
        assert {cap, 2**63 - 1} <= set(asked)
        assert len(asked) <= 17
        assert min(asked) >= 1


@proves("SPO.8")
@pytest.mark.parametrize(("limit_of_a_batch", "triggers"), [((1, 2), 6), ((1, 7), 21), ((3, 2), 2), ((5, 1), 1)])
def test_records_stored_as_a_few_large_batches_are_read_in_even_parts(
    limit_of_a_batch: tuple[int, int], triggers: int
) -> None:
    """Of a real log: a micro-batch that begins in the midst of a stored batch counts what is left of that batch."""
    log = open_log(MemoryDisk())
    for _ in range(3):
        log.append(run_of([batch(log.log_end_offset, records=98, payload=bytes(9_800))]))
    end, stored = log.log_end_offset, log.offsets_at_sizes(0, [2**63 - 1], log.log_end_offset)[0][1] // 3
    limit, begin, counts = stored * limit_of_a_batch[0] // limit_of_a_batch[1] + 1, 0, []
    while begin < end:
        marks = {A0: SizeMarks.ascending(begin, log.offsets_at_sizes(begin, sizes_to_ask(limit), end))}
        reached = share_bytes({A0: begin}, {A0: end}, limit, marks)[A0]
        counts.append(reached - begin)
        begin = reached
    assert triggers <= len(counts) <= triggers + 1, counts
    assert max(counts) - min(counts[:-1], default=0) <= 2 or triggers <= 2, counts


@proves("SPF.12")
def test_all_caps_hold_at_once() -> None:
    marks = {A0: measured(0, [100] * 90, sizes_to_ask(1_000)), A1: measured(0, [1_000] * 90, sizes_to_ask(1_000))}
    begin, end = {A0: 0, A1: 0}, {A0: 90, A1: 90}
    assert capped(begin, end, Limits(), {}) == end
    assert capped(begin, end, Limits(max_offsets=20), {}) == {A0: 10, A1: 10}
    assert capped(begin, end, Limits(max_bytes=22_000), marks) == {A0: 20, A1: 20}
    assert capped(begin, end, Limits(max_offsets=20, max_bytes=9_900), marks) == {A0: 9, A1: 9}


class TestPace:
    LIMITS = Limits(min_offsets=100, max_delay_ms=5_000)

    def test_a_new_query_begins_at_once(self) -> None:
        assert not Pace(self.LIMITS).holds_back(1, 0.0)

    def test_a_small_batch_waits_for_more(self) -> None:
        pace = Pace(self.LIMITS)
        pace.holds_back(0, 0.0)
        assert pace.holds_back(99, 10.0)
        assert pace.remaining_ms(10.0) == 4_990.0
        assert not pace.holds_back(100, 20.0)

    @proves("SPO.7")
    def test_no_longer_than_the_delay_since_the_batch_before(self) -> None:
        pace = Pace(self.LIMITS)
        pace.holds_back(500, 1_000.0)
        assert pace.holds_back(1, 5_999.0)
        assert not pace.holds_back(1, 6_000.0)
        assert pace.holds_back(1, 6_001.0)

    def test_nothing_is_no_batch(self) -> None:
        pace = Pace(self.LIMITS)
        pace.holds_back(0, 0.0)
        assert not pace.holds_back(0, 9_000.0)
        assert not pace.holds_back(1, 9_001.0), "the time without any data counts"

    def test_without_a_minimum_nothing_waits(self) -> None:
        pace = Pace(Limits(max_offsets=5))
        assert not pace.holds_back(1, 0.0)
        assert not pace.holds_back(1, 1.0)

    @given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 3_000)), max_size=60))
    def test_no_record_waits_longer_than_the_delay(self, calls: list[tuple[int, float]]) -> None:
        pace, now_ms, waiting_since_ms = Pace(self.LIMITS), 0.0, None
        for offsets, pause_ms in calls:
            now_ms += pause_ms
            held = pace.holds_back(offsets, now_ms)
            assert not held or 0 < offsets < 100
            waiting_since_ms = (now_ms if waiting_since_ms is None else waiting_since_ms) if held else None
            assert waiting_since_ms is None or now_ms - waiting_since_ms < 5_000
