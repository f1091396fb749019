"""Where a query begins and ends: offsets, timestamps and relative places, brought into what the logs hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import EARLIEST, LATEST, Partition, everywhere, parse_offset_spec
from pyspark_minilog.options.places import (
    Ago,
    AtTimestamp,
    LastRecords,
    OfGroup,
    Place,
    parse_start,
    parse_timestamp,
    parse_timestamps,
    timestamps_ms,
)
from pyspark_minilog.reading.planning import PlannedRange, batch_ranges
from pyspark_minilog.reading.resolving import Resolved, Snapshot, resolve
from tests.rules import proves

A0, A1 = Partition("a", 0), Partition("a", 1)
NOW = Snapshot({"a": "ia"}, {A0: 10, A1: 0}, {A0: 50, A1: 7})
STARTING, ENDING = "startingOffsets", "endingOffsets"


class TestOffsets:
    def test_named_places(self) -> None:
        assert resolve(everywhere(STARTING, EARLIEST), NOW).positions == {A0: 10, A1: 0}
        assert resolve(everywhere(STARTING, LATEST), NOW).positions == {A0: 50, A1: 7}

    @proves("SPO.3")
    def test_json_places(self) -> None:
        found = resolve(parse_offset_spec(STARTING, '{"a":{"0":-2,"1":3}}'), NOW)
        assert (found.positions, found.losses) == ({A0: 10, A1: 3}, ())

    def test_offsets_outside_the_log_are_loss_and_the_nearest_is_taken(self) -> None:
        found = resolve(parse_offset_spec(STARTING, '{"a":{"0":4,"1":9}}'), NOW)
        assert found.positions == {A0: 10, A1: 7}
        assert found.losses == (
            "startingOffsets of partition a-0 was 4, but its log holds offsets 10 to 50: 10 is the nearest",
            "startingOffsets of partition a-1 was 9, but its log holds offsets 0 to 7: 7 is the nearest",
        )

    def test_a_given_topic_id_that_is_another_is_loss(self) -> None:
        text = '{"a":{"0":12,"1":3},"__topic_ids":{"a":"old"}}'
        (loss,) = resolve(parse_offset_spec(STARTING, text), NOW).losses
        assert "is for topic 'a' with id old, but the topic has id ia now" in loss


class TestRelative:
    @proves("SPK.2")
    def test_the_last_records_of_each_partition_or_as_many_as_there_are(self) -> None:
        found = resolve(parse_start(STARTING, "-15"), NOW)
        assert (found.positions, found.losses) == ({A0: 35, A1: 0}, ())
        assert resolve(parse_start(STARTING, " -1000 "), NOW).positions == {A0: 10, A1: 0}

    @pytest.mark.parametrize(("text", "age_ms"), [("-10m", 600_000), ("-36h", 129_600_000), ("-1500ms", 1_500)])
    def test_so_long_ago_is_a_timestamp(self, text: str, age_ms: int) -> None:
        place = parse_start(STARTING, text)
        assert place == Ago(STARTING, text, age_ms)
        assert timestamps_ms(place, [A0, A1], 10**12) == dict.fromkeys([A0, A1], 10**12 - age_ms)
        assert timestamps_ms(place, [A0], 1_000) == {A0: 0}

    def test_where_nothing_is_that_young_it_is_latest(self) -> None:
        found = resolve(parse_start(STARTING, "-10m"), NOW, {A0: 20, A1: None})
        assert (found.positions, found.losses) == ({A0: 20, A1: 7}, ())

    @given(st.integers(3, 2**63 - 1), st.integers(0, 2**62), st.integers(0, 2**62))
    def test_a_relative_place_never_leaves_the_log(self, count: int, earliest: int, size: int) -> None:
        now = Snapshot({"a": "ia"}, {A0: earliest}, {A0: earliest + size})
        assert parse_start(STARTING, f"-{count}") == LastRecords(STARTING, f"-{count}", count)
        start = resolve(parse_start(STARTING, f"-{count}"), now).positions[A0]
        assert earliest + size - start == min(count, size)


class TestTimestamps:
    def test_a_timestamp_for_all_and_one_for_each_partition(self) -> None:
        assert timestamps_ms(parse_timestamp("startingTimestamp", "5", or_latest=True), [A0, A1], 0) == {A0: 5, A1: 5}
        each = parse_timestamps("startingOffsetsByTimestamp", '{"a":{"0":5,"1":6}}', or_latest=True)
        assert timestamps_ms(each, [A0, A1], 0) == {A0: 5, A1: 6}

    def test_those_for_each_name_exactly_the_partitions_read(self) -> None:
        place = parse_timestamps("startingOffsetsByTimestamp", '{"a":{"0":5,"2":6}}', or_latest=True)
        with pytest.raises(InvalidOption, match="it leaves out a-1 and it names a-2, which this query does not read"):
            timestamps_ms(place, [A0, A1], 0)

    def test_offsets_need_no_timestamp(self) -> None:
        assert timestamps_ms(everywhere(STARTING, EARLIEST), [A0], 0) == {}
        assert timestamps_ms(parse_start(STARTING, "-5"), [A0], 0) == {}

    def test_the_first_record_that_is_young_enough(self) -> None:
        place = parse_timestamp("startingTimestamp", "5", or_latest=False)
        assert resolve(place, NOW, {A0: 20, A1: 0}).positions == {A0: 20, A1: 0}

    def test_without_any_it_is_refused_or_latest(self) -> None:
        place = parse_timestamp("startingTimestamp", "5", or_latest=False)
        with pytest.raises(InvalidOption, match="'startingTimestamp' is '5': all records of a-1 are older: give an"):
            resolve(place, NOW, {A0: 20, A1: None})
        place = parse_timestamp("startingTimestamp", "5", or_latest=True)
        assert resolve(place, NOW, {A0: 20, A1: None}).positions == {A0: 20, A1: 7}

    def test_a_record_that_came_later_or_aged_out_changes_nothing(self) -> None:
        place = parse_timestamp("startingTimestamp", "5", or_latest=False)
        assert resolve(place, NOW, {A0: 3, A1: 9}).positions == {A0: 10, A1: 7}


def ranges(start: Place, end: Place) -> list[PlannedRange]:
    starting, ending = (resolve(each, NOW, {A0: 20, A1: 5}) for each in (start, end))
    return batch_ranges(starting, ending, NOW)


class TestBatch:
    def test_the_range_between_start_and_end(self) -> None:
        start = parse_offset_spec(STARTING, '{"a":{"0":20,"1":7}}')
        assert ranges(start, parse_offset_spec(ENDING, '{"a":{"0":30,"1":-1}}')) == [PlannedRange(A0, 20, 30, "ia")]

    @proves("SPB.3")
    def test_an_end_before_the_start_is_refused_with_both_numbers(self) -> None:
        start = parse_offset_spec(STARTING, '{"a":{"0":30,"1":0}}')
        end = parse_offset_spec(ENDING, '{"a":{"0":20,"1":0}}')
        with pytest.raises(
            InvalidOption, match=r"a-0 would end before it starts: .*\"0\":30.* offset 30, .* offset 20\."
        ):
            ranges(start, end)

    @proves("SPB.3")
    def test_so_is_one_that_lies_outside_the_log(self) -> None:
        start = parse_offset_spec(STARTING, '{"a":{"0":300,"1":0}}')
        with pytest.raises(InvalidOption, match="a-0 would end before it starts"):
            ranges(start, parse_offset_spec(ENDING, '{"a":{"0":200,"1":0}}'))

    def test_so_is_one_between_timestamps(self) -> None:
        start = parse_timestamp("startingTimestamp", "9", or_latest=False)
        with pytest.raises(
            InvalidOption, match=r"startingTimestamp '9' is offset 20, endingTimestamp '8' is offset 20\. Give an end"
        ):
            ranges(start, parse_timestamp("endingTimestamp", "8", or_latest=True))

    def test_so_is_an_offset_behind_a_timestamp(self) -> None:
        start = parse_offset_spec(STARTING, '{"a":{"0":30,"1":0}}')
        with pytest.raises(InvalidOption, match="is offset 30, endingTimestamp '8' is offset 20"):
            ranges(start, AtTimestamp("endingTimestamp", "8", or_latest=True, everywhere_ms=8))

    @proves("SPB.2")
    def test_start_and_end_name_the_same_partitions(self) -> None:
        end = parse_offset_spec(ENDING, '{"a":{"0":20}}')
        with pytest.raises(InvalidOption, match=r"option 'endingOffsets' is .*leaves out a-1"):
            ranges(everywhere(STARTING, EARLIEST), end)

    def test_a_resolved_place_names_its_origin(self) -> None:
        assert str(Resolved(parse_start(STARTING, "-15"), {})) == "startingOffsets '-15'"


class TestOfGroup:
    PLACE = OfGroup(STARTING, "group")

    @proves("SPK.1")
    def test_a_query_begins_where_the_group_got_to(self) -> None:
        assert resolve(self.PLACE, NOW, {A0: 20, A1: 0}) == Resolved(self.PLACE, {A0: 20, A1: 0})

    def test_partitions_without_a_commit_of_the_group_are_read_from_their_start(self) -> None:
        assert resolve(self.PLACE, NOW, {A0: None, A1: 5}).positions == {A0: 10, A1: 5}

    def test_a_committed_offset_below_the_log_is_loss(self) -> None:
        found = resolve(self.PLACE, NOW, {A0: 4, A1: 7})
        assert found.positions == {A0: 10, A1: 7}
        assert found.losses == (
            "startingOffsets of partition a-0 was 4, but its log holds offsets 10 to 50: 10 is the nearest",
        )
