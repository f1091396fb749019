"""The dead records that a worker carries to the dead-letter topic of its queue. No I/O.

    waiting    read, and dead: the program does not get them
    carried    on their way, in one transaction that writes the letters and accepts the records. There is one at most
    given back not carried: another worker tries it, after a delay

A worker carries them, and no broker: so a letter needs the rights of a program that may write to the dead-letter topic,
and the records are settled and the letters written both, or neither. The names of the headers are those of KIP-1191.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from minilog.partition_key import PartitionKey
from minilog.queues.leases import DeadLetterTopic
from minilog.queues.message import Message
from minilog.types import Headers

_TOPIC_ID_BYTES = 16
MAX_CARRIED = 500  # records of one transaction
_PREFIX = "_dlq.errors."
QUEUE_HEADER = f"{_PREFIX}group"
TOPIC_HEADER = f"{_PREFIX}topic"
TOPIC_ID_HEADER = f"{_PREFIX}topic.id"
PARTITION_HEADER = f"{_PREFIX}partition"
OFFSET_HEADER = f"{_PREFIX}offset"
DELIVERY_COUNT_HEADER = f"{_PREFIX}delivery.count"
REASON_HEADER = f"{_PREFIX}message"
HEADER_NAMES = (
    QUEUE_HEADER,
    TOPIC_HEADER,
    TOPIC_ID_HEADER,
    PARTITION_HEADER,
    OFFSET_HEADER,
    DELIVERY_COUNT_HEADER,
    REASON_HEADER,
)


@dataclass(frozen=True, slots=True)
class CarryDeadLetters:
    """Write a letter for each of these records to the topic, and accept the records, in one transaction. Answer with
    carried."""

    topic: DeadLetterTopic
    messages: tuple[Message, ...]


class RecordOrigin(NamedTuple):
    """Where the record of a letter was. `key`: the partition by the id of its topic. Another topic may have the name
    by now."""

    topic: str
    key: PartitionKey
    offset: int


class Letter(NamedTuple):
    """A record of a dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def letter_of(message: Message, *, copies_record: bool) -> Letter:
    """What a dead-letter topic gets of a dead record: where it was and why it died as headers, and its key, value and
    headers where they are copied."""
    marks: Headers = [
        (QUEUE_HEADER, message.settler.queue.encode()),
        (TOPIC_HEADER, message.topic.encode()),
        (TOPIC_ID_HEADER, message.held.key.topic_id.hex().encode()),
        (PARTITION_HEADER, str(message.partition).encode()),
        (OFFSET_HEADER, str(message.offset).encode()),
        (DELIVERY_COUNT_HEADER, str(message.delivery_count).encode()),
        (REASON_HEADER, (message.held.death_reason or "").encode()),
    ]
    if not copies_record:
        return Letter(None, b"", marks)
    value = b"" if message.value is None and message.key is None else message.value
    return Letter(message.key, value, [*message.headers, *marks])


def origin_of(headers: Headers, queue: str) -> RecordOrigin | None:
    """Where the record of a letter was. None for a letter of another queue, and for a record that is no letter: anybody
    who may write to the topic may write such."""
    marks = {name: content or b"" for name, content in headers if name in HEADER_NAMES}
    if marks.get(QUEUE_HEADER) != queue.encode():
        return None
    try:
        topic_id = bytes.fromhex(marks[TOPIC_ID_HEADER].decode())
        key = PartitionKey(topic_id, int(marks[PARTITION_HEADER]))
        origin = RecordOrigin(marks[TOPIC_HEADER].decode(), key, int(marks[OFFSET_HEADER]))
    except (KeyError, ValueError):  # UnicodeDecodeError is a ValueError
        return None
    is_place = len(topic_id) == _TOPIC_ID_BYTES and 0 <= key.partition < 1 << 31 and 0 <= origin.offset < 1 << 63
    return origin if is_place else None


class DeadLetters:
    """The dead records of one worker."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self.is_carrying = False

    def add(self, messages: Iterable[Message]) -> None:
        self._waiting.extend(messages)

    def clear(self) -> None:
        """The worker gives them back."""
        self._waiting.clear()

    def next_carrying(self, now_ms: float) -> CarryDeadLetters | None:
        """The next transaction: records for one topic, whose locks last long enough."""
        if self.is_carrying:
            return None
        topic: DeadLetterTopic | None = None
        messages: list[Message] = []
        while self._waiting and len(messages) < MAX_CARRIED:
            lease = self._waiting[0].held.lease
            if not lease.is_locked(now_ms):
                self._waiting.popleft()
                continue
            if not lease.may_hand_out(now_ms) or (topic is not None and lease.dead_letter_topic != topic):
                break  # it waits for a renewal, or for the next transaction
            topic = lease.dead_letter_topic
            messages.append(self._waiting.popleft())
        if topic is None:
            return None
        self.is_carrying = True
        return CarryDeadLetters(topic, tuple(messages))
