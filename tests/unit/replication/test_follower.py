"""What a follower appends, drops and tells (docs/spec/replication.md § Sessions). One follower alone, on a real log."""

from __future__ import annotations

import itertools
import random

import pytest

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import PLACEMENT_BYTES, decode_header, placement
from minilog.v1 import common_pb2, data_pb2
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.follower.fetcher import ReplicaFetcher
from minilog_broker.replication.follower.partition import FollowerPartition, FollowerState
from minilog_broker.replication.partition_state import BrokerIncarnation
from minilog_broker.replication.replica_effects import (
    AppendToLog,
    Effect,
    PlacedBatches,
    StartLogAt,
    TruncateLog,
    WriteProducerSnapshot,
)
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.replication.cluster import KEY, batch, quick_settings
from tests.world.disk import MemoryDisk


def placed(offset: int, epoch: int, rows: int = 1) -> bytes:
    data = batch(rows)
    return placement(data, offset, epoch) + data[PLACEMENT_BYTES:]


class FollowerBench:
    """A follower in leader epoch 5, whose log has 3 records of epoch 2 and 2 of epoch 4; its disk is run by hand."""

    def __init__(self, *, entries: tuple[tuple[int, int], ...] = ((2, 3), (4, 2))) -> None:
        self.log = Log.open(MemoryDisk(), "/log", KEY, "topic", LogSettings(), unclean=False, create=True)
        for epoch, records in entries:
            self._write(placed(self.log.log_end_offset, epoch, records))
        self.log.flush()
        self.effects: list[Effect] = []
        self.positions = self.progress = 0
        self.resume_ms: list[float] = []
        self.changes_ms: list[float] = []
        self.log_starts: list[int] = []
        self.disk_answers = True
        self.has_readers = False
        self.numbers = itertools.count(1)
        self.replica = ReplicaLog(self.log)
        self.follower = FollowerPartition(
            KEY,
            1,
            5,
            9,
            self.replica,
            self,
            self.effects.append,
            quick_settings(),
            on_change=self.changes_ms.append,
            follow_log_start=self.log_starts.append,
            disk_answers=lambda: self.disk_answers,
            has_readers=lambda: self.has_readers,
        )
        self.follower.connect()

    def _write(self, data: bytes) -> None:
        from minilog.record_batch.header import decode_header

        self.log.append(PlacedBatches((decode_header(data),), (data,)))

    # the outbox
    def position_due(self, key: PartitionKey) -> None:
        self.positions += 1

    def progress_due(self, key: PartitionKey) -> None:
        self.progress += 1

    def resume_at(self, key: PartitionKey, due_ms: float) -> None:
        self.resume_ms.append(due_ms)

    def next_position_number(self) -> int:
        return next(self.numbers)

    def credit_source(self) -> tuple[int, int]:
        return 1, 1

    # the leader
    def run(self, **fields: object) -> tuple[data_pb2.PartitionRun, bytes]:
        batches = fields.pop("batches", placed(5, 5))
        assert isinstance(batches, bytes)
        known = {
            "leader_epoch": 5,
            "position_number": self.follower.position_number,
            "first_offset": 5,
            "previous_epoch": 4,
        }
        return data_pb2.PartitionRun(**(known | fields)), batches  # type: ignore[arg-type]

    def diverging(self, epoch: int, end_offset: int, *, log_start: int = 0) -> int:
        told = data_pb2.DivergingEpoch(epoch=epoch, end_offset=end_offset)
        run = self.run(batches=b"", diverging_epoch=told, log_start_offset=log_start, high_watermark=4)
        return self.follower.receive(*run, 0.0)

    # the disk
    def disk(self) -> None:
        todo = list(self.effects)
        self.effects.clear()
        for effect in todo:
            match effect:
                case AppendToLog(batches=batches):
                    self.log.append(batches)
                    self.replica.appended(batches.end_offset)
                    self.follower.settled(0.0)
                case TruncateLog(end_offset=end_offset):
                    self.log.truncate_to(end_offset)
                    self.replica.truncated()
                    self.follower.truncated()
                case StartLogAt(offset=offset):
                    self.log.truncate_fully_and_start_at(offset)
                    self.replica.truncated()
                    self.follower.truncated()

    def sync(self) -> None:
        self.log.flush()
        self.replica.flushed(self.log.durable_end_offset)
        self.follower.flushed()


@proves("SE.1")
def test_a_position_is_the_end_and_the_epoch_of_the_record_before_it() -> None:
    position = FollowerBench().follower.position()
    assert position is not None
    assert (position.fetch_offset, position.last_fetched_epoch, position.leader_epoch) == (5, 4, 5)


def test_a_position_behind_an_append_that_failed_names_the_record_that_is_there() -> None:
    """Of the dropped record's epoch no run would belong to it, and the follower would ask for ever."""
    bench = FollowerBench()
    bench.follower.receive(*bench.run(batches=placed(5, 5)), 0.0)
    bench.effects.clear()
    bench.replica.append_failed()
    bench.follower.found_no_space(0.0)
    bench.follower.resume()
    position = bench.follower.position()
    assert position is not None
    assert (position.fetch_offset, position.last_fetched_epoch) == (5, 4)


def test_progress_is_told_again_when_the_leader_accepts_the_position() -> None:
    """A leader whose epoch had not begun when both came has dropped the first; an idle follower would say no more."""
    bench = FollowerBench()
    told = bench.progress
    bench.follower.receive(*bench.run(batches=b"", high_watermark=4), 0.0)
    assert bench.progress == told + 1
    bench.follower.receive(*bench.run(batches=b"", high_watermark=5), 0.0)
    assert bench.progress == told + 1


@proves("SE.1")
def test_an_empty_log_names_no_epoch() -> None:
    position = FollowerBench(entries=()).follower.position()
    assert position is not None
    assert position.fetch_offset == 0
    assert not position.HasField("last_fetched_epoch")


def test_a_run_that_belongs_is_appended_as_it_came() -> None:
    bench = FollowerBench()
    data = placed(5, 5) + placed(6, 5, 2)
    assert bench.follower.receive(*bench.run(batches=data), 0.0) == 0, "its credit goes back when it is written"
    (appended,) = bench.effects
    assert isinstance(appended, AppendToLog)
    assert appended.batches.buffers == (data,)
    assert bench.replica.end == 8


@proves("SE.4")
@pytest.mark.parametrize(
    "wrong",
    [{"leader_epoch": 4}, {"leader_epoch": 6}, {"position_number": 0}],
    ids=["older leader epoch", "newer leader epoch", "older position"],
)
def test_a_run_of_another_epoch_or_position_is_dropped_for_the_newer_position_is_on_its_way(
    wrong: dict[str, int],
) -> None:
    bench = FollowerBench()
    positions = bench.positions
    run, batches = bench.run(**wrong)
    assert bench.follower.receive(run, batches, 0.0) == len(batches)
    assert not bench.effects
    assert bench.positions == positions


@proves("SE.2", "SE.4")
@pytest.mark.parametrize(
    "wrong",
    [
        {"previous_epoch": 3},
        {"first_offset": 6, "batches": placed(6, 5)},
        {"first_offset": 4, "batches": placed(4, 5, 3)},
    ],
    ids=["another epoch before it", "a gap", "an overlap is never merged"],
)
def test_a_run_that_does_not_fit_is_dropped_its_credit_returned_and_a_new_position_sent(
    wrong: dict[str, object],
) -> None:
    bench = FollowerBench()
    positions, number = bench.positions, bench.follower.position_number
    run, batches = bench.run(**wrong)
    assert bench.follower.receive(run, batches, 0.0) == len(batches)
    assert not bench.effects
    assert bench.positions == positions + 1
    assert bench.follower.position_number == number + 1


@proves("SE.3")
def test_progress_is_the_durable_end_and_the_epoch_below_it() -> None:
    bench = FollowerBench()
    bench.follower.receive(*bench.run(), 0.0)
    bench.disk()
    progress = bench.follower.progress()
    assert progress is not None
    assert (progress.durable_end_offset, progress.last_epoch) == (5, 4)
    bench.sync()
    progress = bench.follower.progress()
    assert progress is not None
    assert (progress.durable_end_offset, progress.last_epoch) == (6, 5)


@proves("SE.3")
def test_progress_never_moves_the_position() -> None:
    bench = FollowerBench()
    number = bench.follower.position_number
    bench.follower.receive(*bench.run(), 0.0)
    bench.disk()
    bench.sync()
    assert bench.follower.position_number == number


@proves("SE.8")
def test_a_follower_that_diverged_tells_no_progress() -> None:
    bench = FollowerBench()
    bench.diverging(4, 4)
    assert bench.follower.progress() is None
    assert bench.follower.position() is None


@proves("SE.2")
def test_divergence_truncates_and_asks_again() -> None:
    bench = FollowerBench()
    bench.diverging(4, 4)
    assert bench.effects == [TruncateLog(KEY, 4)]
    bench.log.truncate_to(4)  # the batch of two records begins at 3
    bench.disk()
    position = bench.follower.position()
    assert position is not None
    assert (position.fetch_offset, position.last_fetched_epoch) == (3, 2)


@proves("DK.16")
def test_committed_records_that_the_leader_lacks_are_counted() -> None:
    """Unclean, or the leader's disk came back older: the shell says so."""
    bench = FollowerBench()
    before = bench.follower.log.end
    assert bench.follower.log.raise_high_watermark(before)
    bench.diverging(4, 4)
    assert bench.effects == [TruncateLog(KEY, 4, before - 4)]


def test_lacking_the_epoch_it_truncates_to_the_end_of_the_one_below() -> None:
    bench = FollowerBench()
    bench.diverging(3, 4)
    assert bench.effects == [TruncateLog(KEY, 3)]


def test_nothing_in_common_starts_anew_at_the_leaders_log_start() -> None:
    bench = FollowerBench()
    bench.diverging(-1, 9, log_start=9)
    assert bench.effects == [StartLogAt(KEY, 9)]
    bench.disk()
    assert bench.replica.end == bench.replica.high_watermark == 9


@proves("SE.22")
def test_below_the_leaders_log_start_it_starts_anew_there() -> None:
    bench = FollowerBench()
    error = common_pb2.Error(code=common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    bench.follower.receive(*bench.run(batches=b"", error=error, log_start_offset=20), 0.0)
    assert bench.effects == [StartLogAt(KEY, 20)]


def test_producers_below_the_run_are_stored_before_it() -> None:
    bench = FollowerBench(entries=())
    known = ProducerState()
    known.apply(decode_header(placed_by(7)))
    bench.follower.receive(*bench.run(first_offset=0, batches=placed(0, 5), producers_below=known.snapshot()), 0.0)
    assert bench.replica.producers.entry(7) == known.entry(7)
    assert [type(each) for each in bench.effects] == [WriteProducerSnapshot, AppendToLog]


def test_known_producers_below_the_run_are_not_stored_again() -> None:
    """Thousands of partitions that retention has emptied are told of theirs whenever a session opens."""
    bench = FollowerBench(entries=())
    known = ProducerState()
    known.apply(decode_header(placed_by(7)))
    for _ in range(2):
        bench.follower.receive(*bench.run(first_offset=0, batches=b"", producers_below=known.snapshot()), 0.0)
    assert [type(each) for each in bench.effects] == [WriteProducerSnapshot]


def test_damaged_producers_are_asked_for_again() -> None:
    bench = FollowerBench(entries=())
    bench.follower.receive(*bench.run(first_offset=0, batches=placed(0, 5), producers_below=b"rot"), 0.0)
    assert (bench.follower.state, bench.effects, len(bench.resume_ms)) == (FollowerState.PAUSED, [], 1)
    bench.follower.resume()
    assert bench.follower.state is FollowerState.FETCHING


def placed_by(producer_id: int) -> bytes:
    data = batch(producer=(producer_id, 0, 0))
    return placement(data, 0, 2) + data[PLACEMENT_BYTES:]


def test_truncation_waits_for_appends_under_way() -> None:
    bench = FollowerBench()
    bench.follower.receive(*bench.run(), 0.0)
    bench.diverging(4, 4)
    assert bench.follower.state is FollowerState.DIVERGED
    bench.disk()
    assert bench.effects == [TruncateLog(KEY, 4)]


@proves("HW.5")
def test_a_follower_truncates_first_and_adopts_the_high_watermark_second() -> None:
    bench = FollowerBench()
    bench.diverging(4, 4)  # the answer says that the high watermark is 4
    assert bench.replica.high_watermark == 0
    bench.disk()
    bench.follower.receive(*bench.run(batches=b"", high_watermark=4), 0.0)
    assert bench.replica.high_watermark == 3, "clamped to what is durable after the truncation"


def test_dropped_runs_say_nothing_about_the_high_watermark() -> None:
    bench = FollowerBench()
    bench.follower.receive(*bench.run(previous_epoch=3, high_watermark=5), 0.0)
    assert bench.replica.high_watermark == 0


@proves("HW.5")
def test_the_high_watermark_follows_the_durable_end() -> None:
    bench = FollowerBench()
    bench.follower.receive(*bench.run(high_watermark=6), 0.0)
    assert bench.replica.high_watermark == 5
    bench.disk()
    assert bench.replica.high_watermark == 5
    bench.sync()
    assert bench.replica.high_watermark == 6


def corrupt() -> bytes:
    data = bytearray(placed(5, 5))
    data[-1] ^= 1
    return bytes(data)


@proves("SE.20")
def test_a_corrupt_batch_is_dropped_and_asked_for_again_after_a_pause() -> None:
    bench = FollowerBench()
    assert bench.follower.receive(*bench.run(batches=corrupt()), 0.0) == len(corrupt())
    assert not bench.effects
    assert bench.follower.state is FollowerState.PAUSED
    assert bench.resume_ms == [200.0]
    bench.follower.resume()
    assert bench.follower.position() is not None


@proves("SE.20")
def test_good_batches_before_a_corrupt_one_are_kept() -> None:
    bench = FollowerBench()
    data = bytearray(placed(5, 5) + placed(6, 5))
    data[-1] ^= 1
    bench.follower.receive(*bench.run(batches=bytes(data)), 0.0)
    assert bench.replica.end == 6


@proves("SE.20")
def test_after_three_at_one_offset_it_says_so() -> None:
    bench = FollowerBench()
    for times in range(3):
        progress = bench.follower.progress()
        assert progress is not None
        assert not progress.HasField("corrupt_offset"), times
        bench.follower.receive(*bench.run(batches=corrupt()), 0.0)
        bench.follower.resume()
    progress = bench.follower.progress()
    assert progress is not None
    assert progress.corrupt_offset == 5
    bench.follower.receive(*bench.run(), 0.0)
    progress = bench.follower.progress()
    assert progress is not None
    assert not progress.HasField("corrupt_offset"), "a good one came"


def test_epochs_of_batches_never_decrease_nor_exceed_the_leaders() -> None:
    for epoch in (3, 6):
        bench = FollowerBench()
        bench.follower.receive(*bench.run(batches=placed(5, epoch)), 0.0)
        assert not bench.effects


def test_a_retriable_error_pauses_and_asks_again() -> None:
    bench = FollowerBench()
    bench.follower.receive(
        *bench.run(batches=b"", error=common_pb2.Error(code=common_pb2.ERROR_CODE_STORAGE_ERROR)), 10.0
    )
    assert bench.follower.state is FollowerState.PAUSED
    assert bench.resume_ms == [60.0]


@proves("SE.2")
def test_a_new_session_is_a_new_position() -> None:
    bench = FollowerBench()
    number = bench.follower.position_number
    bench.follower.disconnect()
    assert bench.follower.position() is None
    bench.follower.connect()
    assert bench.follower.position_number > number


def test_bytes_of_a_former_fetcher_are_no_credit_of_a_new_one() -> None:
    """A voter has a fetcher for each epoch. Seed 1400115: leave for 24,880 bytes under a window of 20,000."""
    context = ReplicationContext(1, quick_settings(), ClusterLevel(SUPPORTED_LEVELS), broker_epoch=1)
    context.incarnations[2] = BrokerIncarnation(2, 7, "b2", 9092, fenced=False, stopping=False)
    former, new = (ReplicaFetcher(2, context, random.Random(0)) for _ in range(2))
    for fetcher in (former, new):
        fetcher.follow(FollowerBench().follower, 0.0)
        fetcher.opened(0.0)
    window_bytes = context.settings.replica_fetch_max_bytes
    _, number = former.credit_source()
    new.give_back(number, window_bytes)
    request = new.next_request(0.0)
    assert request is not None
    assert request.credit_bytes == window_bytes
