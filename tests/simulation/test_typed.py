"""What the simulator knows of rows by itself: conditions, who has to see what, and versions of schemas."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from minilog.partition_key import PartitionKey
from minilog.typed.conditions import predicate
from minilog.typed.conditions.predicate import evaluate
from minilog.typed.conditions.statistics import default_columns, read_statistics, statistics_of
from minilog.typed.conditions.where import parse_where
from minilog.typed.schema.evolution import add_column, rename_column
from minilog.typed.schema.fields import Field, Primitive, arrow_field
from minilog.typed.schema.topic_schema import TopicSchema
from tests.rules import mutated
from tests.rules.table import SIMULATION
from tests.simulation.clients.rows import (
    as_sql,
    column_value,
    drawn_condition,
    first_schema,
    truth,
)
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


def test_an_edge_of_a_batch_that_is_taken_for_outside_leaves_out_too_much() -> None:
    with mutated(SIMULATION["V14 an edge of a batch is outside of it"]):
        assert batches_left_out_wrongly()
