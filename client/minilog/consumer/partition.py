"""One assigned partition: the place of the user, the place of the stream, and the runs between them.

    position       the next offset that the user gets
    fetch_offset   the next offset that the stream must bring. The buffered runs lie between the two

The consumer takes a run only if it names the current position number and continues at fetch_offset without a gap
(rule V14).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.errors import AuthenticationFailed, CorruptMessage, MinilogError
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import HEADER_BYTES, Buffer
from minilog.types import TopicPartition

if TYPE_CHECKING:
    from minilog.typed.rows.reader import TypedReader
    from minilog.typed.schema.topic_schemas import TopicSchemas

_FRAME = struct.Struct("<4xIqi")  # length, base_offset, partition_leader_epoch
_LAST_DELTA = struct.Struct("<I")
_LAST_DELTA_AT = 36


@dataclass(slots=True)
class ConsumerSession:
    """One fetch stream. Credit is an absolute count of bytes: the bytes given back, and the window."""

    broker_id: int
    window_bytes: int
    is_open: bool = False
    received_bytes: int = 0
    given_back_bytes: int = 0
    credit_sent_bytes: int = 0
    attached: int = 0  # the number of partitions whose position it has
    read_from_ms: float = 0.0  # the last time when it had any
    forgotten: list[PartitionKey] = field(default_factory=list)

    @property
    def credit_bytes(self) -> int:
        return self.given_back_bytes + self.window_bytes

    @property
    def may_send(self) -> bool:
        """Whether the broker has credit left, as far as the client knows."""
        return self.received_bytes < self.credit_sent_bytes

    def owes_credit(self) -> bool:
        """Whether a quarter of the window is unsent, which is worth a message. Less does not hold up the leader."""
        return self.credit_bytes - self.credit_sent_bytes >= max(1, self.window_bytes // 4)


@dataclass(frozen=True, slots=True)
class FetchedRun:
    """Batches back to back. The user gets their records in [start_offset, end_offset), without those of aborted
    transactions. The broker names the producers of the aborted batches with each run.

    `begun` is the rest of the batch before them: decoded, and not handed out yet. It is opaque here."""

    partition: TopicPartition
    key: PartitionKey
    position_number: int
    start_offset: int
    end_offset: int
    last_epoch: int  # of the last batch
    batches: Buffer
    aborted_producer_ids: frozenset[int]
    session: ConsumerSession
    epoch_before: int | None = None  # of the record before start_offset, if known
    begun: object = None
    reader: TypedReader | None = None  # of a topic that has a schema
    headers_only: bool = False  # of a topic that has none: what is wanted of a batch


@dataclass(slots=True)
class Assigned:
    """The position of a consumer in one assigned partition, and the runs behind it.

    `reset` names the place to begin at, until an offset is known. `otherwise` names it if the group has committed none
    (starting.py).
    """

    partition: TopicPartition
    end_offset: int | None
    position_number: int
    position: int | None = None
    fetch_offset: int | None = None
    reset: str | None = None
    otherwise: str = "error"
    resolving: bool = False
    not_below: int = 0  # it begins at this offset or above
    key: PartitionKey | None = None
    last_epoch: int | None = None  # of the record before fetch_offset, if known
    position_epoch: int | None = None  # of the record before position, if known
    session: ConsumerSession | None = None  # the session that has the position
    leader_epoch: int = -1  # the epoch in which the consumer sent the position
    runs: deque[FetchedRun] = field(default_factory=deque)
    retry_at_ms: float = 0.0
    broken_runs: int = 0  # one after the other, at one offset
    missing_since_ms: float | None = None
    error: MinilogError | None = None
    reader: TypedReader | None = None  # its selection went with the position
    headers_only: bool = False  # went with the position, in a topic without a schema
    unknown_beside: TopicSchemas | None = None  # a batch has a version that is not among these
    follower_id: int | None = None  # the consumer reads from it, or is about to; None: the leader
    accepted: bool = False  # that follower has answered without an error
    known_end: int = 0  # the highest readable end that a replica named in this leader epoch
    expected_since_ms: float | None = None  # since this time the follower owes an answer or records
    is_held: bool = False  # the user has paused it

    def is_finished(self) -> bool:
        return self.end_offset is not None and self.position is not None and self.position >= self.end_offset

    def is_all_fetched(self) -> bool:
        return self.end_offset is not None and self.fetch_offset is not None and self.fetch_offset >= self.end_offset

    def wants_no_more(self) -> bool:
        """Whether the broker should send nothing of it now: its end is here, or the user has paused it."""
        return self.is_all_fetched() or (self.is_held and self.fetch_offset is not None)

    def hold(self, position_number: int) -> None:
        """Pause it until the user resumes it. The consumer drops the buffered runs: they would hold credit of the
        session, which the other partitions need."""
        self.is_held = True
        if self.position is not None:
            epoch = self.position_epoch
            self.place(self.position, position_number)
            self.last_epoch = self.position_epoch = epoch

    def place(self, offset: int, position_number: int) -> None:
        """Go on from `offset`. This drops the buffered runs, and gives their bytes back."""
        self.drop_runs()
        self.position = self.fetch_offset = offset
        self.position_number = position_number
        self.reset = self.last_epoch = self.position_epoch = self.error = None
        self.resolving, self.not_below = False, 0
        self.detach()

    def begin_reset(self, where: str, position_number: int, log_start: int = 0) -> None:
        """Ask again for the place to begin at. A consumer below `log_start` does not go back below its position. The
        log of the next leader may start lower, if nobody acknowledged the deletion."""
        self.drop_runs()
        self.not_below = self.position if self.position is not None and self.position < log_start else 0
        self.position = self.fetch_offset = self.last_epoch = self.position_epoch = None
        self.reset, self.resolving, self.position_number = where, False, position_number
        self.detach()

    def awaits_schemas(self, schemas: object) -> bool:
        """Whether the metadata still has the same versions of the schema as when a batch was unreadable."""
        return self.unknown_beside is not None and self.unknown_beside is schemas

    def has_awaited(self, schemas: object) -> bool:
        """Whether the metadata has other versions since then."""
        return self.unknown_beside is not None and self.unknown_beside is not schemas

    def drop_runs(self) -> None:
        for run in self.runs:
            run.session.given_back_bytes += len(run.batches)
        self.runs.clear()

    def take_run(self) -> FetchedRun:
        """Take the next run. The position moves behind it, and its bytes are given back."""
        run = self.runs.popleft()
        run.session.given_back_bytes += len(run.batches)
        self.position, self.position_epoch = run.end_offset, run.last_epoch
        return run

    def put_back(self, run: FetchedRun) -> None:
        """Take back the run that was taken last, and not handed out. The position is before it again, and its bytes
        count as held."""
        run.session.given_back_bytes -= len(run.batches)
        self.runs.appendleft(run)
        self.position, self.position_epoch = run.start_offset, run.epoch_before

    def detach(self) -> None:
        """Ask the session to send no more of this partition."""
        if self.session is not None:
            self.session.attached -= 1
            if self.key is not None:
                self.session.forgotten.append(self.key)
        self.session = None

    def pause(self, until_ms: float) -> None:
        """Ask again at that time. The broker that has the position gets a request to send no more."""
        self.retry_at_ms = until_ms
        self.detach()

    @property
    def on_follower(self) -> bool:
        """Whether a follower has the position."""
        return self.session is not None and self.session.broker_id == self.follower_id

    def turn_to(self, follower_id: int | None, now_ms: float) -> None:
        """Read from this replica as soon as its session is open."""
        self.follower_id, self.accepted = follower_id, False
        self.expected_since_ms = None if follower_id is None else now_ms

    def attach(self, session: ConsumerSession, leader_epoch: int, position_number: int, now_ms: float) -> None:
        """Give the position to this session."""
        self.unknown_beside = None
        session.attached += self.session is not session
        self.session, self.position_number = session, position_number
        self.begin_epoch(leader_epoch)
        self.turn_to(self.follower_id, now_ms)

    def begin_epoch(self, leader_epoch: int) -> None:
        if leader_epoch > self.leader_epoch:
            self.known_end = 0
        self.leader_epoch = leader_epoch

    def heard(self, readable_end: int) -> None:
        """Note a run, or news, without an error."""
        self.known_end = max(self.known_end, readable_end)
        if self.on_follower and not self.accepted:
            self.accepted, self.expected_since_ms = True, None

    def look(self, now_ms: float) -> None:
        """Note whether the follower owes anything: its first answer, or records below a known end if it has credit."""
        if self.accepted and self.fetch_offset is not None:
            end = max(self.known_end, self.end_offset or 0)
            owes = self.fetch_offset < end and self.session is not None and self.session.may_send
            if not owes:
                self.expected_since_ms = None
            elif self.expected_since_ms is None:
                self.expected_since_ms = now_ms

    def receive(self, batches: Buffer, aborted_producer_ids: frozenset[int], session: ConsumerSession) -> None:
        """Append a run. Raises CorruptMessage for a run that does not continue the buffered ones."""
        assert self.fetch_offset is not None
        assert self.key is not None
        next_offset, epoch = end_of_run(batches, self.fetch_offset)
        end = next_offset if self.end_offset is None else min(next_offset, self.end_offset)
        self.runs.append(
            FetchedRun(
                self.partition,
                self.key,
                self.position_number,
                self.fetch_offset,
                end,
                epoch,
                batches,
                aborted_producer_ids,
                session,
                self.last_epoch,
                reader=self.reader,
                headers_only=self.headers_only,
            )
        )
        self.fetch_offset, self.last_epoch, self.expected_since_ms = end, epoch, None


def end_of_run(batches: Buffer, fetch_offset: int) -> tuple[int, int]:
    """(the offset behind, the leader epoch of the last batch) of whole batches that begin at or hold `fetch_offset`.

    This looks at the frames only. The decoder checks the checksums. Raises CorruptMessage for a gap, a step back or a
    cut batch.
    """
    position, size = 0, len(batches)
    expected, epoch = fetch_offset, -1
    while position < size:
        if size - position < HEADER_BYTES:
            raise CorruptMessage(f"a run is cut inside the header of the batch expected at offset {expected}")
        length, base_offset, epoch = _FRAME.unpack_from(batches, position)
        next_offset = base_offset + _LAST_DELTA.unpack_from(batches, position + _LAST_DELTA_AT)[0] + 1
        if length < HEADER_BYTES or position + length > size:
            raise CorruptMessage(
                f"the batch at offset {base_offset} is cut: it has {length} bytes, and only {size - position} came"
            )
        fits = base_offset <= expected < next_offset if position == 0 else base_offset == expected
        if not fits:
            raise CorruptMessage(f"a run has offsets {base_offset} to {next_offset - 1}, but {expected} comes next")
        expected, position = next_offset, position + length
    return expected, epoch


def raise_error(partitions: Iterable[Assigned]) -> None:
    """Raise the error of a partition that cannot go on, if there is one. After a retriable error, and
    after a refused login, the partition tries again. A partition that the user has paused keeps its error until it is
    resumed."""
    for assigned in partitions:
        if assigned.error is not None and not assigned.is_held:
            error = assigned.error
            if error.retriable or isinstance(error, AuthenticationFailed):
                assigned.error = assigned.missing_since_ms = None
            raise error


def put_back(by_partition: Mapping[TopicPartition, Assigned], runs: Sequence[FetchedRun]) -> None:
    """Undo the last `take_in_turns` for these runs, if the position is still behind them."""
    for run in reversed(runs):
        assigned = by_partition.get(run.partition)
        if assigned is not None and assigned.key == run.key and assigned.position == run.end_offset:
            assigned.put_back(run)


def take_in_turns(ready: list[Assigned], max_bytes: int) -> list[FetchedRun]:
    """Take one run of each partition in turn: at least one, and about `max_bytes` in all. The positions move behind
    them, and the credit is given back."""
    taken: list[FetchedRun] = []
    size = 0
    while ready and (not taken or size + len(ready[0].runs[0].batches) <= max_bytes):
        assigned = ready.pop(0)
        run = assigned.take_run()
        size += len(run.batches)
        taken.append(run)
        if assigned.runs:
            ready.append(assigned)
    return taken
