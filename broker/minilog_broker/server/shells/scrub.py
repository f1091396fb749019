"""The scrub: a broker reads the partitions that it leads, slowly, and compares them with the other copies.

    range       about RANGE_BYTES of batches of sealed segments, below the high watermark
    read        in slices, by a reader's thread. A range with an error is read again, in its turn on the disk's thread,
                where nothing cuts the log meanwhile. An error there, too, is damage
    compare     each other member of the ISR answers with the digest of the same range of its copy, and finds damage in
                the same way
    decide      replication/rules/scrub.py. Where copies differ the leader asks all of them a second time before it acts
    pace        the reads of a broker for its own scrub and for the scrub of others share one rate

A broker reads its other copies when their leaders ask. The rule is in docs/spec/replication.md § Scrub.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from minilog.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    MinilogError,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnsupportedVersion,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.schema import MAX_MESSAGE_BYTES
from minilog.v1 import peer_pb2
from minilog_broker.replication.rules.scrub import compare_copies
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.disk.reader_threads import result_of
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.storage.errors import DifferingCopy
from minilog_broker.storage.files import PIECE_BYTES
from minilog_broker.storage.log import Log
from minilog_broker.storage.range_digest import RangeDigest, RangeReading, digest_range

logger = structlog.get_logger()

RANGE_BYTES = 1 << 20  # 0.25 s of the default rate; each range costs a call to each other member
SLICE_BYTES = 64 << 10  # read in one go, or one batch where that is larger; PIECE_BYTES where batches are large
MOST_BYTES = RANGE_BYTES + MAX_MESSAGE_BYTES  # of another leader's range: one batch may be above the limit
_NOT_AS_WRITTEN = (OSError, CorruptMessage, UnsupportedVersion)
_Request = peer_pb2.DigestRecordsRequest | peer_pb2.SetCopyAsideRequest


class ScrubCalls(Protocol):
    """The calls to other brokers. Both raise MinilogError where there is no answer."""

    def digest_records(self, broker_id: int, request: peer_pb2.DigestRecordsRequest) -> Awaitable[bytes]: ...

    def set_copy_aside(self, broker_id: int, request: peer_pb2.SetCopyAsideRequest) -> Awaitable[None]: ...


class ScrubPace:
    """Turns of reading. The next turn begins when the bytes of the former ones have had their time at the rate."""

    def __init__(self, bytes_per_second: int, monotonic_s: Callable[[], float]) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic_s = monotonic_s
        self._turn = asyncio.Lock()
        self._free_s = 0.0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One turn: no other read of a scrub is under way."""
        async with self._turn:
            await asyncio.sleep(max(0.0, self._free_s - self._monotonic_s()))
            yield

    def used(self, size_bytes: int) -> None:
        self._free_s = max(self._free_s, self._monotonic_s()) + size_bytes / self._bytes_per_second

    def reconfigured(self, bytes_per_second: int) -> None:
        """Another rate, for what is read from now on."""
        self._bytes_per_second = bytes_per_second


@dataclass(slots=True)
class ScrubCounts:
    """The counts for the metrics."""

    read_bytes: int = 0
    rounds: int = 0
    damaged: int = 0  # copies that this broker has set aside


@dataclass(frozen=True, slots=True)
class _Led:
    """A partition while this broker leads it in one epoch. `members`: the other members of its ISR."""

    key: PartitionKey
    topic_name: str
    leader_epoch: int
    members: tuple[int, ...]
    replicas: int
    log: Log
    end_offset: int


def _end_of_round(at_begin: _Led, now: _Led) -> int:
    """A round ends at the end that it found."""
    return min(at_begin.end_offset, now.end_offset)


class Scrub:
    """The task of one broker that scrubs its partitions, and the broker's answers to the scrub of others.

    `interval_s` 0: the broker scrubs no partition of its own, and answers other leaders.
    """

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicationShell,
        disk: Disk,
        calls: ScrubCalls,
        pace: ScrubPace,
        chance: random.Random,
        monotonic_s: Callable[[], float],
        interval_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._disk = disk
        self._calls = calls
        self._pace = pace
        self._chance = chance
        self._monotonic_s = monotonic_s
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._undecided: set[PartitionKey] = set()
        self.counts = ScrubCounts()

    @property
    def undecided(self) -> list[PartitionKey]:
        """The partitions led here whose copies differed in the last scrub, without a majority that agrees."""
        return sorted(key for key in self._undecided if self._led(key) is not None)

    async def run(self) -> None:
        """Scrub until cancelled. The first round begins after a random share of the interval, and each round is in
        random order. So a broker that restarts often comes to all of its partitions, too."""
        former_s = self._monotonic_s() - self._interval_s * self._chance.random()
        while True:
            await self._wait(former_s)
            await self.round()
            former_s = self._monotonic_s()

    async def _wait(self, former_s: float) -> None:
        """Wait until the interval since `former_s` is over. It may change meanwhile."""
        while (pause_s := self._pause_s(former_s)) is None or pause_s > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause_s)

    def _pause_s(self, former_s: float) -> float | None:
        """None: no round begins."""
        return former_s + self._interval_s - self._monotonic_s() if self._interval_s else None

    def reconfigured(self, config: BrokerConfig) -> None:
        """Take a new configuration of the running broker."""
        self._interval_s = config.log_scrub_interval_ms / 1000.0
        self._pace.reconfigured(config.log_scrub_max_bytes_per_second)
        self._changed.set()

    async def round(self) -> None:
        """Scrub each partition that this broker leads. A round ends where the interval becomes 0 meanwhile."""
        keys = [leader.key for leader in self._replicas.manager.led_partitions()]
        self._undecided &= set(keys)
        self._chance.shuffle(keys)
        for key in keys:
            await self._scrub(key)
        self.counts.rounds += bool(self._interval_s)

    async def _scrub(self, key: PartitionKey) -> None:
        """Scrub what the partition has now. The next round scrubs what is sealed meanwhile: where records come as fast
        as the scrub reads, this round would never end, and never come to the other partitions."""
        at_begin = self._led(key)
        offset, is_undecided = 0, False
        while self._interval_s and at_begin is not None and (led := self._led(key)) is not None:
            offset, end_offset = max(offset, led.log.log_start_offset), _end_of_round(at_begin, led)
            if offset >= end_offset:
                break
            own = await self._digest(led.log, offset, end_offset, RANGE_BYTES)
            if own is None or not own.size_bytes:
                break
            is_undecided |= await self._compare(led, own)
            offset = own.end_offset
        if is_undecided:
            self._undecided.add(key)
        else:
            self._undecided.discard(key)

    def _led(self, key: PartitionKey) -> _Led | None:
        replica = self._replicas.manager.copy_of(key)
        if replica is None or replica.log is None or replica.leader is None or not replica.leader.leading:
            return None
        state, log = replica.leader.state, replica.log.log
        members = tuple(member for member in state.in_sync_replicas if member != self._broker_id)
        end_offset = min(log.sealed_end_offset, replica.log.high_watermark)
        return _Led(key, state.topic_name, state.leader_epoch, members, len(state.replicas), log, end_offset)

    # -- reading

    async def _digest(self, log: Log, start: int, end: int, max_bytes: int) -> RangeDigest | None:
        """The digest of a range, None where the copy has no such range, or is damaged."""
        readers = self._replicas.readers
        reading = RangeReading(log, start, end, max_bytes, readers.pause)
        try:
            while not reading.is_done:
                async with self._pace.turn():
                    before_bytes = reading.cost_bytes
                    slice_bytes = SLICE_BYTES if reading.has_small_batches else PIECE_BYTES
                    size_bytes: int = await result_of(readers, partial(reading.read_slice, slice_bytes))
                    self._used(size_bytes, reading.cost_bytes - before_bytes)
        except OffsetOutOfRange:
            return None
        except _NOT_AS_WRITTEN:
            return await self._digest_in_turn(log, start, end, max_bytes)
        return reading.digest()

    async def _digest_in_turn(self, log: Log, start: int, end: int, max_bytes: int) -> RangeDigest | None:
        """The same on the disk's thread. Nothing cuts the log during this read, so an error is damage."""

        def work() -> RangeDigest | OSError | MinilogError | None:
            try:
                return digest_range(log, start, end, max_bytes)
            except OffsetOutOfRange:
                return None
            except _NOT_AS_WRITTEN as error:
                return error

        outcome: RangeDigest | OSError | MinilogError | None = await self._disk.call(work)
        if isinstance(outcome, RangeDigest):
            self._used(outcome.size_bytes, outcome.size_bytes)
            return outcome
        if outcome is not None:
            self._set_aside(log, outcome)
        return None

    def _used(self, size_bytes: int, cost_bytes: int) -> None:
        self._pace.used(cost_bytes)
        self.counts.read_bytes += size_bytes

    def _set_aside(self, log: Log, error: OSError | MinilogError) -> None:
        logger.error("the scrub found a damaged or differing copy", log=log.directory, error=str(error))
        self.counts.damaged += 1
        self._replicas.damaged(log, error)

    # -- comparing

    async def _compare(self, led: _Led, own: RangeDigest) -> bool:
        """Whether the copies differ, and no majority of them agrees.

        Below a point of compaction copies may have other bytes. A copy records the point before it changes any."""
        if own.start_offset < led.log.compaction.begun.clean_to:
            return False
        digests = await self._digests_with(led, own)
        if compare_copies(digests, led.replicas) == compare_copies({}, led.replicas):
            return False
        again = await self._digest_in_turn(led.log, own.start_offset, own.end_offset, MOST_BYTES)
        comparison = compare_copies(digests, led.replicas)
        witnesses = digests.keys() - set(comparison.differing)
        if again is None or await self._digests_with(led, again) != digests or not self._leads_still(led, witnesses):
            return False  # something has changed meanwhile: the next round compares again
        if comparison.is_undecided:
            self._tell_undecided(led, own, digests)
        for broker_id in sorted(comparison.differing, key=lambda member: member == self._broker_id):  # ours last
            if self._leads_still(led, witnesses):
                await self._let_go(led, own, broker_id, digests[broker_id])
        return comparison.is_undecided

    def _leads_still(self, led: _Led, witnesses: Set[int]) -> bool:
        """Whether this broker leads in the same epoch, with all witnesses in the ISR. One that left the ISR lacks later
        acknowledged records, and cannot replace a copy."""
        now = self._led(led.key)
        if now is None or not witnesses <= {self._broker_id, *now.members}:
            return False
        return (now.leader_epoch, now.log) == (led.leader_epoch, led.log)

    async def _digests_with(self, led: _Led, own: RangeDigest) -> dict[int, bytes]:
        """The digests of this copy and of the copies of all members that answer, by broker."""
        answers = await asyncio.gather(*(self._ask(led, own, member) for member in led.members))
        others = zip(led.members, answers, strict=True)
        return {self._broker_id: own.digest} | {member: digest for member, digest in others if digest is not None}

    async def _ask(self, led: _Led, own: RangeDigest, member: int) -> bytes | None:
        request = peer_pb2.DigestRecordsRequest(
            broker_id=self._broker_id,
            partition_id=led.key.to_wire(),
            leader_epoch=led.leader_epoch,
            start_offset=own.start_offset,
            end_offset=own.end_offset,
        )
        try:
            return await self._calls.digest_records(member, request)
        except MinilogError as error:
            logger.debug("a copy is not compared", topic=led.topic_name, broker=member, error=str(error))
            return None

    async def _let_go(self, led: _Led, own: RangeDigest, broker_id: int, digest: bytes) -> None:
        """Set a copy aside that differs. Its broker fetches it again, and leads no more where it was the leader."""
        logger.error(
            "a copy differs from most copies: its broker sets it aside, and fetches the records again",
            topic=led.topic_name,
            partition=led.key.partition,
            broker=broker_id,
            start_offset=own.start_offset,
            end_offset=own.end_offset,
        )
        if broker_id == self._broker_id:
            self._set_aside(led.log, _differs(own.start_offset, own.end_offset))
            return
        request = peer_pb2.SetCopyAsideRequest(
            broker_id=self._broker_id,
            partition_id=led.key.to_wire(),
            leader_epoch=led.leader_epoch,
            start_offset=own.start_offset,
            end_offset=own.end_offset,
            digest=digest,
        )
        try:
            await self._calls.set_copy_aside(broker_id, request)
        except MinilogError as error:
            logger.warning("a copy that differs was not set aside", broker=broker_id, error=str(error))

    def _tell_undecided(self, led: _Led, own: RangeDigest, digests: dict[int, bytes]) -> None:
        logger.error(
            "copies of the same records differ, and no majority of them agrees: the scrub changes nothing. Choose the "
            "broker with the right copy, and make it the only replica: `minilog topic reassign TOPIC --to "
            "PARTITION:BROKER`. The topic's min.insync.replicas must be 1 for that. Then reassign the partition to all "
            "brokers again: they fetch that copy",
            topic=led.topic_name,
            partition=led.key.partition,
            start_offset=own.start_offset,
            end_offset=own.end_offset,
            copies=", ".join(f"broker {member}: {digest.hex()}" for member, digest in sorted(digests.items())),
        )

    # -- answers to other leaders

    async def answer_digest(self, request: peer_pb2.DigestRecordsRequest) -> peer_pb2.DigestRecordsResponse:
        """The answer to DigestRecords."""
        try:
            log = self._followed_log(request)
            range_digest = await self._digest(log, request.start_offset, request.end_offset, MOST_BYTES)
            if range_digest is None or self._followed_log(request) is not log:
                raise OffsetNotAvailable("this copy has no such range: it is damaged, or its records were deleted")
        except MinilogError as error:
            return peer_pb2.DigestRecordsResponse(error=wire_error(error))
        return peer_pb2.DigestRecordsResponse(digest=range_digest.digest)

    async def answer_set_aside(self, request: peer_pb2.SetCopyAsideRequest) -> peer_pb2.SetCopyAsideResponse:
        """The answer to SetCopyAside. The copy must still have the digest that its leader has compared."""
        try:
            log = self._followed_log(request)
            range_digest = await self._digest_in_turn(log, request.start_offset, request.end_offset, MOST_BYTES)
            if range_digest is None or range_digest.digest != request.digest or self._followed_log(request) is not log:
                raise OffsetNotAvailable("this copy has changed since the leader compared it")
        except MinilogError as error:
            return peer_pb2.SetCopyAsideResponse(error=wire_error(error))
        self._set_aside(log, _differs(request.start_offset, request.end_offset))
        return peer_pb2.SetCopyAsideResponse()

    def _followed_log(self, request: _Request) -> Log:
        """The log of an in-sync follower of the calling leader. Raises FencedLeaderEpoch, OffsetNotAvailable."""
        replica = self._replicas.manager.copy_of(PartitionKey.of(request.partition_id))
        state = None if replica is None else replica.state
        if replica is None or replica.log is None or state is None or replica.follower is None:
            raise OffsetNotAvailable(f"broker {self._broker_id} does not follow here")
        if (state.leader_id, state.leader_epoch) != (request.broker_id, request.leader_epoch):
            raise FencedLeaderEpoch(f"broker {state.leader_id} leads here, in epoch {state.leader_epoch}")
        is_there = not replica.log.truncating and replica.log.durable_end >= request.end_offset
        if not is_there or self._broker_id not in state.in_sync_replicas:
            raise OffsetNotAvailable(f"broker {self._broker_id} is not in sync up to offset {request.end_offset}")
        if request.start_offset < (clean_to := replica.log.log.compaction.begun.clean_to):
            raise OffsetNotAvailable(f"broker {self._broker_id} compacts its copy up to offset {clean_to}")
        return replica.log.log


def _differs(start_offset: int, end_offset: int) -> DifferingCopy:
    damage = f"the records from offset {start_offset} to {end_offset} differ from those of most copies"
    return DifferingCopy(damage, start_offset)
