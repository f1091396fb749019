"""A table of values by key: the replay of a partition of an internal topic, and the changes on their way into it.

    committed     each key's value as of the high watermark. The next coordinator finds at least these
                  no time-out, and the table never gives one up (Kafka did, and then did not know its state: KAFKA-9666,
                  KAFKA-5351, KAFKA-7519)

A record holds the whole value of its key. A record without a value removes the key. places.py keeps the log short. A
new value replaces the old one, and no value changes. Each key has an owner (a transactional id or a group). Decisions
of one owner build on each other, and those of different owners do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from minilog_broker.coordinators.places import Places


class LogRecord(NamedTuple):
    """A change to append. The value None removes the key."""

    key: bytes
    value: bytes | None


class OwnedKey(Hashable, Protocol):
    """A key of the table."""

    @property
    def owner(self) -> str: ...


Key = TypeVar("Key", bound=OwnedKey)
Value = TypeVar("Value")
AppendRecords = Callable[[Sequence[LogRecord]], int]


class Change(NamedTuple, Generic[Key, Value]):
    """`key` has `value` from now on. None: the key is gone."""

    key: Key
    value: Value | None


class Codec(Protocol[Key, Value]):
    """The form of keys and values on the disk."""

    def encode(self, change: Change[Key, Value]) -> LogRecord: ...

    def decode(self, record: LogRecord) -> Change[Key, Value]: ...


class _Written(NamedTuple, Generic[Key, Value]):
    """One decision, and behind it the values that it carries along."""

    base_offset: int
    changes: tuple[Change[Key, Value], ...]
    carried: tuple[Key, ...]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.changes) + len(self.carried)


class CommittedTable(Generic[Key, Value]):
    """The committed value of each key, and the changes in flight.

    `append` gives one decision its place and returns the end behind it. Where it raises, the decision has none.
    """

    def __init__(self, codec: Codec[Key, Value], append: AppendRecords) -> None:
        self._codec = codec
        self._append = append
        self._committed: dict[str, dict[Key, Value]] = {}
        self._newest: dict[str, dict[Key, tuple[int, Value | None]]] = {}  # in flight: the end offset of its batch
        self._in_flight: deque[_Written[Key, Value]] = deque()
        self._last_end: dict[str, int] = {}  # of the owners that have something in flight
        self.places: Places[Key] = Places()
        self.start_offset = self.end_offset = 0

    # -- what is known, in flight included

    def get(self, key: Key) -> Value | None:
        newest = self._newest.get(key.owner)
        if newest is not None and key in newest:
            return newest[key][1]
        return self._committed.get(key.owner, {}).get(key)

    def committed_value(self, key: Key) -> Value | None:
        """The value as of the high watermark."""
        return self._committed.get(key.owner, {}).get(key)

    def owned(self, owner: str) -> Iterator[tuple[Key, Value]]:
        """All keys and values of one owner."""
        newest = self._newest.get(owner, {})
        for key, value in self._committed.get(owner, {}).items():
            if key not in newest:
                yield key, value
        for key, (_, latest) in newest.items():
            if latest is not None:
                yield key, latest

    def owners(self) -> list[str]:
        """The owners with a committed value or a change in flight."""
        return sorted(self._committed.keys() | self._newest.keys())

    def rests_on(self, owner: str | None) -> int:
        """The offset that must be committed before an answer about an owner (None: about all). 0: now."""
        if owner is None:
            return self._in_flight[-1].end_offset if self._in_flight else 0
        return self._last_end.get(owner, 0)

    def committed(self) -> dict[Key, Value]:
        """All values as of the high watermark."""
        return {key: value for owned in self._committed.values() for key, value in owned.items()}

    def committed_end(self) -> int:
        """The high watermark that the table knows."""
        return self._in_flight[0].base_offset if self._in_flight else self.end_offset

    def needed_from(self) -> int:
        """The offset below which no coordinator needs the log. At most `committed_end`."""
        return self.places.needed_from(self.committed_end())

    # -- what happens to it

    def clear(self, end_offset: int) -> None:
        """Begin with an empty table and a log that ends at `end_offset`. `replay` or `trimmed` give its start."""
        self._committed.clear()
        self._newest.clear()
        self._in_flight.clear()
        self._last_end.clear()
        self.places.clear()
        self.start_offset = self.end_offset = end_offset

    def replay(self, record: LogRecord, offset: int) -> None:
        """The next committed record of the log."""
        change = self._codec.decode(record)
        self.start_offset = min(self.start_offset, offset)
        self.places.written(change.key, gone=change.value is None)
        self._apply(change, offset)

    def trimmed(self, start_offset: int) -> None:
        """Note that the records below are about to be deleted."""
        self.start_offset = start_offset

    def write(self, changes: Sequence[Change[Key, Value]]) -> None:
        """Append one decision, and the values that it carries along, in one batch. Raises what `append` raises, and
        then changes nothing."""
        if not changes:
            return
        new = {change.key for change in changes}
        carried = tuple(self.places.to_carry(new, self.end_offset - self.start_offset))
        written = _Written(self.end_offset, tuple(changes), carried)
        records = [*changes, *(Change(key, self.get(key)) for key in carried)]
        end_offset = self._append([self._codec.encode(record) for record in records])
        if end_offset != written.end_offset:
            raise AssertionError(f"the log ends at {end_offset} after a decision meant to end at {written.end_offset}")
        self.end_offset = end_offset
        self._in_flight.append(written)
        for change in changes:
            self._newest.setdefault(change.key.owner, {})[change.key] = (end_offset, change.value)
            self._last_end[change.key.owner] = end_offset
        for record in records:
            self.places.written(record.key, gone=record.value is None)

    def commit(self, high_watermark: int) -> list[Change[Key, Value]]:
        """Take all changes below the high watermark for committed. Returns them in their order."""
        committed: list[Change[Key, Value]] = []
        while self._in_flight and self._in_flight[0].end_offset <= high_watermark:
            written = self._in_flight.popleft()
            for offset, change in enumerate(written.changes, written.base_offset):
                self._apply(change, offset)
                self._settle(change.key, written.end_offset)
            for offset, key in enumerate(written.carried, written.base_offset + len(written.changes)):
                self.places.committed(key, offset, gone=False)
            committed.extend(written.changes)
        return committed

    def _apply(self, change: Change[Key, Value], offset: int) -> None:
        self.places.committed(change.key, offset, gone=change.value is None)
        owner = change.key.owner
        owned = self._committed.setdefault(owner, {})
        if change.value is None:
            owned.pop(change.key, None)
        else:
            owned[change.key] = change.value
        if not owned:
            del self._committed[owner]

    def _settle(self, key: Key, end_offset: int) -> None:
        newest = self._newest.get(key.owner)
        if newest is None:
            return
        if key in newest and newest[key][0] == end_offset:
            del newest[key]
        if not newest:
            del self._newest[key.owner], self._last_end[key.owner]
