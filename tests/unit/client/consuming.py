"""A consumer's real core joined to the model of the brokers, on virtual time."""

from __future__ import annotations

import random
from dataclasses import replace

from minilog.consumer.consumer_effects import (
    CloseSession,
    FetchCommitted,
    OpenSession,
    RefreshTopics,
    ResolveOffset,
    SendFetch,
)
from minilog.consumer.core import ConsumerCore
from minilog.consumer.decode import decode
from minilog.errors import MinilogError
from minilog.groups.messages import Committed
from minilog.net.metadata_cache import MetadataCache
from minilog.record_batch.builder import build_batch, build_control_batch, records_to_columns
from minilog.record_batch.header import (
    HEADER_BYTES,
    Attributes,
    crc_of_parts,
    decode_header,
    encode_header,
    iterate_headers,
)
from minilog.stream_messages import FETCH, StreamMessage
from minilog.types import TopicPartition
from minilog.v1 import coordinator_pb2, data_pb2, records_pb2
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers, Pushed
from tests.unit.client.producing import config_of


def fill(brokers: Brokers, *batches: int, partition: int = 0) -> None:
    """Write batches of so many records; each value is the record's offset as text."""
    for count in batches:
        log = brokers.log(partition)
        columns = records_to_columns([b"%d" % (log.end + index) for index in range(count)], None, [9] * count, None)
        log.append(build_batch(TOPIC_ID, partition, columns))


def fill_in_transaction(brokers: Brokers, producer_id: int, *batches: int, partition: int = 0) -> None:
    """As `fill`, but by a producer of a transaction."""
    for count in batches:
        log = brokers.log(partition)
        columns = records_to_columns([b"%d" % (log.end + index) for index in range(count)], None, [9] * count, None)
        batch = build_batch(TOPIC_ID, partition, columns, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        log.append(transactional(batch, partition))


def transactional(batch: bytes, partition: int = 0) -> bytes:
    """`batch` with the attribute of a transaction."""
    header, payload = decode_header(batch), batch[HEADER_BYTES:]
    marked = replace(header, attributes=header.attributes | Attributes.TRANSACTIONAL)
    crc = crc_of_parts(TOPIC_ID, partition, encode_header(marked), payload)
    return encode_header(replace(marked, crc=crc)) + payload


def mark(brokers: Brokers, *producer_ids: int, committed: bool, partition: int = 0) -> None:
    """One control batch, as a leader writes it, that ends what these producers wrote."""
    markers = [coordinator_pb2.ProducerMarker(producer_id=each, committed=committed) for each in producer_ids]
    record = records_pb2.ControlRecord(
        transaction_markers=records_pb2.TransactionMarkersRecord(transactional_id="job", markers=markers)
    )
    log = brokers.log(partition)
    log.append(build_control_batch(TOPIC_ID, partition, record.SerializeToString(), timestamp_us=9))
    if not committed:
        log.aborted |= set(producer_ids)


class Consuming:
    """Pushes only when `push` is called, one run per attached partition, so that tests say what crosses what."""

    def __init__(self, brokers: Brokers, **settings: object) -> None:
        self.brokers = brokers
        self.config = config_of(**settings)
        self.cache = MetadataCache()
        self.core = ConsumerCore(self.config, self.cache, random.Random(0))
        self.now = 1000.0
        self.down: set[int] = set()
        self.hanging: set[int] = set()  # their streams never open
        self.requests: list[tuple[int, data_pb2.FetchRequest]] = []
        self.positions: dict[tuple[int, int], data_pb2.FetchPosition] = {}  # (broker, partition)
        self.asked: list[ResolveOffset] = []
        self.refreshes = 0  # of metadata
        self.closed: list[int] = []
        self.committed: dict[int, Committed] = {}  # by partition
        self.group_error: MinilogError | None = None
        self.group_asked: list[FetchCommitted] = []

    def run(self, for_ms: float = 0.0) -> None:
        end = self.now + for_ms
        while True:
            for _ in range(20):
                self._step()
            if self.now >= end:
                return
            self.now = min(self.now + 10.0, end)

    def _step(self) -> None:
        for effect in self.core.poll(self.now):
            match effect:
                case OpenSession(broker) if broker in self.down:
                    self.core.session_lost(broker, self.now)
                case OpenSession(broker) if broker in self.hanging:
                    pass
                case OpenSession(broker):
                    self.core.session_opened(broker)
                case CloseSession(broker):
                    self.closed.append(broker)
                case SendFetch(broker, request):
                    self.requests.append((broker, request))
                    for position in request.positions:
                        self.positions[broker, position.partition_id.partition] = position
                    for key in request.forgotten:
                        self.positions.pop((broker, key.partition), None)
                case RefreshTopics():
                    self.refreshes += 1
                    self.cache.apply(self.brokers.metadata())
                    self.core.metadata_changed(self.now)
                case FetchCommitted(wanted):
                    self.group_asked.append(effect)
                    for partition, (_, number) in wanted.items():
                        if self.group_error is not None:
                            self.core.offset_failed(partition, number, self.group_error, self.now)
                        else:
                            self.core.committed_offset_came(partition, number, self.committed.get(partition.partition))
                case ResolveOffset(partition, where, number):
                    self.asked.append(effect)
                    log = self.brokers.log(partition.partition)
                    self.core.offset_resolved(partition, number, log.start if where == "earliest" else log.end)

    def push(self, *, limit: int | None = None) -> bool:
        """Each leader pushes what it has from its positions on."""
        news = False
        for (broker, _), position in list(self.positions.items()):
            run, batches = self.brokers.run(position, limit=limit, broker=broker)
            news |= self.receive(broker, (run, batches))
            position.fetch_offset += sum(header.record_count for _, header in iterate_headers(batches))
        return news

    def receive(self, broker: int, pushed: Pushed) -> bool:
        run, batches = pushed
        frame = b"".join(FETCH.response.parts(StreamMessage(data_pb2.FetchResponse(runs=[run]), [batches])))
        return self.core.received(broker, FETCH.response.decode(frame), self.now)

    def read(self) -> list[tuple[int, int]]:
        """(partition, offset) of everything that can be handed out now; values are checked against offsets."""
        found: list[tuple[int, int]] = []
        while runs := self.core.take(1 << 30):
            for run in runs:
                for rows in decode(run, 1 << 30).rows:
                    offsets = rows.column("offset").to_pylist()
                    assert rows.column("value").to_pylist() == [b"%d" % offset for offset in offsets]
                    found += [(run.partition.partition, offset) for offset in offsets]
        return found


def two_partitions(*batches: int, **settings: object) -> Consuming:
    """A consumer of two partitions with these batches in each. It has asked for them, and none has come yet."""
    cluster = Consuming(Brokers(partitions=2), **settings)
    for partition in (0, 1):
        fill(cluster.brokers, *batches, partition=partition)
    cluster.core.assign({TopicPartition(TOPIC, partition): 0 for partition in (0, 1)})
    cluster.run()
    return cluster
