"""The produce streams to brokers, as the sender sees them: their states, their retries, and their next messages."""

from __future__ import annotations

import random
from collections.abc import Iterator

from minilog.client_config import ClientConfig
from minilog.net.reconnects import Reconnects
from minilog.partition_key import PartitionKey
from minilog.producer.producer_effects import Connect, Send, messages
from minilog.stream_messages import StreamMessage
from minilog.v1 import data_pb2

_FOREVER = float("inf")


class Streams:
    """The produce streams of one producer, by broker.

    There is one stream to each broker that leads a partition. Entries keep their order on it.
    """

    def __init__(self, config: ClientConfig, chance: random.Random) -> None:
        self._config = config
        self._open: dict[int, bool] = {}  # broker id: True open, False being opened
        self._reconnects = Reconnects(config, chance)
        self._given_up: dict[int, tuple[int, PartitionKey]] = {}  # by correlation id: broker and partition
        self._outbox: dict[tuple[int, int], list[tuple[data_pb2.ProduceEntry, bytes]]] = {}  # by broker and acks

    def opened(self, broker_id: int) -> None:
        self._open[broker_id] = True
        self._reconnects.opened(broker_id)

    def lost(self, broker_id: int, now_ms: float) -> None:
        self._open.pop(broker_id, None)
        self._given_up = {
            correlation_id: place for correlation_id, place in self._given_up.items() if place[0] != broker_id
        }
        self._reconnects.lost(broker_id, now_ms)

    def is_open(self, broker_id: int) -> bool:
        return self._open.get(broker_id, False)

    def open(self, broker_id: int, now_ms: float) -> Connect | None:
        """The effect that opens the stream. None while it is being opened, and for a while after a failure."""
        if broker_id in self._open or not self._reconnects.is_due(broker_id, now_ms):
            return None
        self._open[broker_id] = False
        return Connect(broker_id)

    def next_reconnect_ms(self, now_ms: float) -> float:
        """The time when the sender may try the next broker again."""
        return min((at_ms for at_ms in self._reconnects.due_times_ms() if at_ms > now_ms), default=_FOREVER)

    def give_up(self, broker_id: int, correlation_id: int, key: PartitionKey) -> None:
        """Wait for this answer no longer: the batch goes to another leader."""
        self._given_up[correlation_id] = broker_id, key

    def came(self, correlation_id: int) -> None:
        """Note the answer to a batch that was given up. Under acks=0 there is none, and the batch has left this
        process."""
        self._given_up.pop(correlation_id, None)

    def owes(self, broker_id: int, key: PartitionKey) -> bool:
        """Whether an answer that was given up may still come. Until it comes, or the stream is lost, the sender sends
        no batch of the partition there. Otherwise more batches than max.in.flight could be unanswered."""
        return (broker_id, key) in self._given_up.values()

    def put(self, broker_id: int, entry: data_pb2.ProduceEntry, batch: bytes, acks: int) -> None:
        """Send this batch with the next `flush`."""
        self._outbox.setdefault((broker_id, acks), []).append((entry, batch))

    def drop(self) -> None:
        """Drop the batches that have not gone."""
        self._outbox.clear()

    def flush(self) -> Iterator[Send]:
        """The fewest messages that hold all batches of `put`."""
        outbox, self._outbox = self._outbox, {}
        for (broker_id, acks), entries in outbox.items():
            for part in messages(entries):
                request = data_pb2.ProduceRequest(
                    acks=acks,
                    timeout_ms=min(self._config.request_timeout_ms, self._config.delivery_timeout_ms),
                    entries=[entry for entry, _ in part],
                )
                yield Send(broker_id, StreamMessage(request, [batch for _, batch in part]))
