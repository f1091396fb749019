"""Range planning: where batches begin and end, what is data loss, and that no offset is lost or read twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import Partition, Positions, SourceOffset
from pyspark_minilog.reading.planning import (
    MAX_TASKS,
    SMALL_TASK_OFFSETS,
    PlannedRange,
    continue_from,
    end_offset,
    gathered,
    missing_topics,
    split,
    stream_ranges,
    until,
    vanished,
)
from pyspark_minilog.reading.resolving import Snapshot
from tests.rules import proves

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)
IDS = {"a": "ia", "b": "ib"}
GONE = (
    "partition a-0, read to offset 5, is not there any more: its topic was deleted, or this user has lost the right to "
    "see it"
)


def snapshot(latest: Positions, earliest: Positions | None = None, ids: dict[str, str] | None = None) -> Snapshot:
    topics = {each.topic for each in latest}
    return Snapshot(ids or {t: IDS[t] for t in topics}, {**dict.fromkeys(latest, 0), **(earliest or {})}, latest)


def initial(positions: Positions, ids: dict[str, str] | None = None) -> SourceOffset:
    return SourceOffset(positions, ids or {each.topic: IDS[each.topic] for each in positions}, begun_from=positions)


class TestStream:
    @proves("SPF.13", "SPF.17")
    def test_the_first_end_says_where_it_began(self) -> None:
        start = initial({A0: 10})
        way = continue_from(start, snapshot({A0: 50}))
        end = end_offset(start, way, way.end)
        assert end.to_json() == {"__from": {"a": {"0": 10}}, "__topic_ids": {"a": "ia"}, "a": {"0": 50}}
        # the batch is replayed after a restart, and "latest" has moved on meanwhile
        assert stream_ranges(initial({A0: 70}), end) == [PlannedRange(A0, 10, 50, "ia")]

    def test_a_first_batch_of_a_union_that_had_nothing_for_this_source_is_replayed_as_nothing(self) -> None:
        assert stream_ranges(initial({A0: 70}), initial({A0: 10})) == []

    def test_later_ends_do_not(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"}, begun_from={A0: 10})
        way = continue_from(start, snapshot({A0: 60}))
        end = end_offset(start, way, way.end)
        assert end.begun_from is None
        assert stream_ranges(start, end) == [PlannedRange(A0, 50, 60, "ia")]
        assert stream_ranges(start, start) == []

    def test_new_partitions_and_topics_begin_at_earliest(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60, A1: 9, B0: 5}, earliest={B0: 2}))
        end = end_offset(start, way, way.end)
        assert stream_ranges(start, end) == [
            PlannedRange(A0, 50, 60, "ia"),
            PlannedRange(A1, 0, 9, "ia"),
            PlannedRange(B0, 2, 5, "ib"),
        ]
        assert end.begun_from == {A1: 0, B0: 2}
        assert way.lower == {}

    @proves("SPL.5")
    def test_records_of_a_new_partition_deleted_before_its_first_read_are_loss(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60, A1: 9, B0: 5}, earliest={A0: 50, B0: 5}))
        assert way.losses == (
            "partition b-0 is new to this query, and offsets 0 to 5 are not there any more: its log starts at offset 5",
        )
        known = end_offset(start, way, way.end)
        later = continue_from(known, snapshot({A0: 60, A1: 9, B0: 5}, earliest={A0: 50, B0: 5}))
        assert later.losses == (), "it is said once"

    def test_a_new_partition_that_is_empty_is_kept(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 50, A1: 0}))
        assert end_offset(start, way, way.end).positions == {A0: 50, A1: 0}

    @proves("SPL.4")
    def test_a_range_that_aged_out_is_loss_and_skipped(self) -> None:
        start = SourceOffset({A0: 5}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60}, earliest={A0: 20}))
        assert way.losses == ("offsets 5 to 20 of partition a-0 are not there any more: its log starts at offset 20",)
        assert stream_ranges(start, end_offset(start, way, way.end)) == [PlannedRange(A0, 20, 60, "ia")]

    @proves("SPL.3")
    def test_a_topic_created_again_is_loss_and_read_from_its_start(self) -> None:
        start = SourceOffset({A0: 5, A1: 4}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60}, ids={"a": "new"}))
        end = end_offset(start, way, way.end)
        assert way.losses == (
            "topic 'a' was deleted and created again (id ia, now new): partition a-0 was read to offset 5 (now it has "
            "offsets 0 to 60), partition a-1 was read to offset 4 (now it does not exist)",
        )
        assert stream_ranges(start, end) == [PlannedRange(A0, 0, 60, "new")]
        assert end.positions == {A0: 60}

    def test_a_topic_that_is_gone_is_loss_and_its_place_is_kept(self) -> None:
        start = SourceOffset({A0: 5, B0: 4}, dict(IDS))
        way = continue_from(start, snapshot({B0: 4}))
        assert way.losses == (GONE,)
        assert (way.end, way.topic_ids, way.let_go) == (start.positions, IDS, frozenset())

    @proves("SPX.2")
    def test_a_partition_left_out_is_reported_once_and_its_place_kept(self) -> None:
        start = SourceOffset({A0: 5, B0: 4}, dict(IDS))
        now = snapshot({B0: 4})
        way = continue_from(start, now, unasked={A0})
        (loss,) = way.losses
        assert "partition a-0, read to offset 5, is in the checkpoint, but the query does not ask for it" in loss
        assert "set failOnDataLoss to false for one run if you took it out" in loss
        end = end_offset(start, way, way.end)
        assert end == SourceOffset({A0: 5, B0: 4}, dict(IDS), let_go=frozenset({A0}))
        assert stream_ranges(start, end) == []
        again = continue_from(SourceOffset.from_json(end.to_json()), now, unasked={A0})
        assert (again.losses, again.let_go) == ((), frozenset({A0}))
        back = continue_from(end, snapshot({A0: 9, B0: 4}))
        assert (back.begin, back.losses, back.let_go) == ({A0: 5, B0: 4}, (), frozenset())
        gone = continue_from(end, now)
        assert gone.losses == (GONE,)

    @proves("SPL.2")
    def test_a_topic_that_is_deleted_for_sure_is_told_and_left_out_from_then_on(self) -> None:
        start = SourceOffset({A0: 50, A1: 7, B0: 9}, dict(IDS))
        now = snapshot({B0: 9})
        assert missing_topics(start, now) == ["a"]
        way = continue_from(start, now, deleted={"a"})
        assert [sentence.split(",")[0] for sentence in way.losses] == ["partition a-0", "partition a-1"]
        end = end_offset(start, way, way.end)
        assert end == SourceOffset({B0: 9}, {"b": "ib"})
        assert stream_ranges(start, end) == []
        again = continue_from(end, snapshot({A0: 5, B0: 9}, earliest={A0: 3}))
        assert again.losses == (
            "partition a-0 is new to this query, and offsets 0 to 3 are not there any more: its log starts at offset 3",
        )

    def test_an_end_below_the_start_is_reported_and_never_moves_back(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 40}))
        assert list(way.lower.values()) == ["partition a-0 ends at offset 40, but the query has read to offset 50"]
        assert way.end == {A0: 50}

    def test_a_topic_of_many_partitions_created_again_is_reported_in_few_words(self) -> None:
        start = SourceOffset({Partition("a", n): 5 for n in range(1000)}, {"a": "ia"})
        (loss,) = continue_from(start, snapshot({A0: 60}, ids={"a": "new"})).losses
        assert loss.endswith("and 990 more partitions of it")

    @proves("SPL.6")
    def test_an_end_below_one_heard_of_is_reported_though_nothing_of_it_was_read(self) -> None:
        start = SourceOffset({A0: 50, A1: 3}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 80, A1: 9}), {A0: 90, A1: 9})
        assert list(way.lower.values()) == ["partition a-0 ends at offset 80, but it ended at 90 before"]
        assert way.end == {A0: 80, A1: 9}

    def test_news_of_a_topic_say_nothing_of_the_next_of_its_name(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        assert continue_from(start, snapshot({A0: 8}, ids={"a": "new"}), {A0: 90}).lower == {}

    def test_a_checkpoint_without_topic_ids_takes_those_found(self) -> None:
        way = continue_from(SourceOffset({A0: 5}), snapshot({A0: 9}))
        assert (way.losses, way.topic_ids) == ((), {"a": "ia"})

    def test_an_offset_survives_the_checkpoint_as_text(self) -> None:
        start = initial({A0: 10})
        way = continue_from(start, snapshot({A0: 50}))
        end = end_offset(start, way, way.end)
        assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end

    def test_available_now_reads_to_what_was_there_and_no_further(self) -> None:
        target, start = snapshot({A0: 60, A1: 9}), SourceOffset({A0: 50, A1: 9}, {"a": "ia"})
        now = snapshot({A0: 80, A1: 12, B0: 3}, earliest={A0: 55})
        way = continue_from(start, until(target, now), target.latest)
        assert (way.begin, way.end) == ({A0: 55, A1: 9}, {A0: 60, A1: 9})
        assert way.lower == {}

    def test_available_now_is_told_of_an_end_below_its_target_and_can_end_there(self) -> None:
        target, start, now = snapshot({A0: 60}), SourceOffset({A0: 50}, {"a": "ia"}), snapshot({A0: 57})
        way = continue_from(start, until(target, now), target.latest)
        assert list(way.lower.values()) == ["partition a-0 ends at offset 57, but it ended at 60 before"]
        assert way.end == {A0: 57}
        lowered = until(target, now)
        assert continue_from(start, until(lowered, now), lowered.latest).lower == {}

    def test_partitions_that_vanished_are_named(self) -> None:
        before = snapshot({A0: 1, A1: 1, B0: 1})
        assert vanished(before, before) == []
        assert vanished(before, snapshot({A0: 1, B0: 1}, ids={"a": "ia", "b": "new"})) == [A1, B0]


class TestSplitting:
    def test_without_a_wish_one_task_for_each_range_that_has_anything(self) -> None:
        ranges = [PlannedRange(A0, 0, 10), PlannedRange(A1, 5, 5)]
        assert split(ranges, None) == split(ranges, 1) == [PlannedRange(A0, 0, 10)]

    def test_the_largest_is_cut_first(self) -> None:
        pieces = split([PlannedRange(A0, 0, 90, "i"), PlannedRange(A1, 0, 10, "i")], 4)
        assert pieces == [
            PlannedRange(A0, 0, 30, "i"),
            PlannedRange(A0, 30, 60, "i"),
            PlannedRange(A0, 60, 90, "i"),
            PlannedRange(A1, 0, 10, "i"),
        ]

    def test_a_piece_has_at_most_so_many_records(self) -> None:
        pieces = split([PlannedRange(A0, 5, 30, "i"), PlannedRange(A1, 0, 10, "i")], None, 10)
        assert pieces == [
            PlannedRange(A0, 5, 13, "i"),
            PlannedRange(A0, 13, 21, "i"),
            PlannedRange(A0, 21, 30, "i"),
            PlannedRange(A1, 0, 10, "i"),
        ]

    def test_both_wishes_hold_at_once(self) -> None:
        ranges = [PlannedRange(A0, 0, 30), PlannedRange(A1, 0, 10)]
        assert [each.size for each in split(ranges, 6, 20)] == [7, 8, 7, 8, 5, 5]
        assert [each.size for each in split(ranges, 2, 10)] == [10, 10, 10, 10]

    def test_more_tasks_than_a_driver_can_hold_are_refused(self) -> None:
        for least, most in ((None, 1), (2**40, None)):
            with pytest.raises(
                InvalidOption, match=f"the connector allows {MAX_TASKS}, since Spark's driver could not hold more"
            ):
                split([PlannedRange(A0, 0, 2**50)], least, most)

    @proves("SPO.9")
    @given(
        st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 200)), max_size=8),
        st.one_of(st.none(), st.integers(1, 300)),
        st.one_of(st.none(), st.integers(1, 300)),
    )
    def test_no_offset_is_lost_or_read_twice(
        self, bounds: list[tuple[int, int]], least: int | None, most: int | None
    ) -> None:
        ranges = [PlannedRange(Partition("a", n), start, start + size) for n, (start, size) in enumerate(bounds)]
        pieces = split(ranges, least, most)
        for whole in ranges:
            cut = [each for each in pieces if each.partition == whole.partition]
            assert [offset for each in cut for offset in range(each.start, each.end)] == list(
                range(whole.start, whole.end)
            )
        total = sum(each.size for each in ranges)
        assert len(pieces) >= min(least or 0, total)
        assert all(0 < each.size <= (most or total) for each in pieces)


class TestGathering:
    def test_small_ranges_next_to_each_other_are_one_task(self) -> None:
        small = [PlannedRange(Partition("a", n), 0, SMALL_TASK_OFFSETS // 4) for n in range(6)]
        assert gathered(small) == [tuple(small[:4]), tuple(small[4:])]
        assert gathered([]) == []

    def test_a_large_range_is_a_task_of_its_own(self) -> None:
        large = PlannedRange(A0, 0, SMALL_TASK_OFFSETS + 1)
        assert gathered([large]) == [(large,)]
        few = PlannedRange(A1, 5, 6)
        assert gathered([few, large, PlannedRange(B0, 0, 1)]) == [(few,), (large,), (PlannedRange(B0, 0, 1),)]

    @given(st.lists(st.integers(1, 2 * SMALL_TASK_OFFSETS), max_size=30))
    def test_each_range_is_in_one_task_which_is_small_or_has_no_other(self, sizes: list[int]) -> None:
        ranges = [PlannedRange(Partition("a", n), 7, 7 + size) for n, size in enumerate(sizes)]
        tasks = gathered(ranges)
        assert [each for task in tasks for each in task] == ranges
        assert all(len(task) == 1 or sum(each.size for each in task) <= SMALL_TASK_OFFSETS for task in tasks)
