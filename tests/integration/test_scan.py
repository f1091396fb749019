"""`minilog.scan` against a real broker: the same rows each time, by every door, and only what is asked for travels."""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import replace
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minilog
from minilog import Admin, NewTopic, Producer, col, schema_from_ddl
from minilog.config import parse_config
from minilog.errors import InvalidArgument, UnknownTopicOrPartition
from minilog.polars import scan_minilog
from minilog.scanning.newest_rows import KeyCounts
from minilog.scanning.scan import Scan
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

TIME_MS = 1_700_000_000_000
PARTITIONS = 3
ROWS = pa.table(
    {
        "carrier": pa.array(["UA", "AA", None] * 1_000),
        "delay": pa.array(range(3_000), pa.int32()),
        "distance": pa.array([float(number) for number in range(3_000)]),
    }
)


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    schema = replace(schema_from_ddl("carrier string, delay int, distance double"), key_columns=("carrier",))
    with Admin(shared.client) as admin:
        admin.create_topics(
            [
                NewTopic("flights", PARTITIONS, schema=schema),
                NewTopic("plain", 2),
                NewTopic("pending", 1),
                NewTopic("trimmed", 1),
            ]
        )
    with Producer({**shared.client, "batch.size": 4_000}) as producer:
        for number in range(PARTITIONS):  # sorted by delay: each batch has its own bounds
            producer.send_batch("flights", ROWS.slice(number * 1_000, 1_000), number)
        for number in range(10):
            headers = {"h": b"x"}
            at_ms = TIME_MS + number
            producer.send("plain", b"%d" % number, key=b"k", partition=number % 2, timestamp=at_ms, headers=headers)
        producer.send_many("trimmed", [b"x"] * 10)
    return shared


def scan(cluster: Cluster, topic: str = "flights", *args: Any, **kwargs: Any) -> Scan:
    return minilog.scan(topic, *args, config=cluster.client, **kwargs)


def delays(found: pa.Table) -> list[int]:
    return sorted(found.column("delay").to_pylist())


# -- every door


def test_every_door_gives_the_same_rows(cluster: Cluster) -> None:
    late = scan(cluster, "flights", ["carrier", "delay"], col("delay") > 2_900)
    table = late.to_arrow()
    assert delays(table) == list(range(2_901, 3_000))
    assert table.schema == late.schema
    assert table.schema.names == ["carrier", "delay"]
    assert delays(pa.table(late)) == delays(table)
    assert delays(late.to_arrow_batch_reader().read_all()) == delays(table)
    assert sorted(late.to_pandas()["delay"]) == delays(table)
    assert sorted(late.to_polars()["delay"]) == delays(table)
    assert sorted(pl.DataFrame(late)["delay"]) == delays(table)
    assert late.count() == 99
    relation = late.to_duckdb(duckdb.connect())
    for _ in range(2):  # a relation may be asked again
        assert relation.aggregate("count(*), max(delay)").fetchall() == [(99, 2_999)]
    named = duckdb.sql("select count(*) from late where carrier = 'UA'")
    assert named is not None
    assert named.fetchall() == [(33,)]


def test_text_and_expressions_are_the_same_condition(cluster: Cluster) -> None:
    text = scan(cluster, where="delay between 5 and 7 or carrier is null and delay < 10").to_arrow()
    found = scan(cluster, where=col("delay").between(5, 7) | col("carrier").is_null() & (col("delay") < 10)).to_arrow()
    assert delays(text) == delays(found) == [2, 5, 6, 7, 8]


def test_a_table_is_ordered_by_partition_and_offset(cluster: Cluster) -> None:
    table = scan(cluster, "flights", ["_partition", "_offset", "delay"]).to_arrow()
    assert table.column("delay").to_pylist() == list(range(3_000))
    assert table.column("_offset").to_pylist() == list(range(1_000)) * PARTITIONS
    assert table.column("_partition").to_pylist() == [number for number in range(PARTITIONS) for _ in range(1_000)]


def test_a_scan_gives_the_same_rows_each_time_whatever_is_written(cluster: Cluster) -> None:
    with Admin(cluster.client) as admin, Producer(cluster.client) as producer:
        admin.create_topics([NewTopic("growing", 1, schema=schema_from_ddl("delay int"))])
        producer.send_many("growing", [{"delay": 1}]).result(10)
        found = scan(cluster, "growing")
        assert delays(found.to_arrow()) == [1]
        producer.send_many("growing", [{"delay": 2}]).result(10)
        admin.evolve_schema("growing", lambda known: minilog.schema_from_ddl("delay int, more string"))
        assert found.to_arrow().to_pylist() == [{"delay": 1}]
        assert found.count() == 1
        anew = scan(cluster, "growing").to_arrow().to_pylist()
        assert anew == [{"delay": 1, "more": None}, {"delay": 2, "more": None}]


# -- one shape


def test_topics_with_and_without_a_schema_have_the_same_metadata(cluster: Cluster) -> None:
    plain = scan(cluster, "plain", metadata=True).to_arrow()
    typed = scan(cluster, "flights", metadata=True).to_arrow()
    assert plain.schema.names[2:] == typed.schema.names[3:] == ["_topic", "_partition", "_offset", "_timestamp", "_key"]
    assert [plain.schema.field(each).type for each in plain.schema.names[2:]] == [
        typed.schema.field(each).type for each in plain.schema.names[2:]
    ]
    first = plain.slice(0, 1).to_pylist()[0]
    at = datetime.datetime.fromtimestamp(TIME_MS / 1000, datetime.UTC)
    assert first == {
        "key": b"k", "value": b"0", "_topic": "plain", "_partition": 0, "_offset": 0, "_timestamp": at, "_key": b"k",
    }  # fmt: skip
    assert typed.column("_key").to_pylist()[:3] == [b"UA", b"AA", None]
    headers = scan(cluster, "plain", ["_headers", "value"], partitions=[1]).to_arrow()
    assert headers.to_pylist()[0] == {"_headers": [{"key": "h", "value": b"x"}], "value": b"1"}
    assert scan(cluster, "plain").count() == 10


def test_records_without_a_schema_are_compared_by_all_that_they_have(cluster: Cluster) -> None:
    def values(where: Any) -> list[int]:
        records = scan(cluster, "plain", ["value"], where)
        numbers = sorted(int(value) for value in records.to_arrow().column("value").to_pylist())
        assert records.count() == len(numbers)
        return numbers

    at = datetime.datetime.fromtimestamp((TIME_MS + 4) / 1000, datetime.UTC)
    assert values(col("value") == b"3") == values("value = X'33'") == [3]
    assert values((col("_timestamp") >= at) & (col("_partition") == 0)) == [4, 6, 8]
    assert values(col("_offset").between(1, 2)) == [2, 3, 4, 5]
    assert values("_key is null or _topic <> 'plain'") == []
    assert values((col("_key") == b"k") & ~col("value").is_in([b"1", b"2"])) == [0, 3, 4, 5, 6, 7, 8, 9]
    metadata = scan(cluster, "plain", where=col("_offset") == 4, metadata=True).to_arrow()
    assert metadata.column("_partition").to_pylist() == [0, 1]
    assert metadata.column("value").to_pylist() == [b"8", b"9"]


def test_a_count_of_records_without_a_schema_reads_no_value(cluster: Cluster) -> None:
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic("large", 1)])
    with Producer({**cluster.client, "compression.type": "zstd", "transactional.id": "large"}) as producer:
        for is_kept in (True, False, True):
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                for number in range(100):
                    producer.send("large", b"x" * 1_000, key=b"%d" % number, headers={"h": b"x"})
                producer.flush()
                assert is_kept or 1 / 0
    assert scan(cluster, "large").count() == 200
    # from 50 to 99 there are records, then a marker, then 100 aborted records and their marker, and 18 records
    assert scan(cluster, "large", start=50, end=220).count() == 68
    assert scan(cluster, "large", where="_offset >= 50 and _offset < 220").count() == 68
    counted = scan(cluster, "large", []).explain(analyze=True)
    assert counted.travels == ()
    assert counted.travelled is not None
    assert counted.travelled.bytes_received < 2_000
    offsets = scan(cluster, "large", ["_offset"]).to_arrow().column("_offset").to_pylist()
    assert offsets == scan(cluster, "large", ["_offset", "value"]).to_arrow().column("_offset").to_pylist()
    assert len(offsets) == 200


# -- where it begins and ends


def test_a_scan_begins_and_ends_where_it_is_told(cluster: Cluster) -> None:
    def values(**places: Any) -> list[int]:
        found = scan(cluster, "plain", ["value"], **places).to_arrow()
        return sorted(int(each) for each in found.column("value").to_pylist())

    at = datetime.datetime.fromtimestamp((TIME_MS + 4) / 1000, datetime.UTC)
    assert values(start=3) == [6, 7, 8, 9]
    assert values(end={0: 1, 1: 0}) == [0]
    assert values(start=at) == [4, 5, 6, 7, 8, 9]
    assert values(start=f"@{TIME_MS + 3}", end=at + datetime.timedelta(milliseconds=3)) == [3, 4, 5, 6]
    assert values(start="latest") == []
    assert values(partitions=[]) == []
    assert values(partitions=[1], end=2) == [1, 3]
    assert values(start=at + datetime.timedelta(days=1)) == []


@pytest.mark.parametrize(
    ("asked", "error", "word"),
    [
        ({"start": 4, "end": 3}, InvalidArgument, "would end before it starts"),
        ({"start": 99}, InvalidArgument, "its log goes from 0 to 5"),
        ({"start": "yesterday"}, InvalidArgument, "give an offset"),
        ({"partitions": [7]}, UnknownTopicOrPartition, "partitions 0 to 1, not 7"),
        ({"where": "value > 1"}, InvalidArgument, "compare it with bytes, as X'0a'"),
        ({"where": "_headers is null"}, InvalidArgument, "no column '_headers'"),
        ({"columns": ["delay"]}, InvalidArgument, "no column 'delay'"),
    ],
)
def test_a_wrong_scan_is_refused_with_words(
    cluster: Cluster, asked: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        scan(cluster, "plain", **asked).to_arrow()


def test_only_what_is_committed_is_read(cluster: Cluster) -> None:
    settings = {**cluster.client, "transactional.id": "scan"}
    uncommitted = {**cluster.client, "isolation.level": "read_uncommitted"}

    def write_and_abort(producer: Producer) -> None:
        with producer.transaction():
            producer.send("pending", b"aborted").result(10)
            assert scan(cluster, "pending", ["value"]).to_arrow().to_pylist() == [{"value": b"committed"}]
            assert minilog.scan("pending", config=uncommitted).count() == 2
            raise ZeroDivisionError

    with Producer(settings) as producer:
        with producer.transaction():
            producer.send("pending", b"committed")
        with pytest.raises(ZeroDivisionError):
            write_and_abort(producer)
    assert scan(cluster, "pending", ["value"]).to_arrow().to_pylist() == [{"value": b"committed"}]


# -- what travels


def test_an_explanation_counts_what_travelled_and_what_was_left_out(cluster: Cluster) -> None:
    narrow = scan(cluster, "flights", ["distance"], col("delay") >= 2_990).explain(analyze=True)
    whole = scan(cluster, "flights").explain(analyze=True)
    assert narrow.travels == ("delay", "distance")
    assert narrow.by_statistics == ("delay",)
    assert narrow.travelled is not None
    assert whole.travelled is not None
    assert narrow.travelled.left_out_batches > 0.8 * narrow.travelled.batches
    assert narrow.travelled.bytes_received < 0.1 * whole.travelled.bytes_received
    assert whole.travelled.left_out_batches == 0
    assert scan(cluster, "flights").explain().travelled is None


# -- polars


def test_polars_reads_what_its_query_needs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], list[str]]] = []
    narrowed = Scan.narrowed

    def noted(self: Scan, columns: Any, conditions: Any) -> Scan:
        asked.append((list(columns), [str(each) for each in conditions]))
        return narrowed(self, columns, conditions)

    monkeypatch.setattr(Scan, "narrowed", noted)
    frame = scan_minilog("flights", config=cluster.client)
    query = frame.filter((pl.col("delay") >= 2_990) & (pl.col("distance").sqrt() > 0)).select("carrier")
    assert query.collect().height == 10
    assert [(sorted(columns), words) for columns, words in asked] == [
        (["carrier", "delay", "distance"], ["(`delay` >= 2990)"])
    ]
    asked.clear()
    assert frame.select(pl.col("distance").sum()).collect().item() == pc.sum(ROWS.column("distance")).as_py()
    assert asked == [(["distance"], [])]


def test_polars_gets_the_rows_that_its_own_frame_would_give(cluster: Cluster) -> None:
    lazy, eager = scan_minilog("flights", config=cluster.client, metadata=True), pl.DataFrame(pl.from_arrow(ROWS))
    condition = (pl.col("carrier") == "UA") | (pl.col("delay") % 7 == 0) & pl.col("carrier").is_null()
    found = lazy.filter(condition).select("delay", "carrier").sort("delay").collect()
    assert found.equals(eager.filter(condition).select("delay", "carrier").sort("delay"))
    assert lazy.select(pl.len()).collect().item() == 3_000
    assert lazy.head(5).collect().height == 5
    assert lazy.head(5).filter(pl.col("delay") >= 0).collect().height == 5
    assert lazy.filter(pl.col("_partition") == 1).select(pl.len()).collect().item() == 1_000


def test_a_scan_is_made_of_settings_of_the_environment(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILOG_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    assert parse_config({}).bootstrap_servers
    assert minilog.scan("plain").count() == 10


# -- the newest row of each key


@pytest.fixture(scope="module")
def accounts(cluster: Cluster) -> Cluster:
    """1,000 accounts in three partitions, each written three times, and keys and values with a deletion."""
    schema = replace(schema_from_ddl("id int, name string, balance double"), key_columns=("id",))
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic("accounts", PARTITIONS, schema=schema), NewTopic("pairs", 2)])
    with Producer({**cluster.client, "batch.size": 4_000}) as producer:
        for change in range(3):
            rows = [{"id": number, "name": f"n{number}", "balance": float(change)} for number in range(1_000)]
            producer.send_many("accounts", rows)
            producer.flush(10)
        for number, value in enumerate([b"1", b"2", None, b"4"]):
            producer.send("pairs", value, key=b"%d" % (number % 2)).result(10)
        producer.send("pairs", b"no key").result(10)
    return cluster


@pytest.mark.parametrize("memory_bytes", [2_000, 2**28])
def test_a_view_has_the_newest_row_of_each_key(accounts: Cluster, memory_bytes: int) -> None:
    settings = {**accounts.client, "latest.memory.bytes": memory_bytes}
    table = minilog.scan("accounts", view="latest", config=settings)
    assert table.count() == 1_000
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": number, "name": f"n{number}", "balance": 2.0} for number in range(1_000)]
    few = minilog.scan("accounts", ["id"], col("id") < 10, view="latest", config=settings)
    assert sorted(few.to_arrow().column("id").to_pylist()) == list(range(10))
    assert few.count() == 10
    assert minilog.scan("accounts", where="balance < 2", view="latest", config=settings).count() == 0


def test_a_view_of_keys_and_values_leaves_out_deleted_keys(accounts: Cluster) -> None:
    table = scan(accounts, "pairs", view="latest")
    assert table.to_arrow().to_pylist() == [{"key": b"1", "value": b"4"}]
    assert table.count() == 1
    explained = table.explain(analyze=True)
    assert explained.travelled is not None
    assert explained.travelled.keys == KeyCounts(keys=2, deletions=1, keyless=1)
    assert "1 rows of 2 keys, 1 of them deleted; 1 rows have no key" in str(explained)
