"""A table of values by key that is the replay of a partition of an internal topic, and what is on its way into it.

    committed     each key's value as of the high watermark: what the next coordinator will find, at least
    in flight     appended, and not yet below the high watermark: decided, so that the next decision builds on it, and
                  promised to nobody. Committed one day, or forgotten with the term: an append has no time-out, and is
                  never given up (Kafka gave up, and did not know what it had then: KAFKA-9666, KAFKA-5351, KAFKA-7519)

A record holds the whole value of its key, and none removes it: the log is kept short (places.py). Values are not
changed, they are replaced. Keys have an owner (a transactional id, a group): decisions of one owner rest on each other,
those of different owners do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from minilog_broker.coordinators.places import Places


class LogRecord(NamedTuple):
    """What is appended: a value of None removes the key."""

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
    """`key` has `value` from now on; None: it is gone."""

    key: Key
    value: Value | None


class Codec(Protocol[Key, Value]):
    """How keys and values are written."""

    def encode(self, change: Change[Key, Value]) -> LogRecord: ...

    def decode(self, record: LogRecord) -> Change[Key, Value]: ...


class _Written(NamedTuple, Generic[Key, Value]):
    """One batch: what was decided, and behind it what was carried along."""

    base_offset: int
    changes: tuple[Change[Key, Value], ...]
    carried: tuple[Key, ...]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.changes) + len(self.carried)


class Table(Generic[Key, Value]):
    """The committed value of each key, and the changes in flight.

    `append` writes one batch and returns the log's new end. Where it raises, it wrote nothing.
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
        """As of the high watermark."""
        return self._committed.get(key.owner, {}).get(key)

    def owned(self, owner: str) -> Iterator[tuple[Key, Value]]:
        """All of one owner."""
        newest = self._newest.get(owner, {})
        for key, value in self._committed.get(owner, {}).items():
            if key not in newest:
                yield key, value
        for key, (_, latest) in newest.items():
            if latest is not None:
                yield key, latest

    def owners(self) -> list[str]:
        """All that have, or are about to have, or not to have, anything."""
        return sorted(self._committed.keys() | self._newest.keys())

    def rests_on(self, owner: str | None) -> int:
        """How far the log is to be committed before anything may be said of an owner (None: of all). 0: now."""
        if owner is None:
            return self._in_flight[-1].end_offset if self._in_flight else 0
        return self._last_end.get(owner, 0)

    def committed(self) -> dict[Key, Value]:
        """Everything as of the high watermark."""
        return {key: value for owned in self._committed.values() for key, value in owned.items()}

    def committed_end(self) -> int:
        """How far the log was taken for committed."""
        return self._in_flight[0].base_offset if self._in_flight else self.end_offset

    def needed_from(self) -> int:
        """Nobody needs what is in the log below this offset. At most `committed_end`."""
        return self.places.needed_from(self.committed_end())

    # -- what happens to it

    def clear(self, end_offset: int) -> None:
        """Nothing is known; the log ends at `end_offset`. Where it starts, `replay` or `trimmed` tell."""
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
        """What is below is about to be deleted."""
        self.start_offset = start_offset

    def write(self, changes: Sequence[Change[Key, Value]]) -> None:
        """One decision, and what it carries along: one batch. Raises what `append` raises, and changes nothing then."""
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
        """What is below the high watermark is committed: it, in order."""
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
