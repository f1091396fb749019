"""What a replay is known by, of docs/spec/connector.md § 6.5: each fact, and what earlier versions kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from minilog.transactions import AlreadyCommitted, Contents
from pyspark_minilog.errors import NotAReplay
from pyspark_minilog.writing.replay_facts import (
    Facts,
    MicroBatch,
    check_other_run,
    check_same,
    facts_of_block,
    facts_of_offsets,
    facts_of_rows,
    is_compared,
    read_facts,
)
from pyspark_minilog.writing.sink_protocol import stream_attempt
from tests.rules import proves

pytestmark = proves("SPS.13", "SPS.14")

ATTEMPT = stream_attempt("query", 7, "run", b"attempt")
RUNS = ("48f69cd2-d387-4522-a678-ca482945e4de", "4ac46c70-3197-4961-a99a-423ce3e641e4")
A, B = b"a" * 16, b"b" * 16
OFFSETS, OTHER_OFFSETS = (hashlib.sha256(text).digest() for text in (b"0 to 9", b"9 to 18"))
ROWS = facts_of_rows(["key", "value"], [A, B])


def sha(content: object) -> bytes:
    return hashlib.sha256(json.dumps(content).encode()).digest()


def compare(held: Facts | bytes, now: Facts, *, is_stream: bool = False, rows: tuple[int, int | None] = (4, 4)) -> None:
    stored = held if isinstance(held, bytes) else held.stored()
    check_same(AlreadyCommitted(ATTEMPT, Contents(rows[0], stored)), now, rows[1], is_stream=is_stream)


def of_query(query: str | None = "q", batch: str | None = "7", run: int = 0) -> Facts:
    at = MicroBatch(query, batch, query and RUNS[run])
    return Facts(whose=at.whose, offsets=facts_of_offsets(OFFSETS), run=at.run)


def rows_of(values: int) -> Facts:
    return facts_of_rows(["key", "value"], [A, B], values)


class TestFacts:
    @pytest.mark.parametrize(
        ("other", "differs"),
        [
            (facts_of_rows(["key", "value"], [A]).of(of_query()), "went to other topics than"),
            (facts_of_rows(["value"], [A, B]).of(of_query()), "have other columns than"),
            (ROWS.of(of_query("another", run=1)), "belong to another query, or to another micro-batch of it, than"),
            (ROWS.of(of_query(batch="8", run=1)), "belong to another query, or to another micro-batch of it, than"),
            (ROWS.of(of_query(None, None)), "belong to another query"),
            (replace(ROWS.of(of_query()), offsets=facts_of_offsets(OTHER_OFFSETS)), "come from other offsets than"),
            (facts_of_rows(["v"], [A]).of(of_query()), "went to other topics and have other columns than"),
        ],
    )
    def test_a_write_that_one_fact_tells_from_the_committed_one_is_refused(self, other: Facts, differs: str) -> None:
        with pytest.raises(NotAReplay, match=f"the 4 committed rows {differs}.*Nothing is written now"):
            compare(ROWS.of(of_query()), other)

    def test_a_replay_has_them_all_however_spark_orders_columns_and_topics(self) -> None:
        compare(ROWS.of(of_query()), facts_of_rows(["value", "key"], [B, A, B]).of(of_query(run=1)))

    def test_the_decision_depends_on_the_differing_facts(self) -> None:
        with pytest.raises(NotAReplay, match="have these rows there, begin with a new checkpoint at the offsets of"):
            compare(ROWS, facts_of_rows(["key", "value"], [A]))
        with pytest.raises(NotAReplay, match="one with a new checkpoint, uses the name of an earlier query: give it a"):
            compare(ROWS.of(of_query()), ROWS.of(of_query("another")))

    @pytest.mark.parametrize("name", ["whose", "topics", "columns"])
    def test_a_fact_that_one_side_does_not_know_is_not_compared(self, name: str) -> None:
        fact: Any = {name: b""}
        known = ROWS.of(of_query())
        unknown = replace(known, **fact)
        compare(known, unknown)
        compare(unknown, known)

    def test_rows_alone_differ_where_one_side_has_none(self) -> None:
        with pytest.raises(NotAReplay, match=r"has 4 rows, and this write has 0 rows\. Nothing is written now"):
            compare(ROWS, facts_of_rows(["key", "value"], []), rows=(4, 0))

    def test_rows_and_facts_are_told_together(self) -> None:
        with pytest.raises(NotAReplay, match=r"has 4 rows, and this write has 5 rows, and the 4 committed rows have"):
            compare(ROWS, facts_of_rows(["value"], [A, B]), rows=(4, 5))

    @pytest.mark.parametrize("run", ["my jobs", None])
    def test_a_job_group_of_the_program_names_no_run(self, run: str | None) -> None:
        assert MicroBatch("q", "7", run).run == b""
        assert MicroBatch("q", "7", run).whose == MicroBatch("q", "7", RUNS[0]).whose


class TestRowsWhoseOffsetsNobodyKnows:
    """In Spark Connect, with a checkpoint that the driver cannot read, without a query: the rows themselves are
    compared."""

    UNKNOWN = replace(of_query(), offsets=b"")
    OF_CONNECT = Facts(whose=MicroBatch(in_connect=True).whose)

    @pytest.mark.parametrize("of_batch", [UNKNOWN, OF_CONNECT, Facts(whose=MicroBatch().whose)])
    def test_other_rows_are_no_replay_and_the_same_rows_are_one(self, of_batch: Facts) -> None:
        held, now = (rows_of(values).of(replace(of_batch, run=b"")) for values in (7, 8))
        compare(held, held)
        with pytest.raises(NotAReplay, match=r"the 4 committed rows have other values than.*option checkpointLocation"):
            compare(held, now)

    def test_other_values_at_known_offsets_are_a_replay(self) -> None:
        compare(rows_of(7).of(of_query()), rows_of(8).of(of_query()))

    def test_an_option_that_a_replay_has_first_does_not_make_other_rows_one(self) -> None:
        held = rows_of(7).of(self.OF_CONNECT)
        compare(held, rows_of(7).of(of_query()))
        with pytest.raises(NotAReplay, match="have other values"):
            compare(held, rows_of(8).of(of_query()))

    def test_a_replay_that_has_lost_the_option_proves_nothing(self) -> None:
        held = rows_of(7).of(of_query())
        for of_batch in (self.UNKNOWN, self.OF_CONNECT):
            with pytest.raises(
                NotAReplay, match=r"nothing shows that it has the offsets.*checkpointLocation, as before"
            ):
                compare(held, rows_of(7).of(of_batch))
        compare(held, rows_of(7).of(self.UNKNOWN), rows=(4, None))  # the begin of a block

    def test_facts_of_an_earlier_version_are_not_enough_and_a_warning_says_so(self) -> None:
        held, now = ROWS.of(self.UNKNOWN), rows_of(7).of(self.UNKNOWN)
        compare(held, now)
        for stored, shown in ((held, False), (now, True), (ROWS.of(of_query()), False)):
            before = AlreadyCommitted(ATTEMPT, Contents(4, stored.stored()))
            assert is_compared(before, now, is_stream=False) is shown

    def test_of_a_block_each_write_goes_to_its_own_topics(self) -> None:
        writes = [facts_of_rows(["v"], [A], 7), facts_of_rows(["v"], [B], 8)]
        swapped = [facts_of_rows(["v"], [A], 8), facts_of_rows(["v"], [B], 7)]
        held = facts_of_block(writes, [], self.UNKNOWN)
        compare(held, facts_of_block(writes[::-1], [], self.UNKNOWN))
        with pytest.raises(NotAReplay, match="have other values"):
            compare(held, facts_of_block(swapped, [], self.UNKNOWN))


class TestTheStoredForm:
    @pytest.mark.parametrize("settles", [True, False])
    def test_the_stored_form_is_read_as_written_and_the_coordinator_takes_it(self, settles: bool) -> None:
        block = facts_of_block([ROWS, facts_of_rows(["v"], [A])], [("g", "t", 0, 5)], replace(of_query(), run=b""))
        for facts in (Facts(), ROWS, ROWS.of(of_query()), block, rows_of(7).of(replace(of_query(), offsets=b""))):
            whole = replace(facts, settles=settles)
            assert read_facts(whole.stored(), is_stream=True) == replace(whole, earlier=b"")
            assert len(whole.stored()) <= 64

    def test_the_stored_form_has_the_length_of_no_earlier_one(self) -> None:
        assert not {2 + 12 * known for known in range(6)} & {0, 32, 42, 48}


class TestWhatEarlierVersionsKept:
    """Right after an upgrade a query may replay the last batch of the earlier version."""

    @pytest.mark.parametrize("mark", [b"", b"/unsettled"])
    def test_of_a_stream_the_offsets(self, mark: bytes) -> None:
        now = replace(ROWS, offsets=facts_of_offsets(OFFSETS))
        compare(OFFSETS + mark, now, is_stream=True)
        with pytest.raises(NotAReplay, match="come from other offsets"):
            compare(OTHER_OFFSETS + mark, now, is_stream=True)
        held = read_facts(OFFSETS + mark, is_stream=True)
        assert held is not None
        assert held.settles is not bool(mark)

    def test_of_a_stream_whose_checkpoint_nobody_could_read_nothing(self) -> None:
        compare(b"", replace(ROWS, offsets=facts_of_offsets(OFFSETS)), is_stream=True)

    @pytest.mark.parametrize("has_mark", [True, False])
    def test_of_a_batch_write_topics_and_columns_and_the_run_of_the_micro_batch(self, has_mark: bool) -> None:
        mark = sha([RUNS[0].replace("-", ""), "7"])[:16] if has_mark else b""
        held = sha([["key", "value"], sorted([A.hex(), B.hex()])]) + mark
        compare(held, ROWS.of(of_query(run=1)))
        for other in (facts_of_rows(["value"], [A, B]), facts_of_rows(["key", "value"], [A])):
            with pytest.raises(NotAReplay, match="have other topics or columns"):
                compare(held, other.of(of_query(run=1)))
        second = AlreadyCommitted(ATTEMPT, Contents(4, held))
        check_other_run(second, of_query(run=1))
        if has_mark:
            with pytest.raises(NotAReplay, match="another write of this micro-batch"):
                check_other_run(second, of_query())

    def test_of_a_block_its_writes_and_the_offsets_of_groups(self) -> None:
        places, writes = [("g", "t", 0, 5)], [ROWS, facts_of_rows(["v"], [A])]
        of_writes = [sha([["key", "value"], sorted([A.hex(), B.hex()])]), sha([["v"], [A.hex()]])]
        held = sha([sorted(each.hex() for each in of_writes), sorted(places)])
        compare(held, facts_of_block(writes[::-1], places, of_query()))
        with pytest.raises(NotAReplay, match="came with other offsets for a group"):
            compare(held, facts_of_block(writes, [], of_query()))


class TestBlocks:
    WRITES = (ROWS, facts_of_rows(["v"], [A]))
    PLACES = (("g", "t", 0, 5), ("g", "t", 1, 6))

    def test_the_order_of_writes_and_offsets_plays_no_part(self) -> None:
        first = facts_of_block(self.WRITES, self.PLACES, of_query())
        assert first == facts_of_block(self.WRITES[::-1], self.PLACES[::-1], of_query())

    @pytest.mark.parametrize(
        ("writes", "places", "differs"),
        [
            (WRITES[:1], PLACES, "went to other topics"),
            ((facts_of_rows(["v"], [A, B]), facts_of_rows(["key", "value"], [A])), PLACES, "have other columns"),
            (WRITES, (), "came with other offsets for a group"),
            (WRITES, (("g", "t", 0, 4), PLACES[1]), "came with other offsets for a group"),
        ],
    )
    def test_other_writes_or_offsets_are_refused(
        self, writes: tuple[Facts, ...], places: tuple[tuple[str, str, int, int], ...], differs: str
    ) -> None:
        with pytest.raises(NotAReplay, match=differs):
            compare(facts_of_block(self.WRITES, self.PLACES, of_query()), facts_of_block(writes, places, of_query()))

    def test_whose_it_is_shows_before_any_row(self) -> None:
        held = facts_of_block(self.WRITES, self.PLACES, replace(of_query(), run=b""))
        compare(held, replace(of_query(), run=b""), rows=(4, None))
        for other in (of_query("another"), replace(of_query(), offsets=facts_of_offsets(OTHER_OFFSETS))):
            with pytest.raises(NotAReplay, match=r"belong to another query|come from other offsets"):
                compare(held, replace(other, run=b""), rows=(4, None))
