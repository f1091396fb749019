"""Range planning: where batches begin and end, what is data loss, and that no offset is lost or read twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.offsets import EARLIEST, LATEST, Partition, Positions, SourceOffset, everywhere, parse_offset_spec
from pyspark_minilog.planning import (
    Range,
    Snapshot,
    batch_ranges,
    continue_from,
    end_offset,
    resolve,
    share,
    split,
    stream_ranges,
    vanished,
)

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)
IDS = {"a": "ia", "b": "ib"}
NOW = Snapshot({"a": "ia"}, {A0: 10, A1: 0}, {A0: 50, A1: 7})


def snapshot(latest: Positions, earliest: Positions | None = None, ids: dict[str, str] | None = None) -> Snapshot:
    topics = {each.topic for each in latest}
    return Snapshot(ids or {t: IDS[t] for t in topics}, {**dict.fromkeys(latest, 0), **(earliest or {})}, latest)


def initial(positions: Positions, ids: dict[str, str] | None = None) -> SourceOffset:
    return SourceOffset(positions, ids or {each.topic: IDS[each.topic] for each in positions}, begun_from=positions)


class TestResolving:
    def test_named_places(self) -> None:
        assert resolve(everywhere("startingOffsets", EARLIEST), NOW) == ({A0: 10, A1: 0}, ())
        assert resolve(everywhere("startingOffsets", LATEST), NOW) == ({A0: 50, A1: 7}, ())

    def test_json_places(self) -> None:
        assert resolve(parse_offset_spec("startingOffsets", '{"a":{"0":-2,"1":3}}'), NOW) == ({A0: 10, A1: 3}, ())

    def test_offsets_outside_the_log_are_loss_and_the_nearest_is_taken(self) -> None:
        positions, losses = resolve(parse_offset_spec("startingOffsets", '{"a":{"0":4,"1":9}}'), NOW)
        assert positions == {A0: 10, A1: 7}
        assert losses == (
            "startingOffsets of partition a-0 was 4, but its log holds offsets 10 to 50: 10 is the nearest",
            "startingOffsets of partition a-1 was 9, but its log holds offsets 0 to 7: 7 is the nearest",
        )

    def test_a_given_topic_id_that_is_another_is_loss(self) -> None:
        text = '{"a":{"0":12,"1":3},"__topic_ids":{"a":"old"}}'
        _, losses = resolve(parse_offset_spec("startingOffsets", text), NOW)
        assert len(losses) == 1
        assert "given for topic 'a' of id old, which now has id ia" in losses[0]


class TestBatch:
    def test_the_range_between_start_and_end(self) -> None:
        start = parse_offset_spec("startingOffsets", '{"a":{"0":20,"1":7}}')
        end = parse_offset_spec("endingOffsets", '{"a":{"0":30,"1":-1}}')
        assert batch_ranges(start, end, NOW) == ([Range(A0, 20, 30, "ia")], ())

    def test_an_end_before_the_start_is_refused_with_both_numbers(self) -> None:
        start = parse_offset_spec("startingOffsets", '{"a":{"0":30,"1":0}}')
        end = parse_offset_spec("endingOffsets", '{"a":{"0":20,"1":0}}')
        with pytest.raises(
            InvalidOption, match=r"a-0 would end before it starts: .*\"0\":30.* offset 30, .* offset 20;"
        ):
            batch_ranges(start, end, NOW)

    def test_so_is_one_that_lies_outside_the_log(self) -> None:
        start = parse_offset_spec("startingOffsets", '{"a":{"0":300,"1":0}}')
        end = parse_offset_spec("endingOffsets", '{"a":{"0":200,"1":0}}')
        with pytest.raises(InvalidOption, match="a-0 would end before it starts"):
            batch_ranges(start, end, NOW)

    def test_start_and_end_name_the_same_partitions(self) -> None:
        end = parse_offset_spec("endingOffsets", '{"a":{"0":20}}')
        with pytest.raises(InvalidOption, match=r"option 'endingOffsets' is .*leaves out a-1"):
            batch_ranges(everywhere("startingOffsets", EARLIEST), end, NOW)


class TestStream:
    def test_the_first_end_says_where_it_began(self) -> None:
        start = initial({A0: 10})
        way = continue_from(start, snapshot({A0: 50}))
        end = end_offset(start, way, way.end)
        assert end.to_json() == {"__from": {"a": {"0": 10}}, "__topic_ids": {"a": "ia"}, "a": {"0": 50}}
        # the batch is replayed after a restart, and "latest" has moved on meanwhile
        assert stream_ranges(initial({A0: 70}), end) == [Range(A0, 10, 50, "ia")]

    def test_a_first_batch_of_a_union_that_had_nothing_for_this_source_is_replayed_as_nothing(self) -> None:
        assert stream_ranges(initial({A0: 70}), initial({A0: 10})) == []

    def test_later_ends_do_not(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"}, begun_from={A0: 10})
        way = continue_from(start, snapshot({A0: 60}))
        end = end_offset(start, way, way.end)
        assert end.begun_from is None
        assert stream_ranges(start, end) == [Range(A0, 50, 60, "ia")]
        assert stream_ranges(start, start) == []

    def test_new_partitions_and_topics_begin_at_earliest(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60, A1: 9, B0: 5}, earliest={B0: 2}))
        end = end_offset(start, way, way.end)
        assert stream_ranges(start, end) == [Range(A0, 50, 60, "ia"), Range(A1, 0, 9, "ia"), Range(B0, 2, 5, "ib")]
        assert end.begun_from == {A1: 0, B0: 2}
        assert way.losses == way.lower == ()

    def test_a_new_partition_that_is_empty_is_kept(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 50, A1: 0}))
        assert end_offset(start, way, way.end).positions == {A0: 50, A1: 0}

    def test_a_range_that_aged_out_is_loss_and_skipped(self) -> None:
        start = SourceOffset({A0: 5}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60}, earliest={A0: 20}))
        assert way.losses == ("offsets 5 to 20 of partition a-0 are not there any more: its log starts at offset 20",)
        assert stream_ranges(start, end_offset(start, way, way.end)) == [Range(A0, 20, 60, "ia")]

    def test_a_topic_created_again_is_loss_and_read_from_its_start(self) -> None:
        start = SourceOffset({A0: 5, A1: 4}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 60}, ids={"a": "new"}))
        end = end_offset(start, way, way.end)
        assert way.losses == (
            "topic 'a' was deleted and created again: the one that was read has id ia, now it has id new",
        )
        assert stream_ranges(start, end) == [Range(A0, 0, 60, "new")]
        assert end.positions == {A0: 60}

    def test_a_topic_that_is_gone_is_loss_and_its_place_is_kept(self) -> None:
        start = SourceOffset({A0: 5, B0: 4}, dict(IDS))
        way = continue_from(start, snapshot({B0: 4}))
        assert way.losses == ("partition a-0, read to offset 5, is not there any more",)
        assert (way.end, way.topic_ids) == (start.positions, IDS)

    def test_an_end_below_the_start_is_reported_and_never_moves_back(self) -> None:
        start = SourceOffset({A0: 50}, {"a": "ia"})
        way = continue_from(start, snapshot({A0: 40}))
        assert way.lower == ("partition a-0 ends at offset 40, the query has read to offset 50",)
        assert way.end == {A0: 50}

    def test_a_checkpoint_without_topic_ids_takes_those_found(self) -> None:
        way = continue_from(SourceOffset({A0: 5}), snapshot({A0: 9}))
        assert (way.losses, way.topic_ids) == ((), {"a": "ia"})

    def test_an_offset_survives_the_checkpoint_as_text(self) -> None:
        start = initial({A0: 10})
        way = continue_from(start, snapshot({A0: 50}))
        end = end_offset(start, way, way.end)
        assert SourceOffset.from_json(json.loads(json.dumps(end.to_json()))) == end

    def test_partitions_that_vanished_are_named(self) -> None:
        before = snapshot({A0: 1, A1: 1, B0: 1})
        assert vanished(before, before) == []
        assert vanished(before, snapshot({A0: 1, B0: 1}, ids={"a": "ia", "b": "new"})) == [A1, B0]


class TestSharing:
    def test_in_proportion_to_backlog(self) -> None:
        assert share({A0: 0, A1: 100}, {A0: 900, A1: 400}, 120) == {A0: 90, A1: 130}

    def test_below_the_limit_everything_is_read(self) -> None:
        assert share({A0: 0}, {A0: 100}, 100) == {A0: 100}

    def test_small_partitions_never_starve(self) -> None:
        assert share({A0: 0, A1: 0}, {A0: 10**9, A1: 1}, 10) == {A0: 9, A1: 1}

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


class TestSplitting:
    def test_without_a_wish_one_task_for_each_range_that_has_anything(self) -> None:
        ranges = [Range(A0, 0, 10), Range(A1, 5, 5)]
        assert split(ranges, None) == split(ranges, 1) == [Range(A0, 0, 10)]

    def test_the_largest_is_cut_first(self) -> None:
        pieces = split([Range(A0, 0, 90, "i"), Range(A1, 0, 10, "i")], 4)
        assert pieces == [Range(A0, 0, 30, "i"), Range(A0, 30, 60, "i"), Range(A0, 60, 90, "i"), Range(A1, 0, 10, "i")]

    @given(
        st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 200)), max_size=8),
        st.integers(1, 300),
    )
    def test_no_offset_is_lost_or_read_twice(self, bounds: list[tuple[int, int]], wanted: int) -> None:
        ranges = [Range(Partition("a", n), start, start + size) for n, (start, size) in enumerate(bounds)]
        pieces = split(ranges, wanted)
        for whole in ranges:
            cut = [each for each in pieces if each.partition == whole.partition]
            assert [offset for each in cut for offset in range(each.start, each.end)] == list(
                range(whole.start, whole.end)
            )
        total = sum(each.size for each in ranges)
        assert len(pieces) >= min(wanted, total)
        assert all(each.size > 0 for each in pieces)
