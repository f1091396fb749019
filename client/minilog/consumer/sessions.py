"""The fetch sessions of a consumer, one per broker that it reads from. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from minilog.client_config import ClientConfig
from minilog.consumer import requests
from minilog.consumer.consumer_effects import CloseSession, Effect, OpenSession, SendFetch
from minilog.consumer.partition import ConsumerSession
from minilog.limits import MAX_CONDITION_BYTES, MAX_POSITIONS, parts_of
from minilog.net.reconnects import Reconnects
from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2

_IDLE_MS = 30_000.0


class FetchSessions:
    """The fetch sessions of one consumer, by broker. After a lost session the consumer tries the broker again."""

    def __init__(self, config: ClientConfig, chance: random.Random) -> None:
        self._config = config
        self._by_broker: dict[int, ConsumerSession] = {}
        self._reconnects = Reconnects(config, chance)

    def get(self, broker_id: int) -> ConsumerSession | None:
        return self._by_broker.get(broker_id)

    def open(self, broker_id: int, now_ms: float) -> list[Effect]:
        """Ask for a session, unless it is too early to try again."""
        if not self._reconnects.is_due(broker_id, now_ms):
            return []
        self._by_broker[broker_id] = ConsumerSession(broker_id, self._config.fetch_max_bytes)
        return [OpenSession(broker_id)]

    def opened(self, broker_id: int) -> None:
        self._by_broker[broker_id].is_open = True
        self._reconnects.opened(broker_id)

    def lost(self, broker_id: int, now_ms: float) -> ConsumerSession | None:
        self._reconnects.lost(broker_id, now_ms)
        return self._by_broker.pop(broker_id, None)

    def retry_times(self) -> Iterable[float]:
        """The times at which the consumer may open lost sessions again."""
        return self._reconnects.due_times_ms()

    def messages(self, positions: Mapping[int, list[data_pb2.FetchPosition]]) -> list[Effect]:
        """The messages for the open sessions: new positions, partitions to forget, credit."""
        effects: list[Effect] = []
        for broker_id, session in self._by_broker.items():
            wanted = positions.get(broker_id, [])
            kept = {PartitionKey.of(p.partition_id) for p in wanted}
            forgotten = [key for key in dict.fromkeys(session.forgotten) if key not in kept]
            if not session.is_open or not (wanted or forgotten or session.owes_credit()):
                continue
            session.forgotten = []
            effects += [SendFetch(broker_id, request) for request in self._requests(session, wanted, forgotten)]
        return effects

    def _requests(
        self, session: ConsumerSession, wanted: list[data_pb2.FetchPosition], forgotten: list[PartitionKey]
    ) -> Iterator[data_pb2.FetchRequest]:
        """The fewest messages that hold all of these. No partition is in both. Without any: only the credit."""
        parts = zip_longest(_parts_of(wanted), parts_of(forgotten, MAX_POSITIONS), fillvalue=())
        for positions, left in list(parts) or [((), ())]:
            yield requests.fetch_request(session, positions, left, self._config)

    def keepalive(self, broker_id: int) -> data_pb2.FetchRequest:
        """The message for a broker to which the consumer has sent nothing for a while: its credit, once more."""
        session = self._by_broker.get(broker_id)
        return requests.keepalive(session.credit_sent_bytes if session is not None else 0, self._config)

    def close_idle(self, now_ms: float) -> list[Effect]:
        """Close the sessions that had no partition for a while. Earlier would be too early: Spark's workers keep their
        consumer, the next task may need the session, and a stream costs more than a small task."""
        for session in self._by_broker.values():
            if not session.is_open or session.attached:
                session.read_from_ms = now_ms
        idle = [session for session in self._by_broker.values() if now_ms - session.read_from_ms >= _IDLE_MS]
        return [CloseSession(self._by_broker.pop(session.broker_id).broker_id) for session in idle]


def _parts_of(positions: list[data_pb2.FetchPosition]) -> Iterator[list[data_pb2.FetchPosition]]:
    """The positions in order, in parts for one message each. Their number and the bytes of their conditions bound a
    part."""
    part, size_bytes = list[data_pb2.FetchPosition](), 0
    for position in positions:
        condition_bytes = position.selection.where.ByteSize() if position.HasField("selection") else 0
        if part and (len(part) == MAX_POSITIONS or size_bytes + condition_bytes > MAX_CONDITION_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(position)
        size_bytes += condition_bytes
    if part:
        yield part
