"""The epoch cache and its file against a plain model: assign, truncate from both ends, clear, crash, reopen.

The model is the epoch of every record between the log's start and its end, and an epoch that began at the end without
records. Every question is answered from that list by looking at each record. The file is as the log writes it: durable
first, taken over then; after a crash it is the old one or the new one, and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.epoch_cache import Entries, EpochCache
from tests.rules import proves
from tests.world.disk import MemoryDisk

pytestmark = proves("DK.1")

PATH = "/leader-epoch"
crash_points = st.none() | st.integers(0, 5)


class EpochCacheMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000), start=st.integers(0, 3))
    def begin(self, seed: int, start: int) -> None:
        self.files = MemoryDisk(Random(seed))
        self.cache = EpochCache()
        self.start = start
        self.records: list[int] = []  # the epoch of each record from `start` on
        self.begun: int | None = None  # an epoch that starts at the end

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    @property
    def latest(self) -> int:
        """The newest epoch of all, -1 where there is none."""
        return self.begun if self.begun is not None else self.records[-1] if self.records else -1

    def expected(self) -> Entries:
        entries: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.records, self.start):
            if not entries or entries[-1][0] != epoch:
                entries.append((epoch, offset))
        if self.begun is not None and (not entries or entries[-1][0] != self.begun):
            entries.append((self.begun, self.end))
        return tuple(entries)

    def change(self, crash_point: int | None, change: Callable[[EpochCache], bool]) -> bool:
        """As the log does it: to a copy, to the disk, taken over. False: a crash took it back."""
        changed = self.cache.copy()
        if not change(changed):
            assert changed.entries == self.cache.entries, "changed, and said that it did not"
            return True
        if self.files.survives(lambda: write_durable_file(self.files, PATH, changed.encode()), crash_point):
            self.cache.replace(changed)
            return True
        found = self.read()
        assert found.entries in (self.cache.entries, changed.entries)
        took_effect = found.entries == changed.entries
        self.cache = found
        return took_effect

    def read(self) -> EpochCache:
        content = read_durable_file(self.files, PATH)
        return EpochCache() if content is None else EpochCache.decode(content)

    # what befalls a log

    @rule(raise_by=st.integers(0, 3), count=st.integers(1, 4), crash_point=crash_points)
    def append(self, raise_by: int, count: int, crash_point: int | None) -> None:
        epoch = max(0, self.latest + raise_by)
        if self.change(crash_point, lambda cache: cache.assign(epoch, self.end)):
            self.records += [epoch] * count
            self.begun = None

    @rule(raise_by=st.integers(0, 3), crash_point=crash_points)
    def begin_epoch(self, raise_by: int, crash_point: int | None) -> None:
        epoch = max(0, self.latest + raise_by)
        if self.change(crash_point, lambda cache: cache.assign(epoch, self.end)):
            self.begun = epoch if not self.records or self.records[-1] != epoch else None

    @precondition(lambda self: self.begun is not None and self.records)
    @rule(crash_point=crash_points)
    def append_in_the_epoch_before(self, crash_point: int | None) -> None:
        """A follower that had recorded an epoch, and is sent records of the one before: no record speaks for it."""
        epoch = self.records[-1]
        if self.change(crash_point, lambda cache: cache.assign(epoch, self.end)):
            self.begun = None
            self.records.append(epoch)

    @precondition(lambda self: self.latest > 0)
    @rule(lower_by=st.integers(1, 3))
    def begin_an_old_epoch(self, lower_by: int) -> None:
        """Refused, unless it replaces one without records and is still above all that have some."""
        epoch, below = self.latest - lower_by, self.records[-1] if self.records else -1
        if epoch < 0 or epoch < below:
            with pytest.raises(ValueError, match="cannot start"):
                self.cache.assign(epoch, self.end)

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def truncate_from_end(self, share: float, crash_point: int | None) -> None:
        end_offset = self.start + round(len(self.records) * share)
        if self.change(crash_point, lambda cache: cache.truncate_from_end(end_offset)):
            self.records = self.records[: end_offset - self.start]
            self.begun = None

    @rule(share=st.floats(0, 1), crash_point=crash_points)
    def truncate_from_start(self, share: float, crash_point: int | None) -> None:
        """An emptied log still knows the epoch it was in."""
        offset = self.start + round(len(self.records) * share)
        if self.change(crash_point, lambda cache: cache.truncate_from_start(offset)):
            gone = offset - self.start
            if gone == len(self.records) and self.begun is None and gone:
                self.begun = self.records[-1]
            self.records = self.records[gone:]
            self.start = offset

    @rule(gap=st.integers(0, 4), crash_point=crash_points)
    def start_anew(self, gap: int, crash_point: int | None) -> None:
        def clear(cache: EpochCache) -> bool:
            there = bool(cache.entries)
            cache.clear()
            return there

        if self.change(crash_point, clear):
            self.start, self.records, self.begun = self.end + gap, [], None

    @rule()
    def crash(self) -> None:
        """What was taken over was durable before."""
        self.files.lose_power()
        found = self.read()
        assert found.entries == self.cache.entries
        self.cache = found

    # what is asked

    @invariant()
    def answers_as_the_records_do(self) -> None:
        if not hasattr(self, "records"):
            return
        cache, expected = self.cache, self.expected()
        assert cache.entries == expected
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(cache.entries)), "V3"
        assert cache.latest_epoch == (self.latest if self.latest >= 0 else None)
        for offset, epoch in enumerate(self.records, self.start):
            assert cache.epoch_for_offset(offset) == epoch
        for epoch in range(-1, self.latest + 3):
            starts = [start for each, start in expected if each == epoch]
            assert cache.start_offset_of(epoch) == (starts[0] if starts else None)
            assert cache.end_offset_for(epoch, self.end) == self.end_of(epoch)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below, and where the first record (or the end) of a larger one is."""
        known = [each for each in (*self.records, self.begun) if each is not None and each <= epoch]
        larger = [offset for offset, each in enumerate(self.records, self.start) if each > epoch]
        return max(known, default=-1), larger[0] if larger else self.end


TestEpochCacheMachine = EpochCacheMachine.TestCase
TestEpochCacheMachine.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, derandomize=True, report_multiple_bugs=False
)
