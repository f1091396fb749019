"""One member of a group in a process of its own, which writes down what happens to it.

    python -m tests.integration.group_member '{"settings": {...}, "topic": ..., "log": ..., "form": ..., "hang_s": ...}'

It reads as programs do: by `poll`, by `poll_arrow` or by iteration. It handles what it gets for a moment. It commits
about once a second, or each record where it iterates, and in `on_revoked`. With SIGTERM it leaves. With SIGUSR1 its
handler hangs for `hang_s`.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from minilog import Consumer, TopicPartition
from minilog.errors import MinilogError
from minilog.groups.member import MemberState
from tests.integration.member_history import MemberEvent

POLL_S = SLICE_S = 0.2
COMMITS_EVERY_S = 1.0
MAX_POLL_INTERVAL_S = 8.0


class MemberOrder(msgspec.Struct):
    """What the process is to do. `form`: poll, poll_arrow or iterate. `work_s`: the time for what one poll gave."""

    settings: dict[str, Any]
    topic: str
    log: str
    form: str = "poll"
    hang_s: float = 10.0
    work_s: float = 0.2


class GroupMember:
    """The program."""

    def __init__(self, order: MemberOrder) -> None:
        self._order = order
        self._log = os.open(pathlib.Path(order.log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._consumer = Consumer({**order.settings, "max.poll.interval.ms": int(MAX_POLL_INTERVAL_S * 1000)})
        self._positions: dict[int, int] = {}  # handled, and not committed
        self._committed_s = time.monotonic()
        self._leaves = self._hangs = False

    def leave(self, *_: object) -> None:
        self._leaves = True
        self._consumer.wakeup()

    def hang(self, *_: object) -> None:
        self._hangs = True

    def run(self) -> None:
        """Read until the command to leave comes."""
        self._consumer.subscribe(
            [self._order.topic], on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )
        step: Callable[[], None] = getattr(self, f"_{self._order.form}")
        if self._order.form == "iterate":  # it is silent while no record comes
            threading.Thread(target=self._sample_forever, name="samples", daemon=True).start()
        while not self._leaves:
            try:
                step()
            except MinilogError as error:
                self._write("raised", words=type(error).__name__)
                time.sleep(SLICE_S)
        self._consumer.close()
        self._write("left")

    # -- three ways to read

    def _poll(self) -> None:
        since_s = time.monotonic()
        records = self._consumer.poll(timeout=POLL_S)
        self._handle(since_s, [(record.partition, record.offset) for record in records])

    def _poll_arrow(self) -> None:
        since_s = time.monotonic()
        rows: list[tuple[int, int]] = []
        for batch in self._consumer.poll_arrow(timeout=POLL_S):
            rows += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
        self._handle(since_s, rows)

    def _iterate(self) -> None:
        since_s = time.monotonic()
        for record in self._consumer:
            self._handle(since_s, [(record.partition, record.offset)])
            if self._leaves:
                return
            since_s = time.monotonic()

    def _handle(self, since_s: float, rows: Iterable[tuple[int, int]]) -> None:
        spans: dict[int, tuple[int, int]] = {}
        for partition, offset in rows:
            first, end = spans.get(partition, (offset, offset))
            if offset != end:
                self._write("handed", {partition: (first, end)}, since_s=since_s)  # the judge says that it is a gap
                first = offset
            spans[partition] = (first, offset + 1)
        self._write("handed" if spans else "sample", spans, since_s=since_s)
        self._work(self._order.work_s / (10.0 if self._order.form == "iterate" else 1.0) if spans else 0.0)
        self._positions |= {partition: end for partition, (_, end) in spans.items()}
        if self._order.form == "iterate" or time.monotonic() > self._committed_s + COMMITS_EVERY_S:
            self._commit(dict(self._positions))
            self._committed_s = time.monotonic()

    def _work(self, seconds: float) -> None:
        """Handle the records: a moment, or as long as a program that hangs."""
        time.sleep(seconds)
        if self._hangs:
            self._hangs = False
            until_s = time.monotonic() + self._order.hang_s
            while time.monotonic() < until_s:
                time.sleep(SLICE_S)
                self._write("sample")

    def _sample_forever(self) -> None:
        while not self._leaves:
            time.sleep(SLICE_S)
            self._write("sample")

    # -- callbacks

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._write("assigned", _of(partitions))

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        given_back = _of(partitions)
        self._write("revoking", given_back)
        self._commit(
            {partition: self._positions[partition] for partition in given_back if partition in self._positions}
        )
        self._forget(given_back)
        self._write("revoked", given_back)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._write("lost", _of(partitions))
        self._forget(_of(partitions))

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)

    def _commit(self, positions: dict[int, int]) -> None:
        offsets = {partition: (0, offset) for partition, offset in positions.items()}
        if not offsets:
            return
        self._write("commits", offsets)
        try:
            self._consumer.commit(
                {TopicPartition(self._order.topic, partition): offset for partition, offset in positions.items()}
            )
        except MinilogError as error:
            self._write("refused", offsets, words=type(error).__name__)
            return
        self._write("committed", offsets)
        self._forget(list(positions))

    # -- its file

    def _write(
        self, kind: str, offsets: dict[int, tuple[int, int]] | None = None, *, since_s: float = 0.0, words: str = ""
    ) -> None:
        until_s = self._holds_until_s()
        event = MemberEvent(kind, time.monotonic(), until_s, since_s, offsets or {}, words)
        os.write(self._log, msgspec.json.encode(event) + b"\n")

    def _holds_until_s(self) -> float:
        """By its own clock: the end of its session, or of the time in which it is to poll. The product has no need to
        show these two."""
        group = self._consumer._shell.group
        if group is None or group.member.state is not MemberState.IN:
            return 0.0
        member = group.member
        ends_ms = member._session_ends_ms
        if not member._polls:
            ends_ms = min(ends_ms, member._polled_ms + MAX_POLL_INTERVAL_S * 1000)
        return ends_ms / 1000.0


def _of(partitions: Iterable[TopicPartition]) -> dict[int, tuple[int, int]]:
    return {partition.partition: (0, 0) for partition in partitions}


def main() -> None:
    member = GroupMember(msgspec.json.decode(sys.argv[1], type=MemberOrder))
    signal.signal(signal.SIGTERM, member.leave)
    signal.signal(signal.SIGUSR1, member.hang)
    member.run()


if __name__ == "__main__":
    main()
