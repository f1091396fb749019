"""Readers with conditions: a message holds the loop for a bounded amount of work, whatever was asked and is stored."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import InvalidArgument
from minilog.record_batch.builder import build_batch
from minilog.record_batch.header import HEADER_BYTES, decode_header, iterate_headers
from minilog.typed.rows.batch import TypedRows, build_typed_batch
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.evolution import rename_column
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2, typed_pb2
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.replication.sessions.scanner import BATCH_WORK
from minilog_broker.replication.sessions.selected import MAX_KNOWN, Scanners
from tests.unit.record_batch.batches import full_columns
from tests.unit.replication.cluster import KEY, NOW_US, TOPIC_ID, ReplicaCluster, quick_settings, runs_of

SCHEMA = first_version(parse_ddl("id long, content string"))
SCHEMAS = TopicSchemas((SCHEMA,))
BATCHES = 400
TERMS = 200
IDS = random.Random(58).sample(range(1 << 40), BATCHES)


def compared(*numbers: int) -> typed_pb2.Predicate:
    """A comparison for each, as who writes a condition by hand has it."""
    terms = [
        typed_pb2.Predicate(equal=typed_pb2.Comparison(field_id=1, value=typed_pb2.Bound(integer=number)))
        for number in numbers
    ]
    return typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=terms))


def one_of(*numbers: int) -> typed_pb2.Predicate:
    return typed_pb2.Predicate(one_of=typed_pb2.SetCondition(field_id=1, integers=sorted(numbers)))


def small_batches(count: int = BATCHES, **settings: int) -> ReplicaCluster:
    """A leader of a typed topic, with batches of one row."""
    cluster = ReplicaCluster(brokers=1, min_in_sync=1, leader_id=None, settings=quick_settings(**settings))
    cluster[1].level.reach(SUPPORTED_LEVELS.highest)
    cluster.config = cluster[1].config = replace(cluster.config, schemas=SCHEMAS)
    cluster.controller.create(KEY, (1,), 1)
    cluster.settle()
    for number in IDS[:count]:
        rows = pa.RecordBatch.from_pylist([{"id": number, "content": "row"}], SCHEMA.arrow_schema)
        cluster.produce(1, build_typed_batch(TOPIC_ID, 0, TypedRows(SCHEMA, rows), timestamp_us=NOW_US))
    cluster.settle()
    return cluster


def opened(cluster: ReplicaCluster, where: typed_pb2.Predicate | None) -> int:
    selection = typed_pb2.Selection(schema_version=1, field_ids=[1], where=where)
    return opened_at(cluster, data_pb2.FetchPosition(position_number=1, leader_epoch=-1, selection=selection))


def opened_at(cluster: ReplicaCluster, position: data_pb2.FetchPosition) -> int:
    position.partition_id.topic_id, position.partition_id.partition = KEY
    request = data_pb2.FetchRequest(credit_bytes=1 << 30, positions=[position])
    session_id = cluster.session_id()
    cluster[1].manager.open_consumer_session(session_id, request, cluster.now_ms)
    cluster[1].manager.fetch_request(session_id, request, cluster.now_ms)
    return session_id


def test_a_reader_of_headers_gets_no_payload_of_a_topic_without_a_schema_and_rows_of_one_that_has_one() -> None:
    plain = ReplicaCluster(brokers=1, min_in_sync=1, leader_id=None, settings=quick_settings())
    plain.controller.create(KEY, (1,), 1)
    plain.settle()
    for _ in range(5):
        plain.produce(1, build_batch(TOPIC_ID, 0, full_columns(3)))
    plain.settle()
    for cluster, is_bare in ((plain, True), (small_batches(5), False)):
        position = data_pb2.FetchPosition(position_number=1, leader_epoch=-1, headers_only=True)
        [batches] = sent(cluster, opened_at(cluster, position))
        headers = [header for _, header in iterate_headers(batches)]
        assert len(headers) == 5
        assert all((header.length == HEADER_BYTES) == is_bare for header in headers)


def sent(cluster: ReplicaCluster, session_id: int) -> list[bytes]:
    """What each message has, until all was sent."""
    found: list[bytes] = []
    while (message := cluster[1].next_message(session_id)) is not None:
        found.append(b"".join(bytes(batches) for _, batches in runs_of(message)))
    return [each for each in found if each]


def counts(messages: list[bytes]) -> list[int]:
    return [sum(1 for _ in iterate_headers(batches)) for batches in messages]


@pytest.mark.parametrize(
    "where",
    [None, one_of(*IDS[:TERMS]), compared(*range(TERMS)), typed_pb2.Predicate(negated=compared(*range(TERMS)))],
    ids=["columns", "set", "terms", "hidden terms"],
)
def test_batches_times_terms_of_one_message_are_bounded_and_nothing_is_missing(
    where: typed_pb2.Predicate | None,
) -> None:
    cluster = small_batches()
    messages = sent(cluster, opened(cluster, where))
    terms = 0 if where is None else 1 if where.HasField("one_of") else TERMS
    assert max(counts(messages)) * (BATCH_WORK + terms) <= cluster.settings.scanning_work + BATCH_WORK + TERMS + 2
    offsets = [header.base_offset for batches in messages for _, header in iterate_headers(batches)]
    assert offsets == list(range(BATCHES))


def test_a_set_of_values_costs_as_much_as_one_value() -> None:
    cluster = small_batches()
    one, many = (counts(sent(cluster, opened(cluster, one_of(*values)))) for values in (IDS[:1], IDS[:TERMS]))
    assert one == many
    whole = [
        header for batches in sent(cluster, opened(cluster, one_of(*IDS[:7]))) for _, header in iterate_headers(batches)
    ]
    assert [header.base_offset for header in whole if header.record_count] == list(range(7))


def test_a_filter_that_works_well_makes_no_read_larger_than_what_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was up to 64 times as much, up to the 4 MiB of a message, and thousands of batches of it."""
    cluster = small_batches()
    log = cluster[1].logs[KEY]
    stored, asked = sum(len(log.read(offset, 1, offset + 1)) for offset in range(BATCHES)), list[int]()
    reading = type(log).read

    def read(self: object, offset: int, max_bytes: int, end_offset: int) -> bytes:
        found = reading(log, offset, max_bytes, end_offset)
        asked.append(len(found))
        return found

    monkeypatch.setattr(type(log), "read", read)
    sent(cluster, opened(cluster, compared(*range(TERMS))))
    assert sum(asked[1:]) <= 1.5 * stored, "hardly anything is read twice"


def test_after_a_costly_message_the_next_one_waits_for_its_turn_and_after_a_short_one_it_does_not() -> None:
    cluster = small_batches()
    session_id = opened(cluster, compared(*range(TERMS)))
    manager = cluster[1].manager
    assert not manager.is_costly(session_id)
    assert cluster[1].next_message(session_id) is not None
    assert manager.is_costly(session_id)
    sent(cluster, session_id)
    assert not manager.is_costly(session_id)
    assert not manager.is_costly(session_id + 1)
    rows = pa.RecordBatch.from_pylist([{"id": 7, "content": "row"}], SCHEMA.arrow_schema)
    cluster.produce(1, build_typed_batch(TOPIC_ID, 0, TypedRows(SCHEMA, rows), timestamp_us=NOW_US))
    cluster.settle()
    session_id = opened(cluster, one_of(7))
    assert cluster[1].next_message(session_id) is not None


def test_a_filter_of_many_is_read_once_and_an_old_one_is_forgotten() -> None:
    scanners = Scanners()
    asked = typed_pb2.Selection(schema_version=1, field_ids=[1], where=compared(1, 2, 3))
    same = typed_pb2.Selection.FromString(asked.SerializeToString())
    first = scanners.of(asked, SCHEMAS)
    assert scanners.of(same, SCHEMAS) is first
    later = TopicSchemas((SCHEMA, rename_column(SCHEMA, "content", "text")))
    assert scanners.of(same, later) is not first
    other = typed_pb2.Selection(schema_version=1, field_ids=[1], where=compared(4))
    assert scanners.of(other, SCHEMAS) is not first
    for number in range(MAX_KNOWN):
        scanners.of(typed_pb2.Selection(schema_version=1, where=compared(number)), SCHEMAS)
    assert scanners.of(same, SCHEMAS) is not first


def test_long_conditions_are_kept_as_far_as_their_bytes_allow_and_bad_ones_are_not() -> None:
    scanners = Scanners()
    bad = typed_pb2.Selection(schema_version=1, where=typed_pb2.Predicate(is_null=99))
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="field 99"):
            scanners.of(bad, SCHEMAS)
    long = typed_pb2.Selection(schema_version=1, where=one_of(*range(20_000)))
    first = scanners.of(long, SCHEMAS)
    assert scanners.of(long, SCHEMAS) is first
    for number in range(1, 40):
        scanners.of(typed_pb2.Selection(schema_version=1, where=one_of(*range(number, 20_000 + number))), SCHEMAS)
    assert scanners.of(long, SCHEMAS) is not first


def test_a_large_batch_is_sent_however_little_work_is_left() -> None:
    cluster = small_batches(1, scanning_work=1)
    (batches,) = sent(cluster, opened(cluster, None))
    assert decode_header(batches).record_count == 1
