"""Joining small batches for Spark, the source's schema, the reports of data loss, and what an import costs."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructType

from minilog.consumer.decode import POLL_SCHEMA, POLL_SCHEMA_WITH_HEADERS
from pyspark_minilog.errors import DataLoss, InvalidOption
from pyspark_minilog.reading.loss import LossReport
from pyspark_minilog.reading.read_task import TARGET_BYTES, TARGET_ROWS, joined
from pyspark_minilog.reading.schema import arrow_source_schema, check_source_schema, source_schema
from tests.rules import proves

SCHEMA = arrow_source_schema(False)


def polled(start: int, count: int, value: bytes = b"v", *, headers: bool = False) -> pa.RecordBatch:
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array([value] * count, pa.binary()),
        pa.array(["t"] * count),
        pa.array([0] * count, pa.int32()),
        pa.arange(start, start + count),
        pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
    ]
    if headers:
        columns.append(pa.nulls(count, POLL_SCHEMA_WITH_HEADERS.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=POLL_SCHEMA_WITH_HEADERS if headers else POLL_SCHEMA)


@proves("SPF.11")
@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_schema_is_the_one_that_spark_derives(include_headers: bool) -> None:
    assert to_arrow_schema(source_schema(include_headers), timezone="UTC").equals(arrow_source_schema(include_headers))


@proves("SPF.11")
def test_small_batches_are_joined_in_order() -> None:
    found = list(joined(iter([polled(n * 100, 100) for n in range(1000)]), SCHEMA))
    assert len(found) == 2
    assert all(batch.num_rows <= TARGET_ROWS for batch in found)
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(100_000))


def test_large_batches_go_as_they_are() -> None:
    batches = [polled(n, 4, b"x" * (TARGET_BYTES // 4)) for n in (0, 4)]
    assert [batch.num_rows for batch in joined(iter(batches), SCHEMA)] == [4, 4]


def test_a_stored_batch_far_above_the_target_is_cut() -> None:
    """What is small on the wire may be a hundred megabytes decoded, more than the JVM's direct memory takes."""
    found = list(joined(iter([polled(0, 64, b"x" * (TARGET_BYTES // 8))]), SCHEMA))
    assert max(batch.nbytes for batch in found) <= 2 * TARGET_BYTES
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(64))
    (many,) = [[batch.num_rows for batch in joined(iter([polled(0, 5 * TARGET_ROWS)]), SCHEMA)]]
    assert max(many) <= TARGET_ROWS
    assert sum(many) == 5 * TARGET_ROWS


@proves("SPF.11", "SPK.6")
@pytest.mark.parametrize("include_headers", [False, True])
def test_batches_for_spark_have_its_exact_schema(include_headers: bool) -> None:
    (batch,) = joined(iter([polled(0, 3, headers=include_headers)]), arrow_source_schema(include_headers))
    assert batch.schema.equals(arrow_source_schema(include_headers))


def test_nothing_to_read_is_no_batch() -> None:
    assert list(joined(iter([]), SCHEMA)) == []


@proves("SPO.20")
def test_a_schema_of_ones_own_is_refused() -> None:
    check_source_schema(source_schema(False), False)
    with pytest.raises(
        InvalidOption, match=r"the columns of a topic without a schema are fixed .*: leave .schema\(...\) out"
    ):
        check_source_schema(StructType().add("value", IntegerType()), False)


@proves("SPO.10")
def test_data_loss_fails_the_query_or_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLoss, match=r"data was lost: one; two. Remedy: set failOnDataLoss to false"):
        LossReport(True).report(["one", "two"])
    LossReport(True).report([])
    report = LossReport(False)
    report.report(["one"])
    report.report(["one"])
    assert caplog.text.count("the query goes on (failOnDataLoss=false): one") == 1


@proves("SPF.1", "SPF.36")
def test_importing_the_package_loads_neither_grpc_nor_arrow_nor_the_client() -> None:
    code = (
        "import sys; import pyspark.sql.datasource; before = set(sys.modules); import pyspark_minilog; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "assert not new & {'grpc', 'pyarrow', 'minilog', 'google'}, new; "
        "assert pyspark_minilog.DefaultSource.name() == 'minilog'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
