"""The fetch sessions of a consumer, one per broker that it reads from. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from minilog.client_config import ClientConfig
from minilog.consumer import requests
from minilog.consumer.consumer_effects import CloseSession, Effect, OpenSession, SendFetch
from minilog.consumer.partition import ConsumerSession
from minilog.limits import MAX_CONDITION_BYTES, MAX_POSITIONS, parts_of
from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2

_IDLE_MS = 30_000.0


class FetchSessions:
    """The fetch sessions of one consumer, by broker.

    A broker whose session was lost is tried again after retry.backoff.ms.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._by_broker: dict[int, ConsumerSession] = {}
        self._reopen_at_ms: dict[int, float] = {}

    def get(self, broker_id: int) -> ConsumerSession | None:
        return self._by_broker.get(broker_id)

    def open(self, broker_id: int, now_ms: float) -> list[Effect]:
        """Ask for a session, unless it is too early to try again."""
        if now_ms < self._reopen_at_ms.get(broker_id, 0.0):
            return []
        self._by_broker[broker_id] = ConsumerSession(broker_id, self._config.fetch_max_bytes)
        return [OpenSession(broker_id)]

    def opened(self, broker_id: int) -> None:
        self._by_broker[broker_id].is_open = True
        self._reopen_at_ms.pop(broker_id, None)

    def lost(self, broker_id: int, now_ms: float) -> ConsumerSession | None:
        self._reopen_at_ms[broker_id] = now_ms + self._config.retry_backoff_ms
        return self._by_broker.pop(broker_id, None)

    def retry_times(self) -> Iterable[float]:
        """When lost ones may be tried again."""
        return self._reopen_at_ms.values()

    def messages(self, positions: Mapping[int, list[data_pb2.FetchPosition]]) -> list[Effect]:
        """What there is to say on open sessions: new positions, what is not wanted any more, credit."""
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
        """In as few messages as may be; nothing is in both. Without either: the credit alone."""
        parts = zip_longest(_parts_of(wanted), parts_of(forgotten, MAX_POSITIONS), fillvalue=())
        for positions, left in list(parts) or [((), ())]:
            yield requests.fetch_request(session, positions, left, self._config)

    def keepalive(self, broker_id: int) -> data_pb2.FetchRequest:
        """What to send to a broker that has heard nothing for a while: the credit, once more."""
        session = self._by_broker.get(broker_id)
        return requests.keepalive(session.credit_sent_bytes if session is not None else 0, self._config)

    def close_idle(self, now_ms: float) -> list[Effect]:
        """Close those that nothing has been read from for a while. What is assigned next may well be there: Spark's
        workers keep their consumer, and a stream costs more than a small task."""
        for session in self._by_broker.values():
            if not session.is_open or session.attached:
                session.read_from_ms = now_ms
        idle = [session for session in self._by_broker.values() if now_ms - session.read_from_ms >= _IDLE_MS]
        return [CloseSession(self._by_broker.pop(session.broker_id).broker_id) for session in idle]


def _parts_of(positions: list[data_pb2.FetchPosition]) -> Iterator[list[data_pb2.FetchPosition]]:
    """The positions in order, as many at a time as one message may have by their number and by their conditions."""
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
