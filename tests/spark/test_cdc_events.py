"""jobs/debezium.py: which rows and deletions come of Debezium's change events, and which events are bad, and why."""

from __future__ import annotations

import base64
import importlib
import json
import pathlib
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from minilog import schema_from_ddl
from tests.spark.test_typed_job import reasons

JOBS = pathlib.Path(__file__).parents[2] / "jobs"
ACCOUNTS = schema_from_ddl("id long NOT NULL, owner string, balance decimal(12,2)", ["id"])
DDL = (
    "id long NOT NULL, small short, score double, rating float, ok boolean, opened date, seen timestamp_ntz, "
    "changed timestamp_ntz, at timestamp, photo binary, balance decimal(12,2), tags array<int>, "
    "amounts array<decimal(38,3)>"
)
ALL_TYPES = schema_from_ddl(DDL, ["id"])
NOON = datetime(2024, 5, 1, 12)
NOON_MS = int(NOON.replace(tzinfo=UTC).timestamp()) * 1000
_ABSENT = "__debezium_unavailable_value"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(JOBS))
    return importlib.import_module("debezium")


def event(op: str, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "table": "accounts", "lsn": 24023128, "ts_ms": 1559033904863}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1559033904961, **more}


def changed(key: Any, value: Any) -> tuple[str | None, str | None]:
    """A record as texts: JSON of what is no text."""
    texts = [each if each is None or isinstance(each, str) else json.dumps(each) for each in (key, value)]
    return texts[0], texts[1]


def row(**columns: Any) -> tuple[str | None, str | None]:
    """A record of a row that was created."""
    return changed({"id": columns["id"]}, event("c", columns))


def judged(
    job: ModuleType, spark: SparkSession, schema: Any, *records: tuple[str | None, str | None], **encoding: Any
) -> DataFrame:
    rows = [
        (key and key.encode(), value if value is None else value.encode(), "t", 0, number)
        for number, (key, value) in enumerate(records)
    ]
    frame = spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset bigint")
    is_open = encoding.pop("is_open", False)
    found: DataFrame = job.parsed(job.read_json(frame, schema, is_open=is_open), schema, job.Encoding(**encoding))
    return found


def unscaled(number: int) -> str:
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def rows_of(job: ModuleType, found: DataFrame) -> list[Row]:
    return list(job.changes(found).collect())


def test_each_op_becomes_a_row_or_a_deletion(job: ModuleType, spark: SparkSession) -> None:
    ann, bob = {"id": 1, "owner": "Ann", "balance": unscaled(1234)}, {"id": 2, "owner": "Bob", "balance": None}
    types = {"type": "struct", "fields": [], "optional": False}
    records = (
        changed({"id": 1}, event("r", ann)),
        changed({"id": 2}, event("c", bob)),
        changed({"id": 1}, event("u", ann | {"owner": "Anne"}, {"id": 1})),
        changed({"id": 1}, event("d", None, {"id": 1})),
        changed({"id": 1}, None),
        changed({"id": 2}, event("d")),
        changed(None, event("d", None, bob)),
        changed({"schema": types, "payload": {"id": 1}}, {"schema": types, "payload": event("c", ann)}),
        changed({"schema": types, "payload": {"id": 1}}, None),
        changed(None, event("c", bob)),
    )
    found = judged(job, spark, ACCOUNTS, *records)
    assert reasons(found) == [None] * len(records)
    assert [tuple(each) for each in rows_of(job, found)] == [
        (1, "Ann", Decimal("12.34"), False),
        (2, "Bob", None, False),
        (1, "Anne", Decimal("12.34"), False),
        (1, None, None, True),
        (1, None, None, True),
        (2, None, None, True),
        (2, None, None, True),
        (1, "Ann", Decimal("12.34"), False),
        (1, None, None, True),
        (2, "Bob", None, False),
    ]


def test_events_that_are_no_change_of_a_row_are_bad_with_their_reason(job: ModuleType, spark: SparkSession) -> None:
    good = {"id": 1, "owner": "Ann", "balance": None}
    expected = {
        changed(None, event("t")): "the table was truncated, and a topic deletes single keys alone",
        changed({"prefix": "a"}, event("m")): "the record's key has the column prefix, and the topic's key is id",
        changed(None, event("m")): "this is a message of the database, and not a change of a row",
        changed({"id": 1}, event("x", good)): "the event has the unknown op x",
        changed({"id": 1}, good): "this is no change event of Debezium, because it has no op "
        "(jobs/typed.py takes rows without an envelope)",
        changed({"id": 1}, "{"): "this is not a JSON object",
        changed({"id": 1}, ""): "this is not a JSON object",
        changed({"id": 1}, "[1]"): "this is not a JSON object",
        changed({"id": 1}, event("u", None)): "the event has op u, and no row in `after`",
        changed({"id": 1}, event("u", 5)): "the event has op u, and no row in `after`",
        changed(None, None): "there is neither a key nor a value",
        changed(None, event("d")): "a deletion has no value of key column 'id', neither in the record's key nor in "
        "`before`",
        changed({"region": "eu"}, event("c", good)): "the record's key has the column region, and the topic's key is "
        "id",
        changed("Struct{id=1}", event("c", good)): "the record's key has no value of key column 'id' (long)",
        changed("Struct{id=1}", None): "the record's key has no value of key column 'id' (long)",
        changed({"id": 2}, event("c", good)): "the row has 'id' 1, and the record's key has 2: their order is not "
        "certain",
        changed(None, event("c", {"owner": "Ann"})): "the row has no value of key column 'id'",
        changed({"id": 1}, event("c", good | {"gate": 4})): "the topic has no column gate",
        changed({"id": 1}, event("c", good | {"owner": _ABSENT})): "column 'owner' has the text for a value that the "
        "database did not send: set REPLICA IDENTITY FULL on the table",
    }
    found = judged(job, spark, ACCOUNTS, *expected)
    assert reasons(found) == list(expected.values())
    assert rows_of(job, found) == []


def test_columns_that_the_topic_does_not_have_may_be_left_out(job: ModuleType, spark: SparkSession) -> None:
    found = judged(job, spark, ACCOUNTS, row(id=1, owner="Ann", gate=4), is_open=True)
    assert [tuple(each) for each in rows_of(job, found)] == [(1, "Ann", None, False)]


def test_values_of_all_types(job: ModuleType, spark: SparkSession) -> None:
    record = row(
        id=2**53 + 1, small=-3, score=0.1, rating=0.1, ok=True, opened=19844, seen=NOON_MS + 5,
        changed=NOON_MS * 1000 + 7, at="2024-05-01T14:00:00.000007+02:00", photo="AP8=", balance=unscaled(-1),
        tags=[1, None],
        amounts=[{"scale": 3, "value": unscaled(-(10**38 - 1))}, {"scale": 0, "value": unscaled(5)}, 1.5, None],
    )  # fmt: skip
    written = row(
        id=1, opened="2024-05-01", seen="2024-05-01T12:00:00", changed=None, at=NOON_MS * 1000, score="NaN",
        rating="Infinity", balance=unscaled(10**12 - 1),
    )  # fmt: skip
    found = judged(job, spark, ALL_TYPES, record, written, milliseconds=frozenset(["seen"]))
    assert reasons(found) == [None, None]
    first, second = rows_of(job, found)
    assert (first.id, first.small, first.score, first.ok) == (2**53 + 1, -3, 0.1, True)
    assert first.rating == pytest.approx(0.1, rel=1e-7)
    assert (first.opened, first.photo) == (date(2024, 5, 1), bytearray(b"\x00\xff"))
    assert (first.seen, first.changed) == (NOON.replace(microsecond=5000), NOON.replace(microsecond=7))
    assert first.at == NOON.replace(microsecond=7)  # in the session's zone, UTC
    assert (first.balance, first.tags) == (Decimal("-0.01"), [1, None])
    assert first.amounts == [Decimal(f"-{'9' * 35}.999"), Decimal(5), Decimal("1.5"), None]
    assert (second.opened, second.seen, second.changed, second.at) == (date(2024, 5, 1), NOON, None, NOON)
    assert second.score != second.score
    assert (second.rating, second.balance) == (float("inf"), Decimal("9999999999.99"))


def test_a_value_that_does_not_fit_is_bad_and_never_null_or_another(job: ModuleType, spark: SparkSession) -> None:
    unfit: dict[str, list[Any]] = {
        "id": ["one", 1.5, 2**63],
        "small": [40_000, "3"],
        "score": ["high", True],
        "rating": [1e39],
        "ok": [1, "true"],
        "opened": ["May", "2024-13-01", 1.5, 2**31],
        "seen": ["2024-05-01T12:00:00Z", "noon", 2**63, 2**62],
        "changed": ["2024-05-01T12:00:00.1234567"],
        "at": ["2024-05-01T12:00:00", "2024-05-01T12:00:00.1234567Z"],
        "photo": ["a!", 5],
        "balance": [
            "12.345",
            "!",
            {"scale": 3, "value": unscaled(12345)},
            12.345,
            unscaled(10**12),
            {"scale": 2},
            True,
        ],
        "tags": [[1, "x"], 5],
        "amounts": [[{"scale": 4, "value": unscaled(12345)}], [{"scale": 0, "value": unscaled(10**38)}], ["!"]],
    }
    cases = [(name, value) for name, values in unfit.items() for value in values]
    records = [changed(None, event("c", {"id": 1, name: value})) for name, value in cases]
    found = judged(job, spark, ALL_TYPES, *records, milliseconds=frozenset(["seen"]))
    for (name, value), reason in zip(cases, reasons(found), strict=True):
        assert reason is not None, (name, value)
        assert reason.startswith(f"column {name!r} is "), (name, value, reason)
        assert reason.endswith(" does not fit")


@pytest.mark.parametrize(
    ("encoding", "good", "bad"),
    [
        ({"decimals": "string"}, {"balance": "-12.30"}, {"balance": "12.345"}),
        ({"decimals": "string"}, {"balance": "1.2E+1"}, {"balance": "NAN"}),
        ({"decimals": "double"}, {"balance": 12.34}, {"balance": 1.5e-7}),
        ({"binary": "hex"}, {"photo": "00ff"}, {"photo": "0g"}),
        ({"binary": "base64-url-safe"}, {"photo": "-_8="}, {"photo": "!"}),
        ({"unavailable": "gone"}, {"photo": "AAA="}, {"photo": base64.b64encode(b"gone").decode()}),
    ],
)
def test_the_settings_of_the_connector(
    job: ModuleType, spark: SparkSession, encoding: Any, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    (name,) = good
    schema = schema_from_ddl(f"id long, {ALL_TYPES.column(name)}", ["id"])
    found = judged(job, spark, schema, row(id=1, **good), row(id=1, **bad), **encoding)
    assert [each is None for each in reasons(found)] == [True, False]
    assert rows_of(job, found)[0][name] is not None


def test_events_with_a_schema_say_what_their_numbers_mean(job: ModuleType, spark: SparkSession) -> None:
    names = {"seen": "io.debezium.time.Timestamp", "changed": "io.debezium.time.NanoTimestamp", "at": "other"}
    columns: list[dict[str, Any]] = [
        {"field": name, "type": "int64", "name": meaning} for name, meaning in names.items()
    ]
    decimals = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}}
    columns.append({"field": "balance", "type": "bytes", **decimals})
    types = {"type": "struct", "fields": [{"field": image, "fields": columns} for image in ("before", "after")]}
    values = {
        "id": 1,
        "seen": NOON_MS,
        "changed": NOON_MS * 10**6 + 9000,
        "at": NOON_MS * 1000,
        "balance": unscaled(12300),
    }
    uneven = values | {"changed": NOON_MS * 10**6 + 1}
    records = [changed(None, {"schema": types, "payload": event("c", each)}) for each in (values, uneven)]
    found = judged(job, spark, ALL_TYPES, *records)
    assert [each is None for each in reasons(found)] == [True, False]
    (good,) = rows_of(job, found)
    assert (good.seen, good.changed, good.at) == (NOON, NOON.replace(microsecond=9), NOON)
    assert good.balance == Decimal("1.23")


def test_columns_of_structs_and_maps_are_refused(job: ModuleType, spark: SparkSession) -> None:
    schema = schema_from_ddl("id int, place struct<gate: string>", ["id"])
    with pytest.raises(ValueError, match="this job fills columns of simple types, and arrays of them"):
        judged(job, spark, schema, changed(None, None))
