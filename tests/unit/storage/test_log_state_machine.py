"""The log against a plain model: append, flush, roll, truncate, start anew, retention, compaction, failing disks,
crashes anywhere (in recovery too), and reopening, clean and unclean, under both flush policies.

The model is a list of batches, how many of them are promised, and the epoch that was begun last. After any crash the
log is a prefix of what the model had, never shorter than the promise, and sound; after any refused write it is what it
was.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minilog.record_batch.header import BatchHeader, decode_header, iterate_headers
from minilog_broker.storage.log import Log
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.settings import LogSettings
from tests.rules import proves
from tests.unit.storage.logs import batch, contents, open_log, run_of, write_anew
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.1", "DK.6", "DK.7")

runs = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 60)).map(lambda drawn: (drawn[0], bytes(drawn[1]))),
    min_size=1,
    max_size=4,
)
crash_points = st.none() | st.integers(0, 12)


def small(flush_on_append: bool) -> LogSettings:
    """A segment holds a few batches; a batch is stamped its base offset in ms, so retention keeps 40 offsets."""
    return LogSettings(
        segment_bytes=300,
        segment_ms=30,
        index_interval_bytes=100,
        flush_on_append=flush_on_append,
        retention_ms=40,
        retention_bytes=2000,
    )


class LogMachine(RuleBasedStateMachine):
    files: MemoryDisk
    log: Log

    @initialize(seed=st.integers(0, 1000), flush_on_append=st.booleans())
    def open(self, seed: int, flush_on_append: bool) -> None:
        self.files = MemoryDisk(Random(seed))
        self.settings = small(flush_on_append)
        self.log = open_log(self.files, settings=self.settings)
        self.batches: list[bytes] = []
        self.start = 0  # the log's start
        self.promised = 0  # offsets below are durable
        self.epoch = 0
        self.damage_said = False
        self.begun: tuple[int, int] | None = None  # (epoch, offset) that was recorded and may have no records yet

    def end(self) -> int:
        return decode_header(self.batches[-1]).next_offset if self.batches else self.start

    def cut_model(self, end_offset: int) -> None:
        self.batches = [one for one in self.batches if decode_header(one).next_offset <= end_offset]
        self.begun = None

    def below_start_go(self) -> None:
        self.batches = [one for one in self.batches if decode_header(one).next_offset > self.start]

    def reopen(self, *, unclean: bool) -> None:
        """Open what is left; take it as the model, once it was judged."""
        self.log = open_log(self.files, unclean=unclean, settings=self.settings)
        self.judge_damage()
        found = contents(self.log)
        expected = [one for one in self.batches if decode_header(one).next_offset > self.log.log_start_offset]
        assert found == expected[: len(found)]
        assert self.log.log_end_offset >= self.promised
        assert self.log.durable_end_offset == self.log.log_end_offset
        self.start = self.log.log_start_offset
        self.batches = found
        self.promised = self.end()
        if self.begun is not None and self.begun[1] >= self.promised:
            self.begun = None  # an epoch without records is forgotten, as in Kafka: nobody can ask about it

    def judge_damage(self, *, below_start: bool = False) -> None:
        """Damage is said where a page cache lost what was below the high watermark, and where a log was cut short in
        the middle of starting anew below its start (nothing of it is worth having); it is said until the first write.
        """
        if self.log.recovery.damaged and not self.damage_said:
            assert below_start or not self.settings.flush_on_append, self.log.recovery.reason
        self.damage_said = self.log.recovery.damaged

    def attempt(self, crash_point: int | None, change: Callable[[], object]) -> bool:
        """Carry out `change`, or stop the machine in the middle of it and start again."""
        survived = self.files.survives(change, crash_point)
        if not survived:
            self.reopen(unclean=True)
        return survived

    @rule(drawn=runs, new_epoch=st.booleans(), crash_point=crash_points)
    def append(self, drawn: list[tuple[int, bytes]], new_epoch: bool, crash_point: int | None) -> None:
        self.epoch += new_epoch
        if new_epoch and self.begun is not None and self.begun[1] == self.end():
            self.begun = None  # replaced by the next one at the same offset (V3)
        offset, added = self.log.log_end_offset, []
        for records, payload in drawn:
            added.append(batch(offset, records=records, epoch=self.epoch, payload=payload))
            offset += records
        self.batches = self.batches + added  # before it is tried: any part of it may be found
        self.attempt(crash_point, lambda: self.log.append(run_of(added)))

    @rule(crash_point=crash_points)
    def begin_epoch(self, crash_point: int | None) -> None:
        self.epoch += 1
        begun = (self.epoch, self.end())
        self.begun = None  # until it is recorded, an earlier one without records may be replaced or not
        if self.attempt(crash_point, lambda: self.log.assign_epoch(*begun)):
            self.begun = begun

    @rule(operation=st.sampled_from(("write", "fdatasync", "open", "fsync_dir", "rename")), full=st.booleans())
    def append_and_flush_on_a_failing_disk(self, operation: str, full: bool) -> None:
        """A full disk takes a write back; any other error, or one where nothing can be taken back, ends the log."""
        before, added = self.batches, [batch(self.end(), records=2, epoch=self.epoch, payload=bytes(80))]
        self.files.fail(operation, errno.ENOSPC if full else errno.EIO)
        try:
            self.log.append(run_of(added))
            self.batches = before + added
            self.log.flush()
        except OSError:
            if self.log.failed is None:
                assert full or operation in ("open", "rename"), "an I/O error passed for a full disk"
                assert self.log.log_end_offset == self.end()
        else:
            self.promised = max(self.promised, self.log.durable_end_offset if self.settings.flush_on_append else 0)
        self.files.calm()
        if self.log.failed is not None:
            self.batches = before + added
            self.files.lose_power()
            self.reopen(unclean=True)

    @rule(crash_point=crash_points)
    def flush(self, crash_point: int | None) -> None:
        if self.attempt(crash_point, self.log.flush) and self.settings.flush_on_append:
            self.promised = self.end()

    @rule(crash_point=crash_points)
    def sync(self, crash_point: int | None) -> None:
        if self.attempt(crash_point, self.log.sync):
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

    @rule(share=st.floats(0, 1), path=st.sampled_from(("checkpoint", "leader-epoch", "manifest")))
    def truncate_on_a_full_disk(self, share: float, path: str) -> None:
        """Cut, or as it was; never failed."""
        end_offset = self.start + int((self.end() - self.start) * share)
        self.files.fail("write", errno.ENOSPC, path)
        try:
            self.log.truncate_to(end_offset)
        except OSError:
            assert self.log.log_end_offset == self.end()
            assert contents(self.log) == self.batches
        else:
            self.cut_model(end_offset)
            self.promised = min(self.promised, self.end())
        assert self.log.failed is None
        self.files.calm()

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def advance_log_start(self, share: float, crash_point: int | None) -> None:
        offset = self.start + int((self.log.high_watermark - self.start) * share)
        if self.attempt(crash_point, lambda: self.log.advance_log_start(offset)):
            self.start = max(self.start, offset)
            self.below_start_go()

    @rule(age=st.integers(0, 60), crash_point=crash_points)
    def retention(self, age: int, crash_point: int | None) -> None:
        """What goes is below the high watermark, and older or more than the settings allow."""
        before, high_watermark = self.batches, self.log.high_watermark
        now_us = (self.end() + age) * 1000
        if not self.attempt(crash_point, lambda: self.log.apply_retention(now_us)):
            return
        self.start = self.log.log_start_offset
        self.below_start_go()
        gone = [decode_header(one) for one in before[: len(before) - len(self.batches)]]
        too_much = sum(map(len, before)) > self.settings.retention_bytes
        for header in gone:
            assert header.next_offset <= high_watermark
            assert too_much or header.max_timestamp_us < now_us - self.settings.retention_ms * 1000

    @rule(share=st.floats(0, 1), count=st.integers(1, 3), crash_point=crash_points)
    def compact(self, share: float, count: int, crash_point: int | None) -> None:
        """Afterwards the log has the former batches of some segments, or smaller ones in their place; never both."""
        sealed = self.log.sealed_segments
        former = sealed[int((len(sealed) - 1) * share) :][:count]
        if not former:
            return
        start, end = former[0].base_offset, former[-1].end.end_offset
        written = [decode_header(one) for segment in former for one in whole_batches(segment)]
        anew = compacted(written)
        before = self.batches
        after = [one for one in before if decode_header(one).base_offset < start]
        after += [one for one in anew if decode_header(one).next_offset > self.start]
        after += [one for one in before if decode_header(one).base_offset >= end]

        def replace_segments() -> None:
            self.log.replace_segments(former, write_anew(self.files, self.log, former, anew))

        if self.files.survives(replace_segments, crash_point):
            self.batches = after
        else:
            found = contents(open_log(self.files, unclean=True, settings=self.settings))
            self.batches = before if found == before[: len(found)] else after
            self.reopen(unclean=True)

    @rule(gap=st.integers(-20, 20), crash_point=crash_points)
    def start_anew(self, gap: int, crash_point: int | None) -> None:
        """Below the end too: a follower that has nothing in common with its leader."""
        offset = max(0, self.end() + gap)
        self.promised, self.begun = 0, None  # a crash in the middle may have taken any of what is to go
        if self.files.survives(lambda: self.log.truncate_fully_and_start_at(offset), crash_point):
            self.start = self.promised = offset
            self.batches = []
        else:
            self.reopen_after_start_anew(offset)

    def reopen_after_start_anew(self, offset: int) -> None:
        """Either as it was, or what is left of it above the new start, or empty there."""
        self.log = open_log(self.files, unclean=True, settings=self.settings)
        self.judge_damage(below_start=offset < self.start)
        assert self.log.log_start_offset in (self.start, offset)
        self.start, found = self.log.log_start_offset, contents(self.log)
        self.below_start_go()
        assert found == self.batches[: len(found)]
        self.batches = found
        self.promised = self.end()

    @rule(back=st.integers(1, 10), crash_point=crash_points)
    @precondition(lambda self: self.start > 0)
    def truncate_below_the_start(self, back: int, crash_point: int | None) -> None:
        """A forked leader's end below our start: nothing is left, and the log starts there."""
        offset = max(0, self.start - back)
        self.promised, self.begun = 0, None
        if self.files.survives(lambda: self.log.truncate_to(offset), crash_point):
            if self.end() > offset:
                self.start, self.batches = offset, []
            self.promised = self.start
        else:
            self.reopen_after_start_anew(offset)

    @rule()
    def crash(self) -> None:
        self.files.lose_power()
        self.reopen(unclean=True)

    @rule(crash_points=st.lists(st.integers(0, 10), min_size=1, max_size=3))
    def crash_again_while_recovering(self, crash_points: list[int]) -> None:
        self.files.lose_power()
        for changes in crash_points:
            self.files.survives(lambda: open_log(self.files, unclean=True, settings=self.settings), changes)
        self.reopen(unclean=True)

    @rule()
    def kill_the_process(self) -> None:
        self.files.end_process()
        self.promised = self.end()
        self.reopen(unclean=True)

    @rule(crash_point=crash_points)
    def stop_cleanly(self, crash_point: int | None) -> None:
        if self.attempt(crash_point, lambda: self.log.close(clean=True)):
            self.promised = self.end()
            self.files.lose_power()  # what a clean stop left is durable
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
        entries = log.epochs.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries)), "V3"
        if self.begun is not None and self.begun[1] >= self.start:
            assert log.epochs.start_offset_of(self.begun[0]) == self.begun[1], "a recorded start of an epoch is lost"


def whole_batches(segment: Segment) -> list[bytes]:
    """All batches of a segment, also below the log's start."""
    run = segment.read(segment.base_offset, 1 << 20, segment.end.end_offset)
    return [run[position : position + header.length] for position, header in iterate_headers(run)]


def compacted(headers: list[BatchHeader]) -> list[bytes]:
    """Batches at the same offsets, of the same epochs, without payloads: neighbours as one of up to three records."""
    joined: list[list[BatchHeader]] = []
    for header in headers:
        group = joined[-1] if joined else []
        is_one = bool(group) and group[-1].partition_leader_epoch == header.partition_leader_epoch
        if is_one and header.next_offset - group[0].base_offset <= 3:
            group.append(header)
        else:
            joined.append([header])
    return [
        batch(
            group[0].base_offset,
            records=group[-1].next_offset - group[0].base_offset,
            epoch=group[0].partition_leader_epoch,
            timestamp_us=max(header.max_timestamp_us for header in group),
        )
        for group in joined
    ]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, report_multiple_bugs=False
)
