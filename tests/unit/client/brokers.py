"""A small model of a cluster, for tests: it speaks the wire's messages, keeps logs in memory and can misbehave.

One topic by default, led as the test says. It checks what a leader would (checksums, sequences) and dedupes as a leader
does, so that a client that breaks the rules is found out here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from minilog.record_batch.header import Buffer, check_crc, decode_header, placement
from minilog.typed.schema.topic_schemas import TopicSchemas, schemas_to_wire
from minilog.v1 import common_pb2, data_pb2, metadata_pb2
from minilog.versions import PROTOCOL

TOPIC_ID = bytes(range(16))
TOPIC = "flights"
Key = tuple[bytes, int]
Pushed: TypeAlias = tuple[data_pb2.PartitionRun, bytes]
"""A run and its batches."""


@dataclass
class LeaderLog:
    """One partition at its leader."""

    leader: int = 1
    epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, next, bytes
    producers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)  # id: (sequence, count, offset)
    last_stable_offset: int | None = None  # None: the end
    aborted: set[int] = field(default_factory=set)  # producer ids

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, batch: bytes) -> int:
        header = decode_header(batch)
        first = self.end
        placed = placement(batch, first, self.epoch) + batch[24:]
        self.batches.append((first, first + header.record_count, placed))
        return first


class Brokers:
    """All brokers of the model. `script` holds errors that the next produce entries are answered with."""

    def __init__(self, partitions: int = 1, brokers: tuple[int, ...] = (1, 2)) -> None:
        self.broker_ids = brokers
        self.logs: dict[Key, LeaderLog] = {(TOPIC_ID, number): LeaderLog() for number in range(partitions)}
        self.metadata_offset = 1
        self.script: deque[common_pb2.ErrorCode.ValueType | None] = deque()
        self.next_producer_id = 100
        self.told_topic_id = TOPIC_ID  # another one: the topic was created again
        self.tells_topic = True  # or it is deleted, or may not be seen
        self.racks: dict[int, str] = {}
        self.states = dict.fromkeys(brokers, metadata_pb2.BROKER_STATE_RUNNING)
        self.in_sync = brokers
        self.high_watermarks: dict[int, int] = {}  # of brokers that are behind
        self.addresses = {broker: ("127.0.0.1", 9000 + broker) for broker in brokers}
        self.schemas: TopicSchemas | None = None  # of the topic, where it is typed
        self.listener = ""  # by which the client came
        self.unreachable: set[int] = set()  # brokers that have no such listener

    def log(self, partition: int = 0) -> LeaderLog:
        return self.logs[(TOPIC_ID, partition)]

    def create_again(self, topic_id: bytes, partitions: int = 1) -> None:
        """The topic is another one by now; nothing is told to anybody yet."""
        self.logs |= {(topic_id, number): LeaderLog() for number in range(partitions)}
        self.told_topic_id = topic_id
        self.metadata_offset += 1

    def _logs_told(self) -> list[tuple[Key, LeaderLog]]:
        known = {topic_id for topic_id, _ in self.logs}
        told = self.told_topic_id if self.told_topic_id in known else TOPIC_ID
        return sorted((key, log) for key, log in self.logs.items() if key[0] == told)

    def move(self, leader: int, partition: int = 0) -> None:
        log = self.log(partition)
        log.leader, log.epoch = leader, log.epoch + 1
        self.metadata_offset += 1

    def metadata(self) -> metadata_pb2.GetMetadataResponse:
        topic = metadata_pb2.TopicMetadata(name=TOPIC, topic_id=self.told_topic_id)
        topic.schemas.extend(schemas_to_wire(self.schemas))
        if not self.tells_topic:
            topic.error.code = common_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        for (_, number), log in self._logs_told():
            topic.partitions.append(
                metadata_pb2.PartitionMetadata(
                    partition=number,
                    leader_id=log.leader,
                    leader_epoch=log.epoch,
                    replicas=self.broker_ids,
                    in_sync_replicas=self.in_sync,
                )
            )
        brokers = [
            metadata_pb2.BrokerMetadata(
                broker_id=broker, host=host, port=port, state=self.states[broker], rack=self.racks.get(broker)
            )
            for broker, (host, port) in self.addresses.items()
            if broker not in self.unreachable
        ]
        return metadata_pb2.GetMetadataResponse(
            protocol=PROTOCOL.to_wire(),
            cluster_id="model",
            controller_id=self.broker_ids[0],
            controller_epoch=1,
            metadata_offset=self.metadata_offset,
            brokers=brokers,
            topics=[topic],
            listener=self.listener,
            unreachable_brokers=[metadata_pb2.BrokerMetadata(broker_id=each) for each in sorted(self.unreachable)],
        )

    def produce(self, broker: int, entry: data_pb2.ProduceEntry, batch: Buffer) -> data_pb2.ProduceResult:
        key = (entry.partition_id.topic_id, entry.partition_id.partition)
        log = self.logs[key]
        scripted = self.script.popleft() if self.script else None
        if scripted is not None:
            return _result(entry, scripted)
        if (key, log) not in self._logs_told():
            return _result(entry, common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID)
        if log.leader != broker or log.epoch != entry.leader_epoch:
            return _result(entry, common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, log=log)
        header = decode_header(batch)
        check_crc(*key, batch, header)
        if header.producer_id < 0:
            return _result(entry, offset=log.append(bytes(batch)))
        last = log.producers.setdefault(header.producer_id, deque(maxlen=5))
        for sequence, count, offset in last:
            if (sequence, count) == (header.base_sequence, header.record_count):
                return _result(entry, offset=offset)
        if last and last[-1][0] + last[-1][1] != header.base_sequence:
            return _result(entry, common_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER)
        offset = log.append(bytes(batch))
        last.append((header.base_sequence, header.record_count, offset))
        return _result(entry, offset=offset)

    def run(self, position: data_pb2.FetchPosition, *, limit: int | None = None, broker: int | None = None) -> Pushed:
        """All (or `limit`) batches from a position on, as a leader would push them, or `broker` that may be behind."""
        key = (position.partition_id.topic_id, position.partition_id.partition)
        log = self.logs[key]
        high_watermark = min(log.end, self.high_watermarks.get(broker or -1, log.end))
        readable = high_watermark if log.last_stable_offset is None else min(high_watermark, log.last_stable_offset)
        run = data_pb2.PartitionRun(
            partition_id=position.partition_id,
            leader_epoch=log.epoch,
            position_number=position.position_number,
            high_watermark=high_watermark,
            last_stable_offset=readable,
            log_start_offset=log.start,
            log_end_offset=log.end,
        )
        if not log.start <= position.fetch_offset <= log.end:
            run.error.code = common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
            return run, b""
        bound = min(readable, position.end_offset if position.HasField("end_offset") else log.end)
        found = [(f, b) for f, n, b in log.batches if n > position.fetch_offset and f < bound][:limit]
        if found:
            run.first_offset = found[0][0]
            run.aborted_producer_ids.extend(sorted(log.aborted))
        return run, b"".join(batch for _, batch in found)


def _result(
    entry: data_pb2.ProduceEntry,
    code: common_pb2.ErrorCode.ValueType = common_pb2.ERROR_CODE_NONE,
    *,
    offset: int = -1,
    log: LeaderLog | None = None,
) -> data_pb2.ProduceResult:
    return data_pb2.ProduceResult(
        correlation_id=entry.correlation_id,
        partition_id=entry.partition_id,
        error=common_pb2.Error(code=code, message="as the test says") if code else None,
        base_offset=offset,
        leader_id=log.leader if log else -1,
        leader_epoch=log.epoch if log else -1,
    )
