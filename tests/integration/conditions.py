"""Conditions of readers, honest and made by hand: attacks as tests/integration/well_behaved.py has them.

    python -m tests.integration.well_behaved tests.integration.conditions:eight_readers --seconds 10

The topic has 2,000 batches of one row in one partition, as a producer without linger leaves them. Each `id` is drawn
from a wide range, so that statistics leave out nearly every batch, and a condition is held against all of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import uuid
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import pyarrow as pa

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, schema_from_ddl
from minilog.limits import MAX_POSITIONS
from minilog.stream_messages import FETCH, StreamMessage
from minilog.v1 import common_pb2, data_pb2, typed_pb2
from tests.cluster import HOST, Cluster
from tests.integration.attacks import send_and_wait

TOPIC = "measured"
BATCHES = 2_000
READERS = 8
VALUES = 300
SECONDS_TO_BEGIN, SECONDS_TO_READ = 60.0, 10.0
SCHEMA = schema_from_ddl("id long, content string")
_SPREAD = 1 << 40


def eight_readers(cluster: Cluster) -> Iterator[None]:
    """Eight programs that look for 300 ids, over and over: `poll_arrow(columns=["id"], where="id in (...)")`."""
    yield from _readers(cluster, READERS, VALUES)


def one_reader_of_one_value(cluster: Cluster) -> Iterator[None]:
    """The same by one program for one id: what the batches cost without a long condition."""
    yield from _readers(cluster, 1, 1)


def long_condition(cluster: Cluster) -> Iterator[None]:
    """44 KiB of `is null`, made by hand: eleven thousand terms for each of 2,000 batches."""
    term = typed_pb2.Predicate(is_null=1)
    condition = typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=[term] * (11 << 10)))
    yield from _by_hand(cluster, [condition])


def hidden_condition(cluster: Cluster) -> Iterator[None]:
    """The same below a `not`."""
    term = typed_pb2.Predicate(is_null=1)
    inner = typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=[term] * (11 << 10)))
    yield from _by_hand(cluster, [typed_pb2.Predicate(negated=inner)])


def many_conditions(cluster: Cluster) -> Iterator[None]:
    """One message of 1,000 positions with 95 terms each, all of them different."""
    yield from _by_hand(cluster, [_terms(number, 95) for number in range(MAX_POSITIONS)])


def allowed_conditions(cluster: Cluster) -> Iterator[None]:
    """As many terms as one message may have: 200 positions with 95 terms each, all of them different."""
    yield from _by_hand(cluster, [_terms(number, 95) for number in range(200)])


def _terms(number: int, count: int) -> typed_pb2.Predicate:
    """Different for each number."""
    terms = [
        typed_pb2.Predicate(
            equal=typed_pb2.Comparison(field_id=1, value=typed_pb2.Bound(integer=number * count + each + 1))
        )
        for each in range(count)
    ]
    return typed_pb2.Predicate(any_of=typed_pb2.Predicates(parts=terms))


# -- tools


def _filled(cluster: Cluster) -> tuple[str, common_pb2.PartitionId, list[int]]:
    """The topic: its leader's address, how the wire names its partition, and the ids that are in it."""
    chance = random.Random(58)
    ids = [chance.randrange(_SPREAD) for _ in range(BATCHES)]
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3, schema=SCHEMA)])
        with Producer(cluster.client) as producer:
            sent = [producer.send_batch(TOPIC, pa.table({"id": [each], "content": ["row"]})) for each in ids]
            for future in sent:
                future.result(timeout=60)
        (topic,) = admin.describe_topics([TOPIC])
    leader = topic.partitions[0].leader
    assert leader is not None
    return (
        f"{HOST}:{cluster.ports[leader]}",
        common_pb2.PartitionId(topic_id=uuid.UUID(topic.id).bytes),
        ids,
    )


def _readers(cluster: Cluster, count: int, values: int) -> Iterator[None]:
    """So many processes, which read the whole topic again and again; a blow is one whole reading."""
    *_, ids = _filled(cluster)
    spawning = multiprocessing.get_context("spawn")
    told, telling = spawning.Pipe(duplex=False)
    begin = spawning.Event()
    wanted = [sorted(random.Random(number).sample(range(_SPREAD), values - 1)) for number in range(count)]
    readers = [
        spawning.Process(target=_read, args=(cluster.client, [*others, ids[-1]], telling, begin), daemon=True)
        for others in wanted
    ]
    try:
        for reader in readers:
            reader.start()
        for _ in readers:
            assert told.poll(SECONDS_TO_BEGIN), "a reader did not get ready"
            told.recv()
        yield
        begin.set()
        while told.poll(SECONDS_TO_READ):
            told.recv()
            yield
    finally:
        for reader in readers:
            reader.kill()
            reader.join()


def _read(settings: dict[str, Any], wanted: list[int], telling: Connection, begin: Event) -> None:
    """Says that it is ready; then it reads from the first record to the last id, says so, and begins anew."""
    os.nice(10)  # it stands for a program on another machine
    where = f"id in ({', '.join(map(str, wanted))})"
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.position(partition)
        telling.send(0)
        begin.wait()
        while True:
            found = list[int]()
            while wanted[-1] not in found:
                for batch in consumer.poll_arrow(1.0, columns=["id"], where=where):
                    found += batch.column("id").to_pylist()
            telling.send(len(found))
            consumer.seek(partition, 0)


def _by_hand(cluster: Cluster, conditions: list[typed_pb2.Predicate]) -> Iterator[None]:
    """Positions at the begin of the topic with these conditions, sent over and over."""
    address, partition_id, _ = _filled(cluster)
    positions = [
        data_pb2.FetchPosition(
            partition_id=partition_id,
            position_number=number,
            leader_epoch=-1,
            selection=typed_pb2.Selection(schema_version=1, field_ids=[1], where=condition),
        )
        for number, condition in enumerate(conditions)
    ]
    request = StreamMessage(data_pb2.FetchRequest(credit_bytes=1 << 30, positions=positions))
    with contextlib.ExitStack() as stack:
        sends = [stack.enter_context(send_and_wait(address, FETCH)) for _ in range(READERS)]
        yield
        while True:
            for send in sends:
                send(request)
            yield
