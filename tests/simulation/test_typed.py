"""What the simulator knows of rows by itself: conditions, who has to see what, and versions of schemas."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from minilog.partition_key import PartitionKey
from minilog.typed.conditions import predicate
from minilog.typed.conditions.predicate import evaluate
from minilog.typed.conditions.statistics import default_columns, read_statistics, statistics_of
from minilog.typed.conditions.where import parse_where
from minilog.typed.rows.reader import TypedSelection
from minilog.typed.schema.evolution import add_column, drop_column, rename_column
from minilog.typed.schema.fields import Field, Primitive, arrow_field
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import admin_pb2, metadata_pb2, records_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation
from tests.rules import mutated
from tests.rules.table import SIMULATION
from tests.simulation.clients.filtered_reading import FilteredReading, Stretch
from tests.simulation.clients.rows import (
    NUMBER,
    Compared,
    as_sql,
    column_value,
    drawn_condition,
    first_schema,
    truth,
)
from tests.simulation.clients.typed_topic import TypedTopic
from tests.simulation.judge.schemas import Schemas
from tests.simulation.plan import Plan

FIRST = first_schema(has_key=True, has_timestamp=True)
LATER = add_column(rename_column(FIRST, "number", "count"), Field("more", Primitive("int")), after="first")
KEY = PartitionKey(bytes(16), 0)
VALUES = [f"p{number % 3}:{number}".encode() for number in range(200)]


def rows(schema: TopicSchema) -> list[dict[int, Any]]:
    return [{each.id: column_value(each, value, 5.0) for each in schema.fields} for value in VALUES]


@pytest.mark.parametrize("schema", [FIRST, LATER])
@pytest.mark.parametrize("seed", range(60))
def test_conditions_are_true_for_the_same_rows_here_and_in_the_product(schema: TopicSchema, seed: int) -> None:
    condition = drawn_condition(schema, random.Random(seed), len(VALUES))
    known = rows(schema)
    fields = {each.id: each for each in schema.fields}

    def column(field_id: int) -> pa.Array:
        kind = schema.arrow_schema.field(fields[field_id].name).type
        return pa.array([row[field_id] for row in known], kind)

    found = evaluate(parse_where(as_sql(condition, schema), schema), column, len(known)).to_pylist()
    assert found == [truth(condition, row) for row in known]


def test_plans_with_a_typed_topic_are_drawn_and_move_no_other_setting() -> None:
    plans = [Plan.draw(seed) for seed in range(200)]
    typed = [plan for plan in plans if plan.typed]
    assert 10 < len(typed) < 60
    assert all(plan.filtered and "evolve" in plan.faults for plan in typed)
    assert not any("evolve" in plan.faults for plan in plans if not plan.typed)


# -- readers of some rows


def reading(values: dict[int, bytes], *, gone: int = 0) -> FilteredReading:
    """A run in which these were read, each as FIRST has it."""
    history: Any = SimpleNamespace(is_exempt=lambda key: False, values_of=lambda key: values)
    workload: Any = SimpleNamespace(may_be_gone=lambda key: gone)
    columns = dict(zip(VALUES, rows(FIRST), strict=True))
    topic: Any = SimpleNamespace(possible=lambda value: [columns[value]])
    cluster: Any = None
    return FilteredReading(cluster, workload, history, topic)


@pytest.mark.parametrize(
    ("start", "end", "handed", "gone", "missing"),
    [
        (0, 10, {5, 6, 7, 8, 9}, 0, None),
        (0, 10, {5, 6, 8, 9}, 0, 7),
        (8, 10, {8, 9}, 0, None),  # it began there
        (0, 6, {5}, 0, None),  # it has come no further
        (0, 10, {8, 9}, 8, None),  # they may be deleted
        (0, 10, {8, 9}, 7, 7),
    ],
)
def test_a_filtered_reader_has_to_see_what_it_went_over_and_wants(
    start: int, end: int, handed: set[int], gone: int, missing: int | None
) -> None:
    found = reading(dict(enumerate(VALUES[:10])), gone=gone)
    found._stretches.append(Stretch("f1", KEY, Compared(NUMBER, ">=", 5), start, end, handed))
    if missing is None:
        found.check()
    else:
        with pytest.raises(Violation, match=f"was not handed .* at {missing}"):
            found.check()


def test_a_filtered_reader_is_handed_nothing_else_and_nothing_twice() -> None:
    found = reading({})
    found._history.read_by_chance = lambda *_: None  # type: ignore[method-assign]
    stretch = Stretch("f1", KEY, Compared(NUMBER, ">=", 5), 0, 0)
    found._handed(stretch, 6, VALUES[6])
    with pytest.raises(Violation, match="is at 7 already"):
        found._handed(stretch, 6, VALUES[6])
    with pytest.raises(Violation, match="and wants"):
        found._handed(stretch, 7, VALUES[4])


@pytest.mark.parametrize("version", [FIRST, LATER])
def test_a_row_has_the_columns_that_it_was_written_with(version: TopicSchema) -> None:
    cluster: Any = SimpleNamespace(seed=1, now_s=5.0, plan=SimpleNamespace(compacted=False))
    topic = TypedTopic(cluster)
    topic._keep([VALUES[7]], [topic._row(FIRST, VALUES[7])], (FIRST,))
    given = {each.name: column_value(each, VALUES[7], 5.0) for each in version.fields}
    selection = TypedSelection(version, version.names)
    right = given | ({"more": None} if "more" in given else {})  # the version had no such column
    assert topic.is_row("c1", selection, right) == VALUES[7]
    wrongs: list[dict[str, Any]] = [{"size": 9}, {"note": None if given["note"] else "x"}]
    for wrong in (*wrongs, *([{"more": 3}] if "more" in given else [])):
        with pytest.raises(Violation, match="which was written as"):
            topic.is_row("c1", selection, right | wrong)


# -- versions of schemas


def committed(*versions: TopicSchema) -> CommittedBatch:
    records = tuple(
        records_pb2.MetadataRecord(
            topic_schema=records_pb2.TopicSchemaRecord(topic_id=KEY.topic_id, schema=schema_to_wire(each))
        )
        for each in versions
    )
    return CommittedBatch(0, len(records), 1, records)


WITHOUT = drop_column(add_column(FIRST, Field("more", Primitive("int"))), "more")
AGAIN = add_column(WITHOUT, Field("other", Primitive("string")))


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ((FIRST, replace(FIRST, last_field_id=7)), "version 1 of a schema is committed behind version 1"),
        ((FIRST, replace(FIRST, version=3)), "version 3 of a schema is committed behind version 1"),
        (
            (
                FIRST,
                replace(FIRST, version=2, last_field_id=7),
                replace(FIRST, version=3, fields=(*FIRST.fields, replace(AGAIN.fields[-1], id=7)), last_field_id=7),
            ),
            r"gives the ids \[7\] again",
        ),
    ],
)
def test_versions_follow_each_other_and_ids_are_given_once(versions: tuple[TopicSchema, ...], text: str) -> None:
    with pytest.raises(Violation, match=text):
        Schemas().committed(committed(*versions))


def test_versions_that_are_right_are_found_right() -> None:
    Schemas().committed(committed(FIRST, *_all_of_again()))


def _all_of_again() -> list[TopicSchema]:
    added = add_column(FIRST, Field("more", Primitive("int")))
    return [added, WITHOUT, AGAIN]


def test_who_tells_other_versions_than_are_committed_is_wrong() -> None:
    call: Any = SimpleNamespace(method="/minilog.v1.MetadataService/GetMetadata", host="b1")
    other = add_column(FIRST, Field("other", Primitive("int")))

    def told(*versions: TopicSchema) -> metadata_pb2.GetMetadataResponse:
        topic = metadata_pb2.TopicMetadata(topic_id=KEY.topic_id, schemas=map(schema_to_wire, versions))
        return metadata_pb2.GetMetadataResponse(topics=[topic])

    judge = Schemas()
    judge.committed(committed(FIRST))
    judge.saw(call, told(FIRST, other), True)  # it may be committed, and nobody has said so yet
    with pytest.raises(Violation, match="V13: the committed log has as version 2"):
        judge.committed(CommittedBatch(1, 2, 1, committed(FIRST, _all_of_again()[0]).records[1:]))
    with pytest.raises(Violation, match="V13: b1 tells version 2 of a schema as the 1th"):
        judge.saw(call, told(other), True)


def _state(latest: int, *withdrawn: int) -> CommittedBatch:
    state = records_pb2.TopicSchemaStateRecord(topic_id=KEY.topic_id, latest_version=latest, withdrawn=withdrawn)
    return CommittedBatch(2, 3, 1, (records_pb2.MetadataRecord(topic_schema_state=state),))


class TestPending:
    """A version that waits for the commit of a write."""

    MORE = add_column(FIRST, Field("more", Primitive("int")))

    def judge(self, *steps: admin_pb2.SchemaStep.ValueType) -> Schemas:
        """Of a topic with two versions, where somebody asked for these steps of the second."""
        judge, call = Schemas(), SimpleNamespace(method="/minilog.v1.AdminService/AlterTopics", host="b1")
        for step in steps:
            asked = admin_pb2.TopicAlteration(name="t0", schema=schema_to_wire(self.MORE), schema_step=step)
            judge.saw(call, admin_pb2.AlterTopicsRequest(topics=[asked]), False)
        topic = records_pb2.TopicRecord(topic_id=KEY.topic_id, name="t0")
        records = [records_pb2.MetadataRecord(topic=topic), *committed(FIRST, self.MORE).records]
        judge.committed(CommittedBatch(1, 2, 1, (*records, *_state(1).records)))
        return judge

    def test_it_is_the_latest_when_somebody_confirms_it(self) -> None:
        self.judge(admin_pb2.SCHEMA_STEP_PENDING, admin_pb2.SCHEMA_STEP_NONE).committed(_state(2))

    def test_it_is_not_the_latest_by_itself(self) -> None:
        judge = self.judge(admin_pb2.SCHEMA_STEP_PENDING, admin_pb2.SCHEMA_STEP_WITHDRAWN)
        with pytest.raises(Violation, match="the committed log has 2 as the latest version of t0, which nobody asked"):
            judge.committed(_state(2))

    def test_nobody_is_told_that_it_is(self) -> None:
        call: Any = SimpleNamespace(method="/minilog.v1.MetadataService/GetMetadata", host="b1")
        topic = metadata_pb2.TopicMetadata(topic_id=KEY.topic_id, schemas=map(schema_to_wire, (FIRST, self.MORE)))
        with pytest.raises(Violation, match="b1 has 2 as the latest version of t0"):
            self.judge(admin_pb2.SCHEMA_STEP_PENDING).saw(call, metadata_pb2.GetMetadataResponse(topics=[topic]), True)

    def test_it_is_withdrawn_when_somebody_asks_for_that(self) -> None:
        self.judge(admin_pb2.SCHEMA_STEP_WITHDRAWN).committed(_state(1, 2))
        with pytest.raises(Violation, match="version 2 of t0 is withdrawn, and nobody asked for that"):
            self.judge(admin_pb2.SCHEMA_STEP_PENDING).committed(_state(1, 2))

    def test_a_later_version_may_have_its_columns_and_gives_their_ids_to_no_others(self) -> None:
        judge = self.judge(admin_pb2.SCHEMA_STEP_WITHDRAWN)
        again = replace(add_column(FIRST, Field("third", Primitive("int"))), version=3)
        with pytest.raises(Violation, match=r"version 3 of a schema gives the ids .* again"):
            judge.committed(CommittedBatch(2, 3, 1, (*committed(again).records, *_state(1, 2).records)))


# -- what statistics leave out


BATCH_ROWS = 3


def batches_left_out_wrongly() -> list[str]:
    """Conditions that are true for a row of a batch, where its statistics say that they cannot be."""
    found = []
    columns = rows(FIRST)
    for seed in range(80):
        condition = drawn_condition(FIRST, random.Random(seed), len(VALUES))
        where = parse_where(as_sql(condition, FIRST), FIRST)
        for start in range(0, len(VALUES), BATCH_ROWS):
            part = columns[start : start + BATCH_ROWS]
            arrays = [(each, pa.array([row[each.id] for row in part], arrow_field(each).type)) for each in FIRST.fields]
            told = statistics_of((field, values) for field, values in arrays if field.name in default_columns(FIRST))
            known = read_statistics(told, FIRST, len(part))
            if not predicate.outcomes(where, known.get) & predicate.TRUE and any(truth(condition, row) for row in part):
                found.append(f"{condition} of {part}")
    return found


def test_no_batch_is_left_out_that_has_a_row_that_is_wanted() -> None:
    assert batches_left_out_wrongly() == []


@pytest.mark.parametrize(
    "name",
    [
        "V14 a highest value is cut as a lowest one",
        "V14 statistics ignore nulls",
        "V14 an edge of a batch is outside of it",
    ],
)
def test_statistics_that_leave_out_too_much_are_found(name: str) -> None:
    with mutated(SIMULATION[name]):
        assert batches_left_out_wrongly()
