"""What clients did and were told, and the judgement of it: V14 and V16, from the outside alone.

A write is pending, then ok (with its offset), failed (surely not written) or unknown (may be there). A reader is one
consumer and the partitions it reads. The checker knows nothing of brokers: it would judge any log.

    rule  what must be
    V14   an acknowledged write (acks=all) stands at its offset in the last read
    V14   no value stands at two offsets, where its writer is idempotent
    V14   no offset is ever read with two values; nothing is read that nobody wrote
    V14   a reader's offsets strictly increase and skip nothing; what was deleted by retention may be jumped
    V16   what was reported as failed is never read
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation


class Outcome(enum.Enum):
    """What a writer was told."""

    PENDING = "pending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """One value. `committed`: acknowledged under acks=all; `offset` -1: not told."""

    value: bytes
    key: PartitionKey
    client: str
    idempotent: bool
    acks: int
    began_ms: float
    outcome: Outcome = Outcome.PENDING
    offset: int = -1
    ended_ms: float = -1.0
    error: str = ""


@dataclass(slots=True)
class _Partition:
    """What was ever read of one partition. `exempt`: losses are allowed here (docs/spec/invariants.md)."""

    values: dict[int, bytes] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    exempt: bool = False


class History:
    """See the module's text. Its methods raise Violation."""

    def __init__(self) -> None:
        self.writes: dict[bytes, Write] = {}
        self.may_be_deleted: Callable[[PartitionKey], int] = lambda key: 0  # the offset below which records may be gone
        self.may_miss: Callable[[PartitionKey, int], bool] = lambda key, offset: False  # what compaction may take
        self.read_count = 0
        self._partitions: dict[PartitionKey, _Partition] = {}
        self._positions: dict[tuple[str, PartitionKey], int] = {}

    def _of(self, key: PartitionKey) -> _Partition:
        return self._partitions.setdefault(key, _Partition())

    def exempt(self, key: PartitionKey) -> None:
        """From now on this partition may have lost what was acknowledged."""
        self._of(key).exempt = True

    def counts(self) -> dict[Outcome, int]:
        """How many writes ended how."""
        found = dict.fromkeys(Outcome, 0)
        for write in self.writes.values():
            found[write.outcome] += 1
        return found

    # -- writes

    def began(self, write: Write) -> None:
        if write.value in self.writes:
            raise ValueError(f"{write.value!r} is written twice by the workload")
        self.writes[write.value] = write

    def ended(self, value: bytes, outcome: Outcome, now_ms: float, *, offset: int = -1, error: str = "") -> None:
        write = self.writes[value]
        if write.outcome is not Outcome.PENDING:
            text = f"{value!r} was reported as {write.outcome.value} and then as {outcome.value}"
            raise Violation("V16", text)
        write.outcome, write.offset, write.ended_ms, write.error = outcome, offset, now_ms, error
        if outcome is Outcome.FAILED and (at := self._of(write.key).offsets.get(value)) is not None:
            raise Violation("V16", f"{value!r} was read at {at} and is then reported as failed: {error}")

    def acknowledged(self) -> list[tuple[PartitionKey, int]]:
        """Where the writes stand that were acknowledged under acks=all."""
        writes = self.writes.values()
        return [
            (write.key, write.offset)
            for write in writes
            if write.outcome is Outcome.OK and write.acks == -1 and write.offset >= 0
        ]

    # -- reads

    def placed(self, client: str, key: PartitionKey, offset: int) -> None:
        """A reader begins, or seeks: its next record is at `offset` or above."""
        self._positions[client, key] = offset

    def read(self, client: str, key: PartitionKey, offset: int, value: bytes) -> None:
        """A reader was handed a record."""
        self.read_count += 1
        self._passed(client, key, offset)
        self._positions[client, key] = offset + 1
        self._saw(client, key, offset, value)

    def read_by_chance(self, client: str, key: PartitionKey, offset: int, value: bytes) -> None:
        """A reader that wants some records was handed one. What it was to be handed is judged elsewhere."""
        self.read_count += 1
        self._saw(client, key, offset, value)

    def values_of(self, key: PartitionKey) -> dict[int, bytes]:
        """What was ever read of a partition, by offset."""
        return self._of(key).values

    def _saw(self, client: str, key: PartitionKey, offset: int, value: bytes) -> None:
        partition = self._of(key)
        if partition.exempt:
            return
        known = partition.values.setdefault(offset, value)
        if known != value:
            raise Violation("V14", f"{client} reads {value!r} at {offset}, where {known!r} was read before")
        write = self.writes.get(value)
        if write is None or write.key != key:
            raise Violation("V14", f"{client} reads {value!r} at {offset}, which nobody wrote there")
        if write.outcome is Outcome.FAILED:
            text = f"{client} reads {value!r} at {offset}, which was reported as failed: {write.error}"
            raise Violation("V16", text)
        first = partition.offsets.setdefault(value, offset)
        if first != offset and write.idempotent:
            raise Violation("V14", f"{value!r} is read at {first} and at {offset}")

    def _passed(self, client: str, key: PartitionKey, offset: int) -> None:
        """A reader goes on at `offset`, and was handed nothing since its last record: there was nothing for it."""
        expected = self._positions.get((client, key))
        if expected is None or offset == expected or self.is_exempt(key):
            return
        if offset < expected:
            raise Violation("V14", f"{client} reads offset {offset} again where {expected} comes next")
        kept_from = max(expected, self.may_be_deleted(key))
        if not all(self.may_miss(key, each) for each in range(kept_from, offset)):
            raise Violation("V14", f"{client} reads {offset} next: it skips, where {expected} comes next")

    def passed_deleted(self, client: str, key: PartitionKey, position: int | None) -> None:
        """A reader that is handed nothing says where it is: it may have gone on over what was deleted, no further."""
        expected = self._positions.get((client, key))
        if position is None or expected is None or expected >= position:
            return
        if all(self.may_miss(key, each) for each in range(max(expected, self.may_be_deleted(key)), position)):
            self._positions[client, key] = position

    def known_position(self, client: str, key: PartitionKey) -> int | None:
        """The next offset a reader expects; None where it has read nothing."""
        return self._positions.get((client, key))

    def is_exempt(self, key: PartitionKey) -> bool:
        return self._of(key).exempt

    # -- the end

    def check_end(self, client: str, ends: dict[PartitionKey, tuple[int, int]]) -> None:
        """After the last poll: `client` has read each partition from its start to its end (start, end)."""
        for key, (_, end) in ends.items():
            position = self.known_position(client, key) or 0
            if position < end:
                raise Violation("V14", f"{client} stops at {position} of partition {key.partition}, {end} is")
        for write in self.writes.values():
            if write.key not in ends or write.outcome is not Outcome.OK or write.acks != -1:
                continue
            partition, start = self._of(write.key), ends[write.key][0]
            if partition.exempt or write.offset < start:
                continue
            found = partition.values.get(write.offset)
            if found is None and self.may_miss(write.key, write.offset):
                continue
            if found != write.value:
                text = f"{write.value!r} of {write.client} was acknowledged at {write.offset}; there is {found!r}"
                raise Violation("V14", text)
