"""A reader goes on by the columns that it began with, whatever becomes of the schema while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from minilog.consumer.decode import as_polled, decode_all
from minilog.consumer.row_selection import RowSelection
from minilog.errors import NarrowSchemaVersion
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import add_column, drop_column, loosen_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming

Row = dict[str, Any]
FIRST = schema_from_ddl("id int NOT NULL, w int")
LONG = Primitive("long")


class Reading(Consuming):
    """A reader of a typed topic of two partitions whose schema evolves: metadata tells of it when it is asked."""

    def __init__(
        self,
        columns: tuple[str, ...] | None = None,
        where: str | None = None,
        *,
        pinned: Mapping[str, TopicSchema] | None = None,
        first: TopicSchema = FIRST,
    ) -> None:
        super().__init__(Brokers(partitions=2), auto_offset_reset="earliest")
        self.brokers.schemas = TopicSchemas((first,))
        self.cache.apply(self.brokers.metadata())
        self.core.select(RowSelection(columns, where, schemas=pinned))
        self.core.assign([TopicPartition(TOPIC, number) for number in range(2)])
        self.run()

    def evolve(self, *changes: Callable[[TopicSchema], TopicSchema]) -> None:
        """Versions that the reader has not heard of."""
        assert self.brokers.schemas is not None
        for change in changes:
            self.brokers.schemas = self.brokers.schemas.followed_by(change(self.brokers.schemas.latest))
        self.brokers.metadata_offset += 1

    def write(self, *rows: Row, partition: int = 0) -> None:
        """One batch by the newest version."""
        assert self.brokers.schemas is not None
        schema = self.brokers.schemas.latest
        columns = rows_of(pa.Table.from_pylist(list(rows)), schema)
        log = self.brokers.log(partition)
        log.append(build_typed_batch(TOPIC_ID, partition, TypedRows(schema, columns), timestamp_us=9))

    def rows(self, for_ms: float = 1_000.0) -> list[Row]:
        """What a program is handed within this time."""
        found: list[Row] = []
        for _ in range(int(for_ms / 50)):
            self.run(50)
            self.push()
            outcome = decode_all(self.core.take(1 << 30), 1 << 30)
            self.core.put_back(outcome.rest)
            self.core.runs_are_corrupt(outcome.corrupt, self.now)
            for run, batches in outcome.good:
                found += [row for each in batches for row in as_polled(run, each, include_headers=False).to_pylist()]
        return found


def renamed(schema: TopicSchema) -> TopicSchema:
    return rename_column(schema, "w", "ww")


def added(schema: TopicSchema) -> TopicSchema:
    return add_column(schema, Field("w" if "w" not in schema.names else "more", Primitive("string")))


def dropped(schema: TopicSchema) -> TopicSchema:
    return drop_column(schema, "w")


def wider(schema: TopicSchema) -> TopicSchema:
    return widen_column(schema, "w", LONG)


def loosened(schema: TopicSchema) -> TopicSchema:
    return loosen_column(schema, "id")


@pytest.mark.parametrize(
    ("columns", "where", "change", "row", "read"),
    [
        (("id", "w"), None, renamed, {"id": 2, "ww": 20}, {"id": 2, "w": 20}),
        (None, None, renamed, {"id": 2, "ww": 20}, {"id": 2, "w": 20}),
        (("id",), "w = 10 or w = 20", renamed, {"id": 2, "ww": 20}, {"id": 2}),
        (None, None, added, {"id": 2, "w": 20, "more": "x"}, {"id": 2, "w": 20}),
        (("w", "id"), None, dropped, {"id": 2}, {"w": None, "id": 2}),
        (None, "w is null or w = 10", dropped, {"id": 2}, {"id": 2, "w": None}),
    ],
)
def test_an_evolution_changes_nothing_for_a_running_program(
    columns: tuple[str, ...] | None,
    where: str | None,
    change: Callable[[TopicSchema], TopicSchema],
    row: Row,
    read: Row,
) -> None:
    reading = Reading(columns, where)
    reading.write({"id": 1, "w": 10})
    [before] = reading.rows()
    reading.evolve(change)
    reading.write(row)
    assert reading.rows() == [read]
    assert list(before) == list(read)


def test_a_name_that_has_changed_hands_is_still_the_old_column() -> None:
    reading = Reading(("id",), "w = 20")
    reading.evolve(renamed, added)
    reading.write({"id": 1, "ww": 20, "w": "a"}, {"id": 2, "ww": 30, "w": "20"})
    assert reading.rows() == [{"id": 1}]


def test_a_value_that_is_too_wide_widens_the_column_in_all_partitions_and_keeps_its_name() -> None:
    reading = Reading(("w",), "w > 5 and w <> 5000000000")
    reading.write({"id": 1, "w": 10})
    assert reading.rows() == [{"w": 10}]
    reading.evolve(wider, renamed)
    for partition in range(2):
        reading.write(*({"id": 2, "ww": each} for each in (5_000_000_000, 6_000_000_000)), partition=partition)
    assert reading.rows() == [{"w": 6_000_000_000}] * 2
    [position] = [each for (_, number), each in reading.positions.items() if number == 1]
    assert (position.selection.schema_version, position.selection.HasField("where")) == (3, True)


def test_partitions_that_meet_a_value_that_is_too_wide_together_are_each_read_from_there() -> None:
    """The rule of seed 1300006: the first of them has the second read anew, and nothing of that is passed over."""
    reading = Reading()
    reading.evolve(wider)
    for number in range(2):
        for partition in range(2):
            reading.write({"id": number, "w": 2**40}, partition=partition)
        reading.run()
        reading.push()
    assert sorted(row["id"] for row in reading.rows()) == [0, 0, 1, 1]


def test_a_column_that_was_widened_and_one_that_was_dropped_are_both_read_on() -> None:
    """No version has the one and knows the other as wide: replicas are asked for all rows, which are filtered here."""
    reading = Reading(("v", "w"), "v is null and w > 5", first=schema_from_ddl("id int NOT NULL, w int, v int"))
    reading.evolve(wider, lambda schema: drop_column(schema, "v"))
    reading.write({"id": 2, "w": 2**40}, {"id": 2, "w": 5})
    assert reading.rows() == [{"v": None, "w": 2**40}]
    selection = reading.positions[1, 0].selection
    assert (selection.schema_version, selection.HasField("where")) == (1, False)


def test_a_null_where_none_was_allowed_is_handed_out() -> None:
    reading = Reading()
    reading.evolve(loosened)
    reading.write({"id": None, "w": 1})
    assert reading.rows() == [{"id": None, "w": 1}]


def test_a_version_that_metadata_does_not_tell_of_for_long_is_waited_for_without_reading_again() -> None:
    reading = Reading(pinned={TOPIC: FIRST})
    told = reading.brokers.metadata()
    reading.evolve(added)
    reading.write({"id": 2, "w": 20, "more": "x"})
    reading.brokers.metadata = lambda: told  # type: ignore[method-assign]
    assert reading.rows(3_000) == []
    sent = len(reading.requests)
    assert reading.rows(3_000) == []
    assert len(reading.requests) - sent < 3, "the batch is not fetched again and again"
    del reading.brokers.metadata
    assert reading.rows() == [{"id": 2, "w": 20}]


def test_rows_that_a_named_version_cannot_hold_are_an_error_at_once() -> None:
    reading = Reading(pinned={TOPIC: FIRST})
    reading.evolve(wider)
    reading.write({"id": 1, "w": 2})
    assert reading.rows() == [{"id": 1, "w": 2}], "what fits is read"
    reading.write({"id": 1, "w": 2**40})
    with pytest.raises(NarrowSchemaVersion, match="column 'w' is long now, but this reader knows it as int"):
        reading.rows()
