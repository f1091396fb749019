"""The keys of typed rows, against an encoding written value by value."""

from __future__ import annotations

import datetime
import decimal
import struct
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from minilog.producer.partitioner import partition_for_key
from minilog.typed.rows.keys import key_of
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version

FIELDS = "name string, raw binary, flag boolean, n int, big long, fare decimal(20,2), day date, at timestamp"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text(max_size=4),
    "raw": st.binary(max_size=4),
    "flag": st.booleans(),
    "n": st.integers(-(2**31), 2**31 - 1),
    "big": st.integers(-(2**63), 2**63 - 1),
    "fare": st.decimals(-(10**18) + 1, 10**18 - 1, places=2),
    "day": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "at": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1), timezones=st.just(datetime.UTC)),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=6)


def encoded(value: Any) -> bytes:
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case bool():
            return bytes([value])
        case int():
            return struct.pack(">q", value)
        case decimal.Decimal():
            return int(value * 100).to_bytes(16, "big", signed=True)
        case datetime.datetime():
            return struct.pack(">q", (value - EPOCH) // datetime.timedelta(microseconds=1))
        case _:
            return struct.pack(">q", (value - EPOCH.date()).days)


def joined(values: list[Any]) -> bytes:
    return b"".join(
        struct.pack(">i", -1) if value is None else struct.pack(">i", len(encoded(value))) + encoded(value)
        for value in values
    )


@given(ROWS, st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4), st.integers(0, 2))
def test_keys_are_the_bytes_of_their_columns(rows: list[dict[str, Any]], names: list[str], skipped: int) -> None:
    schema = first_version(parse_ddl(FIELDS), names)
    batch = pa.RecordBatch.from_pylist(rows, schema.arrow_schema).slice(skipped)
    found = key_of(batch, schema)
    if not names:
        assert found is None
        return
    assert found is not None
    rest = rows[skipped:]
    if len(names) == 1:
        wanted = [None if row[names[0]] is None else encoded(row[names[0]]) for row in rest]
    else:
        wanted = [joined([row[name] for name in names]) for row in rest]
    assert found.to_pylist() == wanted


def test_a_key_of_text_goes_where_kafka_sends_it() -> None:
    schema = first_version(parse_ddl("carrier string"), ["carrier"])
    found = key_of(pa.record_batch({"carrier": ["UA"]}), schema)
    assert found is not None
    assert partition_for_key(found[0].as_py(), 7) == partition_for_key(b"UA", 7)
