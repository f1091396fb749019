"""A simulated consumer: the client's real core, what it hands out in the history; and questions for "latest"."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from minilog.config import ClientConfig
from minilog.consumer.consumer_effects import (
    CloseSession,
    Effect,
    OpenSession,
    RefreshTopics,
    ResolveOffset,
    SendFetch,
)
from minilog.consumer.core import ConsumerCore
from minilog.consumer.decode import decode_all
from minilog.consumer.partition import FetchedRun
from minilog.errors import CorruptMessage, MinilogError, OffsetNotAvailable, OffsetOutOfRange
from minilog.net import metadata_cache
from minilog.net.offsets_query import OffsetsQuery, offset_of
from minilog.stream_messages import StreamMessage
from minilog.types import TopicPartition
from minilog.v1 import data_pb2
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.clients import ClientProcess
from tests.simulation.history import History, Latest
from tests.simulation.invariants.violation import Violation
from tests.simulation.network import Failure
from tests.simulation.talking import ATTEMPT_MS, PAUSE_MS, Picture, Talk

TAKE_BYTES = 1 << 20
POLL_BYTES = 500  # of rows: some batches of a run, so that the others are put back and taken again


class SimulatedConsumer:
    """See the module's text. Reads whatever `read` was told, from the log's start or from `latest` on."""

    def __init__(
        self,
        name: str,
        client: ClientProcess,
        config: ClientConfig,
        node_ids: Iterable[int],
        history: History,
        rng: random.Random,
    ) -> None:
        self.name, self.config = name, config
        self.corrupt_runs = 0
        self._committed = config.isolation_level == "read_committed"
        self._client, self._history, self._rng = client, history, rng
        self._picture = Picture(client, config, node_ids, rng, self._topics, self._metadata_changed)
        self.cache = self._picture.cache
        self.core = ConsumerCore(config, self.cache)
        self._talks: dict[int, Talk] = {}
        self._keys: dict[TopicPartition, PartitionKey] = {}
        self._wake_ms = float("inf")

    # -- the user

    def read(self, keys: dict[TopicPartition, PartitionKey]) -> None:
        """Read these from now on, each from where it was read last."""
        if keys == self._keys:
            return
        self._keys = dict(keys)
        wanted = []
        for partition, key in keys.items():
            offset = self._history.known_position(self.name, key)
            if offset is None and self.config.auto_offset_reset == "error":
                self._history.placed(self.name, key, offset := 0)
            wanted.append(TopicPartition(partition.topic, partition.partition, offset))
        self.core.assign(wanted)
        self._run()

    def seek_back(self) -> None:
        """Read something again."""
        known = [p for p in self.core.assignment() if (self.core.position(p) or 0) > 0]
        if not known:
            return
        partition = self._rng.choice(known)
        position = self.core.position(partition) or 0
        offset = self._rng.randrange(max(0, position - 50), position)
        self._history.placed(self.name, self._keys[partition], offset)
        self.core.seek(partition, offset)
        self._run()

    def take_over(self, other: SimulatedConsumer) -> None:
        """Go on where another reader is, perhaps at another replica: it tells its offset and the epoch it knows."""
        for partition, key in self._keys.items():
            position = other.core.position(partition) if other._keys.get(partition) == key else None
            if position is not None:
                known = metadata_cache.TopicIdPartition(*key)
                self.cache.see_epoch(known, other.cache.seen_epoch(known))
                self._history.placed(self.name, key, position)
                self.core.seek(partition, position)
        self._run()

    def ask_latest(self) -> None:
        """Ask for "latest" of a partition; an answer that is accepted is in the history."""
        if self._keys:
            partition = self._rng.choice(list(self._keys))
            _Question(self, partition, "latest", -1)

    def _topics(self) -> list[str]:
        return self.core.topics()

    def _drain(self) -> None:
        """Take what is there, and what is wrong."""
        while True:
            try:
                runs = self.core.take(TAKE_BYTES)
            except MinilogError as error:
                if not self._went_wrong(error):
                    return
                continue
            if not runs:
                return
            outcome = decode_all(runs, POLL_BYTES)
            left = {(run.partition, run.end_offset): run.start_offset for run in outcome.rest}
            for run, batches in outcome.good:
                self._hand_out(run, batches, left.get((run.partition, run.end_offset), run.end_offset))
                self.core.run_is_good(run)
            self.core.put_back(outcome.rest)
            for run, damage in outcome.corrupt:
                self.corrupt_runs += 1
                self.core.run_is_corrupt(run, damage, self._client.now_ms)

    def _hand_out(self, run: FetchedRun, batches: list[pa.RecordBatch], behind: int) -> None:
        key = PartitionKey(*run.key)
        for rows in batches:
            values = rows.column("value").to_pylist()
            for offset, value in zip(rows.column("offset").to_pylist(), values, strict=True):
                self._history.read(self.name, key, offset, value, committed=self._committed)
        self._history.passed(self.name, key, behind, committed=self._committed)

    def _went_wrong(self, error: MinilogError) -> bool:
        """An error of a partition; whether to take on at once."""
        broken = [assigned for assigned in self.core._assigned.values() if assigned.error is error]
        if not broken:
            return False  # it is tried again
        for assigned in broken:
            key = self._keys[assigned.partition]
            if isinstance(error, OffsetOutOfRange) and not self._history.is_exempt(key):
                self._out_of_range(assigned.partition, key, error)
                continue
            if isinstance(error, CorruptMessage | OffsetOutOfRange) and assigned.position is not None:
                self.core.seek(assigned.partition, assigned.position)  # the user tries again
            else:
                del self._keys[assigned.partition]  # the topic is gone
                self.core.assign(
                    TopicPartition(p.topic, p.partition, self._history.known_position(self.name, key))
                    for p, key in self._keys.items()
                )
                return True
        return False

    def _out_of_range(self, partition: TopicPartition, key: PartitionKey, error: MinilogError) -> None:
        """The user is told that there is nothing at its position: of what was deleted, that is so."""
        position, gone = self._history.known_position(self.name, key) or 0, self._history.may_be_deleted(key)
        if position >= gone:
            raise Violation("V14", f"{self.name} is told: {error}", key=key)
        self._history.placed(self.name, key, gone)
        self.core.seek(partition, gone)

    # -- the shell

    def _run(self, _: Any = None) -> None:
        """What the core wants now, what it hands out, and when it wants to be asked again."""
        client = self._client
        self._drain()
        for effect in self.core.poll(client.now_ms):
            self._carry_out(effect)
        wake_ms = max(self.core.next_wake_ms(client.now_ms), client.now_ms + 1.0)
        if wake_ms < self._wake_ms - 0.5 or self._wake_ms <= client.now_ms:
            self._wake_ms = wake_ms
            if wake_ms != float("inf"):
                client.after(wake_ms - client.now_ms, self._woken, wake_ms)

    def _woken(self, due_ms: float) -> None:
        if due_ms == self._wake_ms:
            self._wake_ms = float("inf")
            self._run()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendFetch(broker_id, request):
                if (talk := self._talks.get(broker_id)) is not None:
                    talk.send(request)
            case OpenSession(broker_id):
                self._open(broker_id)
            case CloseSession(broker_id):
                if (talk := self._talks.pop(broker_id, None)) is not None:
                    talk.close()
            case ResolveOffset(partition, where, number):
                _Question(self, partition, where, number)
            case RefreshTopics():
                self._picture.refresh()

    def _open(self, broker_id: int) -> None:
        def opened() -> None:
            self.core.session_opened(broker_id)
            self._run()

        def received(response: StreamMessage[data_pb2.FetchResponse]) -> None:
            if response.payloads:
                self.core.received(broker_id, response, self._client.now_ms)
                self._run()

        def lost() -> None:
            if self._talks.get(broker_id) is talk:
                del self._talks[broker_id]
                self.core.session_lost(broker_id, self._client.now_ms)
                self._run()

        talk = self._talks[broker_id] = Talk(
            self._client,
            broker_id,
            "Fetch",
            lambda: self.core.keepalive(broker_id),
            keepalive_ms=self.config.session_keepalive_ms,
            opened=opened,
            received=received,
            lost=lost,
        )

    def _metadata_changed(self) -> None:
        self.core.metadata_changed(self._client.now_ms)
        self._run()

    # -- what questions for offsets need

    @property
    def client(self) -> ClientProcess:
        return self._client

    @property
    def picture(self) -> Picture:
        return self._picture

    def answered(self, question: _Question) -> None:
        """A question for an offset has its answer, or has none in time."""
        partition, query = question.partition, question.query
        result = query.results.get(partition)
        key = self._keys.get(partition)
        if result is not None and key is not None:
            latest = Latest(
                self.name,
                question.asked_ms,
                self._client.process.scheduler.now_ms,
                result.leader_epoch,
                result.high_watermark,
            )
            self._history.answered_latest(key, latest)
        if question.number < 0:
            return
        if result is None:
            failure = query.failures.get(partition) or query.last_errors.get(partition)
            error = failure or OffsetNotAvailable(f"{question.where} of {partition} is not known")
            self.core.offset_failed(partition, question.number, error, self._client.now_ms)
        elif key is not None:
            offset = offset_of(result, question.where, self.config.isolation_level)
            assert offset is not None
            if self._history.known_position(self.name, key) is None:
                self._history.placed(self.name, key, offset)
            else:
                self._history.jumped(self.name, key, result.log_start_offset, offset)
            self.core.offset_resolved(partition, question.number, offset)
        self._run()


class _Question:
    """An OffsetsQuery on its way, asked again until it is answered or request.timeout.ms is over."""

    def __init__(self, consumer: SimulatedConsumer, partition: TopicPartition, where: str, number: int) -> None:
        self.partition, self.where, self.number = partition, where, number
        self.asked_ms = 0.0
        self.query = OffsetsQuery(consumer.cache, {partition: where})
        self._consumer = consumer
        self._deadline_ms = consumer.client.now_ms + consumer.config.request_timeout_ms
        self._ask(None)

    def _ask(self, _: Any) -> None:
        client = self._consumer.client
        requests = self.query.requests(self._consumer.config.identity())
        self.asked_ms = client.process.scheduler.now_ms
        for broker_id, request in requests:
            client.call(broker_id, "ListOffsets", request, self._answered, timeout_ms=ATTEMPT_MS)
            return
        self._again()

    def _answered(self, answer: Any) -> None:
        if not isinstance(answer, Failure):
            self.query.answered(answer)
        if self.query.missing():
            self._again()
        else:
            self._consumer.answered(self)

    def _again(self) -> None:
        client = self._consumer.client
        if client.now_ms >= self._deadline_ms:
            self._consumer.answered(self)
            return
        self._consumer.picture.refresh()
        client.after(PAUSE_MS, self._ask)
