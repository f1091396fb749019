"""Producer state on a log against a plain model: append, flush, snapshot, truncate, log start, crash, reopen.

As a replica does it: the state takes in what was appended, is stored by snapshots from time to time, and is rebuilt
from the newest snapshot and the headers behind it when the log was cut or opened. The model remembers every batch of
the log; what a producer may expect of the state follows from it:

    it has batches in the log     its newest epoch; the next sequence accepted; each of the last five a duplicate, with
                                  its offsets
    they are below the start      the same; unknown (and then anything is accepted) where the log began anew, or a
                                  snapshot was damaged
    it never wrote here           unknown

Transactional ones end: the last stable offset, and what was aborted of any range, are what a scan of the model says;
who has ended is fenced as long as the log has the marker.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minilog.errors import InvalidProducerEpoch, ProducerFenced
from minilog.record_batch.header import BatchHeader, decode_header
from minilog_broker.storage.log import Log
from minilog_broker.storage.markers import read_markers
from minilog_broker.storage.producer_snapshots import snapshot_offsets
from minilog_broker.storage.producer_state import (
    KEPT_BATCHES,
    SEQUENCES,
    Accept,
    Duplicate,
    ProducerState,
    recover_producer_state,
)
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, batch, header, open_log, run_of
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.1", "TX.13", "DEL.8")

PRODUCERS = (7, 8, 9)
TRANSACTIONAL = tuple(range(100, 112))
NEAR_THE_WRAP = SEQUENCES - 4
SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100)
crash_points = st.none() | st.integers(0, 10)


def after(sequence: int, records: int) -> int:
    return (sequence + records) % SEQUENCES


class ProducerStateMachine(RuleBasedStateMachine):
    log: Log
    state: ProducerState

    @initialize(seed=st.integers(0, 1000), first=st.sampled_from((0, NEAR_THE_WRAP)))
    def open(self, seed: int, first: int) -> None:
        self.files = MemoryDisk(Random(seed))
        self.log = open_log(self.files, settings=SETTINGS)
        self.state = ProducerState()
        self.headers: list[BatchHeader] = []  # all batches, those below the log's start too
        self.markers: dict[int, dict[int, bool]] = {}  # of the control batches, by offset: (producer, committed)
        self.promised = 0
        self.damaged_snapshot = False
        self.first = first  # an unknown producer may begin anywhere

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def written(self, producer_id: int) -> list[BatchHeader]:
        """The batches of a producer's newest epoch, oldest first."""
        own = [each for each in self.headers if each.producer_id == producer_id]
        newest = max((each.producer_epoch for each in own), default=-1)
        return [each for each in own if each.producer_epoch == newest]

    def recover(self) -> None:
        self.log = open_log(self.files, unclean=True, settings=SETTINGS)
        assert not self.log.recovery.damaged, self.log.recovery.reason
        assert self.end >= self.promised
        self.headers = [each for each in self.headers if each.next_offset <= self.end]
        self.promised = self.end
        self.rebuild()

    def rebuild(self) -> None:
        self.state = recover_producer_state(self.log)
        self.markers = {offset: ends for offset, ends in self.markers.items() if offset < self.end}
        self.set_high_watermark(self.log.high_watermark)

    def set_high_watermark(self, offset: int) -> None:
        self.log.set_high_watermark(offset, self.state.transactions.last_stable_offset(offset))

    def ended(self) -> dict[int, tuple[int, bool]]:
        """(offset of the marker, committed) by producer."""
        ends: dict[int, tuple[int, bool]] = {}
        for offset, markers in sorted(self.markers.items()):
            for producer_id, committed in markers.items():
                ends.setdefault(producer_id, (offset, committed))
        return ends

    def attempt(self, crash_point: int | None, change: Callable[[], object]) -> bool:
        survived = self.files.survives(change, crash_point)
        if not survived:
            self.recover()
        return survived

    # what befalls a replica

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        records=st.integers(1, 3),
        new_epoch=st.booleans(),
        crash_point=crash_points,
    )
    def append(self, producer_id: int, records: int, new_epoch: bool, crash_point: int | None) -> None:
        """The next batch of a producer, as the leader accepted it."""
        own = self.written(producer_id)
        epoch = (own[-1].producer_epoch if own else 0) + (new_epoch and bool(own))
        follows = own and not new_epoch
        sequence = after(own[-1].base_sequence, own[-1].record_count) if follows else 0 if own else self.first
        one = batch(self.end, records=records, producer=(producer_id, epoch, sequence), payload=bytes(20))
        assert isinstance(self.state.check(decode_header(one)), Accept)
        self.headers = [*self.headers, decode_header(one)]
        if self.attempt(crash_point, lambda: self.log.append(run_of([one]))):
            self.state.apply(decode_header(one))

    @rule(control=st.booleans())
    def append_what_is_nobodys(self, control: bool) -> None:
        one = batch(self.end, producer=(7, 9, 1) if control else (-1, -1, -1), control=control)
        self.log.append(run_of([one]))
        self.state.apply(decode_header(one))

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), records=st.integers(1, 3), crash_point=crash_points)
    def append_in_a_transaction(self, producer_id: int, records: int, crash_point: int | None) -> None:
        if producer_id in self.ended():
            return
        sequence = sum(each.record_count for each in self.written(producer_id))
        one = batch(self.end, records=records, producer=(producer_id, 0, sequence), transactional=True)
        assert isinstance(self.state.check(decode_header(one)), Accept)
        self.headers = [*self.headers, decode_header(one)]
        if self.attempt(crash_point, lambda: self.log.append(run_of([one]))):
            self.state.apply(decode_header(one))

    @rule(
        markers=st.dictionaries(st.sampled_from(TRANSACTIONAL), st.booleans(), min_size=1, max_size=4),
        crash_point=crash_points,
    )
    def write_markers(self, markers: dict[int, bool], crash_point: int | None) -> None:
        """Of some that are open, or wrote nothing, or have ended before."""
        one = batch(self.end, markers=list(markers.items()))
        header_ = decode_header(one)
        self.headers, self.markers = [*self.headers, header_], {**self.markers, self.end: markers}
        if self.attempt(crash_point, lambda: self.log.append(run_of([one]))):
            self.state.apply(header_, read_markers(one, header_))

    @rule(crash_point=crash_points)
    def flush(self, crash_point: int | None) -> None:
        if self.attempt(crash_point, self.log.flush):
            self.promised = self.end
            self.set_high_watermark(self.end)

    @rule(crash_point=crash_points)
    def snapshot(self, crash_point: int | None) -> None:
        """It may speak of records that are not synced: a crash that takes them takes it too."""
        self.attempt(crash_point, lambda: self.log.write_producer_snapshot(self.end, self.state.snapshot()))

    @rule(back=st.integers(0, 12), crash_point=crash_points)
    def truncate(self, back: int, crash_point: int | None) -> None:
        end_offset = max(self.log.log_start_offset, self.end - back)
        self.promised = min(self.promised, max(self.log.log_start_offset, end_offset - 3))
        if self.attempt(crash_point, lambda: self.log.truncate_to(end_offset)):
            self.headers = [each for each in self.headers if each.next_offset <= self.end]
            self.promised = min(self.promised, self.end)
            self.rebuild()

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def advance_log_start(self, share: float, crash_point: int | None) -> None:
        start = self.log.log_start_offset
        offset = start + round((self.log.high_watermark - start) * share)
        if self.attempt(crash_point, lambda: self.log.delete_records(offset, self.end, self.state.snapshot())):
            self.state.transactions.log_starts_at(self.log.log_start_offset)

    @rule(gap=st.integers(0, 5))
    def start_anew(self, gap: int) -> None:
        self.log.truncate_fully_and_start_at(self.end + gap)
        self.headers, self.markers, self.promised = [], {}, self.end
        self.rebuild()
        assert not self.state

    @rule(stop_first=st.booleans())
    def crash(self, stop_first: bool) -> None:
        if stop_first:
            self.log.close(clean=True)
            self.promised = self.end
        self.files.lose_power()
        self.recover()

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 4))
    def a_snapshot_of_what_a_crash_takes(self, producer_id: int, count: int) -> None:
        """Others take the offsets that it spoke of: it must be gone by then."""
        self.append(producer_id, 1, False, None)
        self.snapshot(None)
        self.crash(False)
        for _ in range(count):
            self.append_what_is_nobodys(False)
        self.flush(None)
        self.crash(False)

    @rule(position=st.floats(0, 1))
    def the_newest_snapshot_is_damaged(self, position: float) -> None:
        """One older, or the headers, say the same of all that is in the log."""
        offsets = snapshot_offsets(self.files, DIRECTORY)
        if offsets:
            path = f"{DIRECTORY}/{offsets[-1]:020d}.snapshot"
            at = round((self.files.size(path) - 1) * position)
            self.files.damage(path, at, bytes([self.files.content(path)[at] ^ 16]))
            self.damaged_snapshot = True
            self.rebuild()

    # what a producer may expect

    @invariant()
    def answers_as_the_log_does(self) -> None:
        if not hasattr(self, "headers"):
            return
        for producer_id in PRODUCERS:
            self.answers_one(producer_id)

    def answers_one(self, producer_id: int) -> None:
        own, entry = self.written(producer_id), self.state.entry(producer_id)
        kept = [each for each in own if each.next_offset > self.log.log_start_offset][-KEPT_BATCHES:]
        if entry is None:
            assert not kept, "a producer with batches in the log is unknown"
            assert not own or self.damaged_snapshot, "a producer whose batches were deleted is unknown"
            return
        assert own, "a producer that never wrote here is known"
        last = own[-1]
        assert entry.producer_epoch == last.producer_epoch
        some_deleted = any(each.next_offset <= self.log.log_start_offset for each in own)  # a later snapshot may tell
        assert some_deleted or entry.max_timestamp_us == max(each.max_timestamp_us for each in own)
        for each in kept:
            again = header(
                0, records=each.record_count, producer=(producer_id, last.producer_epoch, each.base_sequence)
            )
            assert self.state.check(again) == Duplicate(each.base_offset, each.last_offset)
        sequence = after(last.base_sequence, last.record_count)
        following = header(0, producer=(producer_id, last.producer_epoch, sequence))
        assert isinstance(self.state.check(following), Accept)
        gap = header(0, producer=(producer_id, last.producer_epoch, after(sequence, 1)))
        assert not isinstance(self.state.check(gap), Accept | Duplicate)
        if last.producer_epoch:
            fenced = header(0, producer=(producer_id, last.producer_epoch - 1, sequence))
            assert isinstance(self.state.check(fenced), InvalidProducerEpoch)

    @invariant()
    def transactions_are_what_a_scan_says(self) -> None:
        if not hasattr(self, "headers"):
            return
        high_watermark, ended, transactions = self.log.high_watermark, self.ended(), self.state.transactions
        written = [each for each in self.headers if each.is_transactional]
        never = (self.end, False)
        unstable = [each for each in written if ended.get(each.producer_id, never)[0] >= high_watermark]
        stable = min([high_watermark, *(each.base_offset for each in unstable)])
        assert transactions.last_stable_offset(high_watermark) == stable
        assert self.log.log_start_offset <= self.log.last_stable_offset == stable
        aborted = {producer_id for producer_id, (_, committed) in ended.items() if not committed}
        for low in range(self.log.log_start_offset, stable, 3):
            there = {each.producer_id for each in written if low < each.next_offset and each.base_offset < low + 3}
            assert there & aborted <= set(transactions.aborted_within(low, low + 3)) <= aborted
        for producer_id, (offset, committed) in ended.items():
            end = transactions.end_of(producer_id)
            if end is None:
                assert offset < self.log.log_start_offset, "an end that the log tells is forgotten"
            elif offset >= self.log.log_start_offset:
                assert (end.marker_end_offset, end.committed) == (offset + 1, committed)
                again = header(0, producer=(producer_id, 0, 0), transactional=True)
                assert isinstance(self.state.check(again), ProducerFenced)

    @invariant()
    def a_snapshot_is_the_whole_state(self) -> None:
        if hasattr(self, "state"):
            copy = ProducerState()
            copy.restore(self.state.snapshot())
            assert copy == self.state


TestProducerStateMachine = ProducerStateMachine.TestCase
TestProducerStateMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, report_multiple_bugs=False
)
