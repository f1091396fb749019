"""The log against a plain model: append, flush, roll, truncate, retention, crashes anywhere, and reopening.

The model is a list of batches and how many of them are promised. After any crash the log is a prefix of what the model
had, never shorter than the promise, and sound.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minilog.record_batch.header import decode_header
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.crashable_files import CrashableFiles, PowerLoss
from tests.unit.storage.logs import batch, contents, open_log, run_of

runs = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 60)).map(lambda drawn: (drawn[0], bytes(drawn[1]))),
    min_size=1,
    max_size=4,
)
crash_points = st.none() | st.integers(0, 12)
SMALL_SEGMENTS = LogSettings(segment_bytes=300, index_interval_bytes=100)


class LogMachine(RuleBasedStateMachine):
    files: CrashableFiles
    log: Log

    @initialize(seed=st.integers(0, 1000))
    def open(self, seed: int) -> None:
        self.files = CrashableFiles(Random(seed))
        self.log = open_log(self.files, settings=SMALL_SEGMENTS)
        self.batches: list[bytes] = []
        self.start = 0  # the log's start
        self.promised = 0  # offsets below are durable
        self.epoch = 0

    def end(self) -> int:
        return decode_header(self.batches[-1]).next_offset if self.batches else self.start

    def cut_model(self, end_offset: int) -> None:
        self.batches = [one for one in self.batches if decode_header(one).next_offset <= end_offset]

    def reopen(self, *, unclean: bool) -> None:
        """Open what is left; take it as the model, once it was judged."""
        self.log = open_log(self.files, unclean=unclean, settings=SMALL_SEGMENTS)
        assert not self.log.recovery.damaged, self.log.recovery.reason
        found = contents(self.log)
        expected = [one for one in self.batches if decode_header(one).next_offset > self.log.log_start_offset]
        assert found == expected[: len(found)]
        assert self.log.log_end_offset >= self.promised
        assert self.log.durable_end_offset == self.log.log_end_offset
        self.start = self.log.log_start_offset
        self.batches = found
        self.promised = self.end()

    def attempt(self, crash_point: int | None, change: Callable[[], object]) -> bool:
        """Carry out `change`, or stop the machine in the middle of it and start again."""
        if crash_point is not None:
            self.files.crash_after(crash_point)
        try:
            change()
        except PowerLoss:
            self.files.crash()
            self.reopen(unclean=True)
            return False
        self.files._changes_left = None
        return True

    @rule(drawn=runs, new_epoch=st.booleans(), crash_point=crash_points)
    def append(self, drawn: list[tuple[int, bytes]], new_epoch: bool, crash_point: int | None) -> None:
        self.epoch += new_epoch
        offset, added = self.log.log_end_offset, []
        for records, payload in drawn:
            added.append(batch(offset, records=records, epoch=self.epoch, payload=payload))
            offset += records
        self.batches = self.batches + added  # before it is tried: any part of it may be found
        self.attempt(crash_point, lambda: self.log.append(run_of(added)))

    @rule(crash_point=crash_points)
    def flush(self, crash_point: int | None) -> None:
        if self.attempt(crash_point, self.log.flush):
            self.promised = self.end()

    @rule()
    def move_high_watermark(self) -> None:
        self.log.set_high_watermark(self.log.durable_end_offset)

    @rule(crash_point=crash_points)
    def write_checkpoint(self, crash_point: int | None) -> None:
        self.attempt(crash_point, self.log.write_checkpoint)

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def truncate(self, share: float, crash_point: int | None) -> None:
        end_offset = self.start + int((self.end() - self.start) * share)
        self.promised = min(self.promised, max(self.start, end_offset - 3))  # a batch holds up to three records
        if self.attempt(crash_point, lambda: self.log.truncate_to(end_offset)):
            self.cut_model(end_offset)
            self.promised = min(self.promised, self.end())

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def advance_log_start(self, share: float, crash_point: int | None) -> None:
        offset = self.start + int((self.log.high_watermark - self.start) * share)
        if self.attempt(crash_point, lambda: self.log.advance_log_start(offset)):
            self.start = max(self.start, offset)
            self.batches = [one for one in self.batches if decode_header(one).next_offset > self.start]

    @rule(gap=st.integers(0, 20))
    def start_anew_above_the_end(self, gap: int) -> None:
        self.start = self.promised = self.end() + gap
        self.batches = []
        self.log.truncate_fully_and_start_at(self.start)

    @rule()
    def crash(self) -> None:
        self.files.crash()
        self.reopen(unclean=True)

    @rule()
    def kill_the_process(self) -> None:
        self.files.stop_process()
        self.promised = self.end()
        self.reopen(unclean=True)

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close(clean=True)
        self.promised = self.end()
        self.files.crash()  # what a clean stop left is durable
        self.reopen(unclean=False)

    @rule(position=st.floats(0, 1), max_bytes=st.integers(1, 600), span=st.integers(0, 10))
    def read(self, position: float, max_bytes: int, span: int) -> None:
        offset = self.start + int((self.end() - self.start) * position)
        limit = min(self.end(), offset + span)
        run = self.log.read(offset, max_bytes, limit)
        found = [one for one in self.batches if decode_header(one).next_offset > offset]
        within = [one for one in found if decode_header(one).next_offset <= limit]
        assert b"".join(within).startswith(run)
        assert bool(run) == bool(within)
        assert len(run) <= max(max_bytes, len(within[0]) if within else 0)

    @invariant()
    def is_what_the_model_says(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end())
        assert log.log_start_offset <= log.high_watermark <= log.durable_end_offset <= log.log_end_offset
        assert contents(log) == self.batches
        for one in self.batches:
            header = decode_header(one)
            assert log.epochs.epoch_for_offset(header.last_offset) == header.partition_leader_epoch


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)
