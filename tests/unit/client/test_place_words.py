"""Each word for an end of a log is taken wherever a program gives a place."""

from __future__ import annotations

import pytest

from minilog.config import parse_config
from minilog.errors import InvalidArgument
from minilog.groups.descriptions import ReadableEnds, look_ups, place
from minilog.net.offsets_query import check_spec, offset_of
from minilog.scanning.places import places_of
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2
from pyspark_minilog.options.offsets import EARLIEST, LATEST, parse_offset_spec
from pyspark_minilog.options.places import parse_start

AT = TopicPartition("flights", 0)
WORDS = [(word, "earliest") for word in ("earliest", "start", "beginning", "Start", "EARLIEST")]
WORDS += [(word, "latest") for word in ("latest", "end", "End")]


@pytest.mark.parametrize(("word", "meant"), WORDS)
class TestAWord:
    def test_of_a_group_is_a_place(self, word: str, meant: str) -> None:
        assert look_ups({AT: word}) == {}
        assert place(AT, word, None, ReadableEnds(3, 9)) == (3 if meant == "earliest" else 9)

    def test_of_a_scan_is_a_place(self, word: str, meant: str) -> None:
        assert places_of("flights", {0: word}, "latest", [0]) == {AT: meant}

    def test_of_a_question_for_offsets_is_a_place(self, word: str, meant: str) -> None:
        check_spec(AT, word)
        result = metadata_pb2.ListOffsetsResult(log_start_offset=3, high_watermark=9, last_stable_offset=8)
        assert offset_of(result, word, "read_committed") == (3 if meant == "earliest" else 8)

    def test_of_a_consumer_is_a_place(self, word: str, meant: str) -> None:
        config = parse_config({"bootstrap.servers": "a:1", "auto.offset.reset": word})
        assert config.auto_offset_reset == meant

    def test_of_spark_is_a_place(self, word: str, meant: str) -> None:
        expected = EARLIEST if meant == "earliest" else LATEST
        assert parse_offset_spec("startingOffsets", word).everywhere == expected
        assert parse_offset_spec("endingOffsets", f'{{"flights":"{word}"}}').topics == {"flights": expected}
        assert parse_start("startingOffsets", word) == parse_start("startingOffsets", meant)


@pytest.mark.parametrize("word", ["begin", "first", "", "latest1"])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(InvalidArgument):
        look_ups({AT: word})
