"""The leader epochs of each copy, and the file beside it that says where they begin. V3.

What batches say of a log and what is durable of its `leader-epoch` are the same from the start of the log on, at any
time: an epoch is recorded before its first batch is there, and what is cut away goes from the log first.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog_broker.storage.epoch_cache import EpochCache
from tests.judges.partition import check_epochs
from tests.judges.violation import Violation
from tests.simulation.judge.copies import Copy
from tests.world.stored import content_of

if TYPE_CHECKING:
    from tests.simulation.judge.truth import Truth

_FILE = "leader-epoch"
_Epochs = list[tuple[int, int]]  # (epoch, offset), as they lie


class LeaderEpochs:
    """Looks at the epochs of each copy, on the disk as a loss of power would leave it."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._seen: dict[Copy, tuple[bytes | None, tuple[tuple[int, int], ...]]] = {}

    def look(self) -> None:
        """At the copies whose epochs changed."""
        for copy, key, _ in self._truth.all_copies():
            self._look_at(copy, key)

    def _look_at(self, copy: Copy, key: PartitionKey) -> None:
        epochs = copy.live.epochs
        content = copy.host.disk.durable_content(f"{copy.path}/{_FILE}")
        seen = content, tuple(epochs)
        if self._seen.get(copy) == seen or self._truth.damage.excuses(copy.host.number, key):
            return
        self._seen[copy] = seen
        check_epochs(f"b{copy.host.number} ({copy.path})", (epoch for epoch, _ in epochs))
        recorded = copy.recorded("checkpoint")
        start = 0 if recorded is None else int(recorded["log_start_offset"])
        wrong = first_wrong(epochs, content_of(content), max(start, copy.live.start), copy.live.end)
        if wrong is not None:
            text = f"on b{copy.host.number} {wrong} in the log {copy.path} from {start} to {copy.live.end}"
            raise Violation("V3", text)


def first_wrong(epochs: _Epochs, content: bytes | None, start: int, end: int) -> str | None:
    """What the file says otherwise than the batches of a log, from its start to its end; None where nothing."""
    if start >= end:
        return None
    try:
        recorded = list(EpochCache.decode(content or b"").entries)
    except ValueError as error:
        return str(error)
    said, truth = _within(recorded, start, end), _within(epochs, start, end)
    return None if said == truth else f"the epochs begin at {truth}, the file says {said}"


def _within(epochs: _Epochs, start: int, end: int) -> _Epochs:
    """Of what lies from `start` to `end`."""
    first = max(0, bisect_right(epochs, start, key=_start) - 1)
    return [(epoch, max(offset, start)) for epoch, offset in epochs[first:] if offset < end]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
