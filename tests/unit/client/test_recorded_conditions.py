"""A where is for each row what it is to Spark, whose answers are recorded (tests/conditions), with nulls and NaN."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import iterate_headers, placement
from minilog.typed.conditions.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    ColumnStatistics,
    Predicate,
    evaluate,
    outcomes,
    plain_value,
)
from minilog.typed.conditions.predicate_wire import predicate_from_wire, predicate_to_wire
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.rows.reader import TypedReader, TypedSelection
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import typed_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from tests.conditions.recorded import REFUSED, SIGNS, read_cases
from tests.conditions.rows import ROWS, SCHEMA
from tests.rules import proves

CASES = read_cases()
TAKEN = [(case, parse_where(case.words, SCHEMA)) for case in CASES if case.answer != REFUSED]
KEY = PartitionKey(bytes(range(16)), 3)
SCHEMAS = TopicSchemas((SCHEMA,))
PLACES = {each.id: place for place, each in enumerate(SCHEMA.fields)}
UNLIMITED = 1 << 30


def evaluated(predicate: Predicate, rows: pa.RecordBatch) -> list[bool | None]:
    found: list[bool | None] = evaluate(predicate, lambda each: rows.column(PLACES[each]), len(rows)).to_pylist()
    return found


@proves("SPT.6")
def test_a_where_is_for_each_row_what_it_is_to_spark() -> None:
    found = {case.words: "".join(SIGNS[each] for each in evaluated(predicate, ROWS)) for case, predicate in TAKEN}
    assert found == {case.words: case.answer for case, _ in TAKEN}


def test_enough_conditions_are_true_for_some_rows_alone() -> None:
    """What all rows or none answer to is seldom wrong."""
    assert len(TAKEN) > 800
    assert sum(len(set(case.answer)) > 1 for case, _ in TAKEN) > 0.9 * len(TAKEN)


def test_conditions_that_may_mean_something_else_to_spark_are_refused() -> None:
    refused = [case.words for case in CASES if case.answer == REFUSED]
    assert len(refused) > 200
    for words in refused:
        with pytest.raises(InvalidArgument):
            parse_where(words, SCHEMA)


# -- statistics


def ordered(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def statistics(rows: pa.RecordBatch) -> Callable[[int], ColumnStatistics]:
    @functools.cache
    def of_column(field_id: int) -> ColumnStatistics:
        values = rows.column(PLACES[field_id])
        known = sorted((plain_value(value) for value in values if value.is_valid), key=ordered)
        bounds = (known[0], known[-1]) if known and SCHEMA.by_id[field_id].name != "tags" else (None, None)
        return ColumnStatistics(len(values), values.null_count, *bounds)

    return of_column


def test_statistics_leave_out_no_truth_that_a_row_has_and_of_one_row_all_others() -> None:
    there = {True: TRUE, False: FALSE, None: UNKNOWN}
    parts = [ROWS.slice(first, length) for length in (1, 2, 5) for first in range(0, len(ROWS), 7)]
    for rows in parts:
        told = statistics(rows)
        for case, predicate in TAKEN:
            possible = outcomes(predicate, told)
            truths = {there[value] for value in evaluated(predicate, rows)}
            assert all(possible & each for each in truths), case.words
            assert len(rows) > 1 or {possible} == truths, case.words
            assert outcomes(predicate, lambda _: None) & possible == possible, case.words


# -- readers and brokers


@pytest.fixture(scope="module")
def run() -> bytes:
    """The rows in stored batches, which tell of all their columns."""
    chance, stored, first = random.Random(49), list[bytes](), 0
    while first < len(ROWS):
        batch = ROWS.slice(first, chance.choice((1, 2, 3, 8)))
        built = build_typed_batch(
            KEY.topic_id,
            KEY.partition,
            TypedRows(SCHEMA, batch, statistics=SCHEMA.names),
            compression=chance.choice(("none", "lz4")),
            timestamp_us=0,
        )
        placed = placement(built, first, 1)
        stored.append(placed + built[len(placed) :])
        first += len(batch)
    return b"".join(stored)


def rows_read(reader: TypedReader, batches: bytes) -> set[int]:
    found = set[int]()
    for position, header in iterate_headers(batches):
        batch = memoryview(batches)[position : position + header.length]
        rows = reader.rows(batch, header, header.base_offset, header.next_offset)
        if rows is not None:
            found.update(rows.column("_offset").to_pylist())
    return found


@pytest.mark.parametrize("each", [6, pytest.param(1, marks=pytest.mark.long)])
def test_readers_keep_the_rows_that_spark_keeps_of_all_and_of_what_brokers_send(run: bytes, each: int) -> None:
    left_out, taken = 0, TAKEN[::each]
    for number, (case, predicate) in enumerate(taken):
        selection = TypedSelection(SCHEMA, (SCHEMA.names[number % len(SCHEMA.names)],), predicate)
        asked = typed_pb2.Selection.FromString(selection.to_wire().SerializeToString())
        sent = Scanner(asked, SCHEMAS).scan(KEY, run, UNLIMITED).batches
        left_out += sum(not header.record_count for _, header in iterate_headers(sent))
        kept = {row for row, sign in enumerate(case.answer) if sign == SIGNS[True]}
        reader = TypedReader(SCHEMAS, selection)
        assert rows_read(reader, sent) == kept == rows_read(reader, run), case.words
    assert left_out > len(taken)


def test_a_condition_comes_over_the_wire_as_it_was() -> None:
    for case, predicate in TAKEN:
        told = typed_pb2.Predicate.FromString(predicate_to_wire(predicate).SerializeToString())
        assert repr(predicate_from_wire(told, SCHEMA.by_id.get)) == repr(predicate), case.words
