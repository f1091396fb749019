"""A leader refuses records and rows without a key in a compacted topic. docs/spec/formats.md § What a leader checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidRecord, MinilogError
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import add_column, move_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema, give_ids
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog_broker.replication.leader.produce import validated
from minilog_broker.replication.partition_state import CleanupPolicy, TopicConfig
from tests.rules import proves
from tests.unit.replication.broker import KEY, NOW_US, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import WRITE

pytestmark = proves("PR.10")

COMPACT, BOTH = CleanupPolicy.COMPACT, CleanupPolicy.COMPACT | CleanupPolicy.DELETE
ONE_KEY = give_ids(schema_from_ddl("name string, id long", ["id"], None))
TWO_KEYS = give_ids(schema_from_ddl("name string, id long", ["name", "id"], None))
Rows = list[dict[str, Any]]


def keyed(*keys: bytes | None, **how: Any) -> bytes:
    columns = records_to_columns([b"value"] * len(keys), keys=list(keys))
    return build_batch(*KEY, columns, timestamp_us=NOW_US, **how)


def rows_of(rows: Rows, schema: TopicSchema, **how: Any) -> bytes:
    table = pa.RecordBatch.from_pylist(rows, schema.arrow_schema)
    return build_typed_batch(*KEY, TypedRows(schema, table), timestamp_us=NOW_US, **how)


def config(schema: TopicSchema | None = None, policy: CleanupPolicy = COMPACT) -> TopicConfig:
    schemas = None if schema is None else TopicSchemas((schema,))
    return TopicConfig(1, 8 << 20, 1 << 30, 1 << 40, True, -1, -1, False, cleanup_policy=policy, schemas=schemas)


def refusal(data: bytes, topic: TopicConfig) -> str:
    with pytest.raises(InvalidRecord) as refused:
        validated(KEY, data, topic, NOW_US)
    return str(refused.value)


# -- keys and values


@pytest.mark.parametrize("policy", [COMPACT, BOTH])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_record_without_a_key_is_refused_and_the_first_one_is_named(policy: CleanupPolicy, codec: str) -> None:
    topic = config(policy=policy)
    assert "record 2 of the batch (the first one is 0) has no key" in refusal(
        keyed(b"a", b"b", None, b"c", compression=codec), topic
    )
    several = refusal(keyed(b"a", None, None, None, compression=codec), topic)
    assert "record 1 of the batch (the first one is 0) and 2 more have no key" in several
    assert "send each record with a key" in several


def test_a_batch_without_a_column_of_keys_is_refused() -> None:
    assert "record 0 of the batch (the first one is 0) and 2 more have no key" in refusal(batch(3), config())


def test_records_with_keys_are_taken_with_an_empty_key_and_without_a_value() -> None:
    assert validated(KEY, keyed(b"a", b"", b"c"), config(), NOW_US).record_count == 3
    deletion = build_batch(*KEY, records_to_columns([None], keys=[b"a"]), timestamp_us=NOW_US)
    assert validated(KEY, deletion, config(), NOW_US).record_count == 1


def test_a_topic_that_is_not_compacted_takes_records_without_a_key() -> None:
    topic = config(policy=CleanupPolicy.DELETE)
    assert validated(KEY, keyed(b"a", None), topic, NOW_US).record_count == 2
    assert validated(KEY, batch(3), topic, NOW_US).record_count == 3


# -- rows


def test_a_row_whose_only_key_column_is_null_is_refused() -> None:
    rows: Rows = [{"name": "a", "id": 1}, {"name": "b", "id": None}, {"name": None, "id": 2}]
    text = refusal(rows_of(rows, ONE_KEY), config(ONE_KEY))
    assert "row 1 of the batch (the first one is 0) has no value in 'id', the only key column" in text
    assert "send each row with a value there" in text
    assert validated(KEY, rows_of(rows, ONE_KEY), config(ONE_KEY, CleanupPolicy.DELETE), NOW_US).record_count == 3
    assert validated(KEY, rows_of([rows[0], rows[2]], ONE_KEY), config(ONE_KEY), NOW_US).record_count == 2


def test_a_row_that_deletes_its_key_is_taken() -> None:
    table = pa.RecordBatch.from_pylist([{"name": "a", "id": 1}, {"name": None, "id": 2}], ONE_KEY.arrow_schema)
    rows = TypedRows(ONE_KEY, table, deletions=pa.array([False, True]))
    data = build_typed_batch(*KEY, rows, timestamp_us=NOW_US)
    assert validated(KEY, data, config(ONE_KEY), NOW_US).record_count == 2


def test_of_several_key_columns_nulls_are_values_of_the_key() -> None:
    rows: Rows = [{"name": None, "id": 1}, {"name": None, "id": None}]
    assert validated(KEY, rows_of(rows, TWO_KEYS), config(TWO_KEYS), NOW_US).record_count == 2


def test_the_key_column_is_that_of_the_batchs_own_version() -> None:
    second = move_column(add_column(ONE_KEY, Field("city", Primitive("string"))), "id", after="first")
    second = replace(second, version=2)
    topic = replace(config(), schemas=TopicSchemas((ONE_KEY,)).followed_by(second))
    assert validated(KEY, rows_of([{"id": 1, "name": None, "city": None}], second), topic, NOW_US).record_count == 1
    assert "row 0" in refusal(rows_of([{"id": None, "name": "a", "city": "b"}], second), topic)
    assert "row 0" in refusal(rows_of([{"id": None, "name": "a"}], ONE_KEY), topic)


# -- in the leader


def compacted(cluster: ReplicaCluster) -> None:
    cluster.controller.alter(replace(cluster.config, cleanup_policy=COMPACT))
    cluster.settle()


def error_of(cluster: ReplicaCluster, ticket: int) -> MinilogError | None:
    return cluster[1].answers[ticket].error


def test_a_topic_that_becomes_compacted_keeps_its_records_without_keys_and_takes_no_more() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1, batch(3))
    cluster.settle()
    compacted(cluster)
    refused = cluster.produce(1, batch(3))
    cluster.settle()
    assert isinstance(error_of(cluster, refused), InvalidRecord)
    accepted = cluster.produce(1, keyed(b"a"))
    cluster.settle()
    assert error_of(cluster, accepted) is None
    assert cluster[1].answers[accepted].base_offset == 3, "the refused batch has no offsets, and the old ones are there"
    cluster.controller.alter(replace(cluster.config, cleanup_policy=CleanupPolicy.DELETE))
    cluster.settle()
    taken = cluster.produce(1, batch(3))
    cluster.settle()
    assert error_of(cluster, taken) is None


def test_a_producer_of_transactions_is_refused_too_before_its_coordinator_is_asked() -> None:
    cluster = ReplicaCluster()
    compacted(cluster)
    ticket = cluster.produce(1, transactional(batch(1, producer=(7, 0, 0))), transaction=WRITE)
    cluster.settle()
    assert isinstance(error_of(cluster, ticket), InvalidRecord)
    assert not cluster[1].registrations


def test_an_idempotent_producer_goes_on_with_the_sequence_that_was_refused() -> None:
    cluster = ReplicaCluster()
    compacted(cluster)
    first = cluster.produce(1, batch(1, producer=(7, 0, 0)))
    again = cluster.produce(1, keyed(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    cluster.settle()
    assert isinstance(error_of(cluster, first), InvalidRecord)
    assert error_of(cluster, again) is None
