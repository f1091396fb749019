"""What waits for others is bounded: on each connection, at each disk, and by what a reader has given leave for. V19.

credit     a broker sends batches only while the reader's credit is more than was sent: so the last batch alone may go
           beyond it (docs/spec/replication.md, Credit)
conserved  a reader gives leave for no more than its first credit, which is its window, and what has come to it since:
           who gives a batch back twice, or one that never came, holds more than its window
writes     under one producer id so many batches of a partition are unanswered at most
           (max.in.flight.requests.per.connection); whoever gives some up goes on under another
calls      a process has so many calls open to one broker at most: who asks again has given the former call up
disks      so many commands and bytes wait for a disk at most, also where it hangs or syncs for long. Measured, as
           the calls are, with much room; but a follower that comes back to a disk that is slow for all time is sent
           all that it has given credit for
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, Buffer, decode_header
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.wire import Said

MOST_IN_FLIGHT = 5
MOST_CALLS = 100
MOST_COMMANDS = 3_000  # a sync takes 10 s at most, and a follower that has credit is sent what is written meanwhile
MOST_BYTES = 2 << 20
SLOW_BYTES_PER_S, MOST_CREDIT_BYTES = 1e6, 17 << 20  # of a session, and a batch more
_PRODUCE = "/minilog.v1.DataService/Produce"
_READS = ("/minilog.v1.DataService/Fetch", "/minilog.v1.PeerService/Replicate")


@dataclass(slots=True)
class _Stream:
    """Of batches to a reader, or from a producer."""

    window_bytes: int = 0
    credit_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    under_way: deque[int] = field(default_factory=deque)  # bytes of each message that was sent and has not come
    unanswered: dict[int, tuple[PartitionKey, int]] = field(default_factory=dict)  # by correlation id
    in_flight: Counter[tuple[PartitionKey, int]] = field(default_factory=Counter)  # partition, producer id


class Backlog:
    """Counts what goes out on each stream and to each disk, and raises where it is more than may be."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._streams: weakref.WeakKeyDictionary[Said, _Stream] = weakref.WeakKeyDictionary()

    def saw(self, call: Said, message: Any, payloads: Sequence[Buffer], answers: bool) -> None:
        """A message is sent, with its payloads."""
        if call.method != _PRODUCE and call.method not in _READS:
            return
        stream = self._streams.get(call)
        if stream is None:
            stream = self._streams[call] = _Stream()
        if call.method != _PRODUCE:
            if answers:
                self._sent(call, stream, payloads)
            else:
                self._granted(call, stream, message.credit_bytes)
        elif answers:
            self._answered(stream, message)
        elif message.acks:
            self._produced(call, stream, message, payloads)

    def _sent(self, call: Said, stream: _Stream, payloads: Sequence[Buffer]) -> None:
        for payload in payloads:
            if payload and stream.sent_bytes >= stream.credit_bytes:
                text = f"{call.host} has sent {stream.sent_bytes} bytes to {call.client}, whose credit is "
                raise Violation("V19", f"{text}{stream.credit_bytes}, and sends {len(payload)} more")
            stream.sent_bytes += len(payload)
        stream.under_way.append(sum(map(len, payloads)))

    def heard(self, call: Said, answers: bool | None) -> None:
        """A message has come."""
        stream = self._streams.get(call) if answers and call.method in _READS else None
        if stream is not None and stream.under_way:
            stream.received_bytes += stream.under_way.popleft()

    def _granted(self, call: Said, stream: _Stream, credit_bytes: int) -> None:
        stream.window_bytes = stream.window_bytes or credit_bytes
        stream.credit_bytes = max(stream.credit_bytes, credit_bytes)
        if credit_bytes > stream.window_bytes + stream.received_bytes:
            text = f"{call.client} gives {call.host} leave for {credit_bytes} bytes, has a window of "
            raise Violation("V19", f"{text}{stream.window_bytes}, and {stream.received_bytes} have come")

    def _produced(self, call: Said, stream: _Stream, message: Any, payloads: Sequence[Buffer]) -> None:
        for entry, payload in zip(message.entries, payloads, strict=True):
            key = PartitionKey(entry.partition_id.topic_id, entry.partition_id.partition)
            place = stream.unanswered[entry.correlation_id] = key, decode_header(payload).producer_id
            stream.in_flight[place] += 1
            if stream.in_flight[place] > MOST_IN_FLIGHT and place[1] != NO_PRODUCER_ID:
                text = f"{call.client} has {stream.in_flight[place]} unanswered batches at {call.host}"
                raise Violation("V19", text)

    def _answered(self, stream: _Stream, message: Any) -> None:
        for result in message.results:
            place = stream.unanswered.pop(result.correlation_id, None)
            if place is not None:
                stream.in_flight[place] -= 1

    def look(self) -> None:
        """At connections and disks."""
        for (client, host), calls in self._cluster.network.open_calls().items():
            if calls > MOST_CALLS:
                raise Violation("V19", f"{client} has {calls} open calls to {host}")
        is_slow = self._cluster.plan.read_bytes_per_s < SLOW_BYTES_PER_S
        most_bytes = MOST_CREDIT_BYTES if is_slow else MOST_BYTES
        for broker in self._cluster.hosts.values():
            for disk in broker.machine.disks if broker.machine is not None else ():
                if disk.backlog > MOST_COMMANDS or disk.backlog_bytes > most_bytes:
                    text = f"{disk.backlog} commands, of {disk.backlog_bytes} bytes, wait for the {disk.name} of "
                    raise Violation("V19", f"{text}{broker.name}")
