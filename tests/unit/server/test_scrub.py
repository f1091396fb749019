"""The shell of the scrub, over a real log: the copies of the other brokers answer what a test gives them."""

from __future__ import annotations

import asyncio
import pathlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import pytest

from minilog.errors import FencedLeaderEpoch, MinilogError, OffsetNotAvailable, error_from_wire
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.v1 import peer_pb2
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.shells.scrub import Scrub, ScrubPace
from minilog_broker.storage.log import Log
from minilog_broker.storage.range_digest import digest_range
from tests.rules import proves
from tests.unit.server.coordinating import BROKER, BROKER_EPOCH, CONFIG, ORDERS, CoordinatingBroker

pytestmark = proves("DK.4")

KEY = PartitionKey(ORDERS, 0)
SMALL_SEGMENTS = replace(CONFIG, segment_bytes=256 << 10)
BATCHES = 20
RECORD_BYTES = 128 << 10  # all together are more than one range
FAST = 1 << 40  # bytes a second
ALL = (1, 2, 3)
LED = PartitionState(KEY, "orders", ALL, (BROKER,), (), (), BROKER, 0, 0, BROKER_EPOCH)

SAME, OTHER, THIRD = None, b"o" * 16, b"t" * 16
Look: TypeAlias = tuple[bytes | None, bytes | None]

_T = TypeVar("_T")


class OtherCopies:
    """The copies of brokers 2 and 3: their digests of a range, for each look at it in turn."""

    def __init__(self, log: Log, looks: Sequence[Look]) -> None:
        self.log = log
        self.looks = looks
        self.looked: dict[int, int] = {2: 0, 3: 0}
        self.before_second_look: Callable[[], None] = lambda: None
        self.set_aside: dict[int, bytes] = {}

    async def digest_records(self, broker_id: int, request: peer_pb2.DigestRecordsRequest) -> bytes:
        look = self.looked[broker_id]
        self.looked[broker_id] += 1
        if (look, broker_id) == (1, 2):
            self.before_second_look()
        given = self.looks[look % len(self.looks)][broker_id - 2]
        if given is SAME:
            return digest_range(self.log, request.start_offset, request.end_offset, 1 << 30).digest
        return given

    async def set_copy_aside(self, broker_id: int, request: peer_pb2.SetCopyAsideRequest) -> None:
        self.set_aside[broker_id] = request.digest


class ScrubbingBroker(CoordinatingBroker):
    """Broker 1 with a partition of three replicas and some sealed segments."""

    async def fill(self) -> Log:
        """Lead alone until all is committed, then with the other two in the ISR."""
        self.image_of(LED)
        replica = await self.until(lambda: self.replicas.manager.copy_of(KEY))
        await self.until(lambda: replica.leader is not None and replica.leader.leading)
        for number in range(BATCHES):
            columns = records_to_columns([b"%08d" % number * (RECORD_BYTES // 8)])
            batch = build_batch(ORDERS, 0, columns, timestamp_us=0)
            self.replicas.manager.produce(number, KEY, 0, 0, 1_000.0, batch, now_ms())
        self.replicas.run()
        assert replica.log is not None
        log = replica.log
        await self.until(lambda: log.high_watermark == BATCHES)
        self.image_of(replace(LED, in_sync_replicas=ALL, partition_epoch=1))
        return log.log

    def image_of(self, state: PartitionState) -> None:
        lives = {each: BrokerIncarnation(each, BROKER_EPOCH, "here", 1, False, False) for each in ALL}
        configs, names = {ORDERS: SMALL_SEGMENTS}, {ORDERS: "orders"}
        self.replicas.manager.apply_image([state], (), configs, names, lives, now_ms())
        self.replicas.run()

    async def until(self, found: Callable[[], _T | None]) -> _T:
        while not (value := found()):  # noqa: ASYNC110, one step of the loop at a time
            await asyncio.sleep(0)
        return value

    def scrub(self, others: OtherCopies) -> Scrub:
        monotonic_s = asyncio.get_running_loop().time
        pace = ScrubPace(FAST, monotonic_s)
        return Scrub(BROKER, self.replicas, self.disk, others, pace, random.Random(0), monotonic_s, 1.0)


def on_a_broker(path: pathlib.Path, scenario: Callable[[ScrubbingBroker, Log], Awaitable[None]]) -> None:
    async def run() -> None:
        broker = ScrubbingBroker(path)
        try:
            await scenario(broker, await broker.fill())
        finally:
            await broker.stop()

    asyncio.run(run())


def led_by(broker_id: int, in_sync_replicas: tuple[int, ...] = ALL) -> PartitionState:
    """The partition in its next epoch."""
    return replace(LED, leader_id=broker_id, in_sync_replicas=in_sync_replicas, leader_epoch=1, partition_epoch=2)


@pytest.mark.parametrize(
    ("looks", "set_aside", "own", "is_undecided"),
    [
        ([(SAME, SAME)], {}, 0, False),
        ([(SAME, OTHER)], {3: OTHER}, 0, False),
        ([(OTHER, OTHER)], {}, 1, False),  # two of three agree against the leader
        ([(OTHER, THIRD)], {}, 0, True),
        ([(SAME, OTHER), (SAME, SAME)], {}, 0, False),
        ([(SAME, OTHER), (SAME, THIRD)], {}, 0, False),
    ],
)
def test_a_round_sets_a_copy_aside_that_differs_twice_from_most(
    tmp_path: pathlib.Path, looks: list[Look], set_aside: dict[int, bytes], own: int, is_undecided: bool
) -> None:
    async def scenario(broker: ScrubbingBroker, log: Log) -> None:
        others = OtherCopies(log, looks)
        scrub = broker.scrub(others)
        await scrub.round()
        assert (others.set_aside, scrub.counts.damaged) == (set_aside, own)
        assert scrub.undecided == [KEY] * is_undecided
        assert own or scrub.counts.read_bytes > log.sealed_end_offset * RECORD_BYTES
        others.looks = [(SAME, SAME)]
        await scrub.round()
        assert scrub.undecided == []

    on_a_broker(tmp_path, scenario)


@pytest.mark.parametrize("state", [led_by(2), led_by(BROKER), replace(LED, in_sync_replicas=(1, 3), partition_epoch=2)])
def test_nothing_is_set_aside_where_leader_epoch_or_witnesses_change_between_the_looks(
    tmp_path: pathlib.Path, state: PartitionState
) -> None:
    """Broker 2 is the witness: with it the leader's copy is that of most."""

    async def scenario(broker: ScrubbingBroker, log: Log) -> None:
        others = OtherCopies(
            log, [(SAME, OTHER), (SAME, OTHER), (SAME, SAME), (SAME, SAME)]
        )  # of the first range alone
        others.before_second_look = lambda: broker.image_of(state)
        scrub = broker.scrub(others)
        await scrub.round()
        assert others.looked[2] >= 2
        assert (others.set_aside, scrub.counts.damaged) == ({}, 0)

    on_a_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("leader_epoch", "digest", "in_sync_replicas", "error"),
    [
        (1, SAME, ALL, None),
        (0, SAME, ALL, FencedLeaderEpoch),
        (1, OTHER, ALL, OffsetNotAvailable),
        (1, SAME, (2, 3), OffsetNotAvailable),
    ],
)
def test_a_follower_sets_aside_the_copy_that_its_leader_has_compared_and_no_other(
    tmp_path: pathlib.Path,
    leader_epoch: int,
    digest: bytes | None,
    in_sync_replicas: tuple[int, ...],
    error: type[MinilogError] | None,
) -> None:
    async def scenario(broker: ScrubbingBroker, log: Log) -> None:
        scrub = broker.scrub(OtherCopies(log, [(SAME, SAME)]))
        own, end = digest_range(log, 0, log.sealed_end_offset, 1 << 30).digest, log.sealed_end_offset
        broker.image_of(led_by(2, in_sync_replicas))
        request = peer_pb2.SetCopyAsideRequest(
            broker_id=2,
            partition_id=KEY.to_wire(),
            leader_epoch=leader_epoch,
            start_offset=0,
            end_offset=end,
            digest=own if digest is SAME else digest,
        )
        answer = await scrub.answer_set_aside(request)
        assert type(error_from_wire(answer.error)) is (error or type(None))
        assert scrub.counts.damaged == (error is None)

    on_a_broker(tmp_path, scenario)
