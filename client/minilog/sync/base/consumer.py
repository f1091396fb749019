"""A consumer of threads: its polls take runs on the background loop, and decode them on the thread of the program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from minilog.aio.consumer_shell import ConsumerShell, is_an_answer
from minilog.config import parse_consumer_config
from minilog.consumer.decode import DecodedRuns, decode_all
from minilog.consumer.partition import FetchedRun
from minilog.consumer.row_selection import RowSelection
from minilog.groups.callbacks import GroupStep
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.sync.base import Blocking, called
from minilog.sync.loop import shared_loop


class ConsumerBase(Blocking):
    """The shell of a consumer, and the way of its records to the thread of the program."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._shell = ConsumerShell(parse_consumer_config(config), SYSTEM_RUNTIME)
        self._loop = shared_loop()
        self._taking: asyncio.Task[object] | None = None
        self._closed = self._had_corrupt = False

    def _now_ms(self) -> float:
        return time.monotonic() * 1000.0

    def _tell(self, step: GroupStep) -> None:
        assert self._shell.group is not None
        try:
            step.call(self._shell.group.callbacks)
        finally:
            self._loop.run(self._shell.finish_step(step))

    def _follow_group(self) -> None:
        """Tell a member's program of the changes of its partitions, before it gets records."""
        while (step := self._loop.run(self._shell.next_step())) is not None:
            self._tell(step)

    def _take(
        self, timeout: float, max_bytes: int, selection: RowSelection, record_bytes: int = 0
    ) -> tuple[int, DecodedRuns]:
        """The number of the poll, and its rows. The caller notes the number when it returns."""
        polls, deadline_s = self._shell.polls, time.monotonic() + timeout
        while True:
            if self._shell.group is not None:
                self._follow_group()
            number = polls.begin()
            taken = self._loop.run(self._take_alone(deadline_s - time.monotonic(), max_bytes, selection, number))
            outcome = decode_all(taken, self._shell.config.max_poll_bytes, record_bytes)
            if outcome.corrupt or outcome.rest or self._had_corrupt:  # else the loop need not know
                self._loop.run(self._shell.report(outcome))
                self._had_corrupt = bool(outcome.corrupt)
            is_late = time.monotonic() >= deadline_s or self._shell.was_woken
            is_answer = is_late or bool(taken) or not self._shell.has_group_news()
            if is_answer and is_an_answer(taken, outcome, is_late=is_late):
                return number, outcome.good
            polls.returned = number  # it had nothing for the program

    async def _take_alone(
        self, timeout_s: float, max_bytes: int, selection: RowSelection, number: int
    ) -> list[FetchedRun]:
        """Take runs, after the end of an earlier poll. An interrupted poll may still wait here, if the interrupt came
        before the program could cancel it."""
        if self._taking is not None:
            self._taking.cancel()
        self._taking = asyncio.current_task()
        return await self._shell.take(timeout_s, max_bytes, selection, number)

    def _settle(self) -> None:
        """Settle the last poll, before a look at the core from this thread."""
        self._loop.check_process()
        if not self._shell.polls.are_settled():
            self._loop.run(called(self._shell.settle))

    def _close(self, leave: bool) -> None:
        if not self._closed:
            self._closed = True
            if self._shell.says_goodbye and not self._loop.is_gone:
                step = self._loop.run(self._shell.last_step())
                if step is not None:
                    self._tell(step)
            self._loop.close(lambda: self._shell.close(leave=leave))
