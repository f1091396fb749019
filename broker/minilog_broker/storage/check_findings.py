"""The findings of a check of a stopped broker's directory, for people and for programs (directory_check.py,
log_check.py).

verdict               meaning                                                          exit code of `minilog check`
cache                 the next start makes the file again or does without: no loss     0
torn or damaged tail  an unfinished write, or acknowledged records that were changed   3
doubtful              acknowledged records may be missing, and nothing would show it   3
not checked           a later version wrote the file, or the system refuses to read it 2
damaged               the file differs from the bytes that were written                1

Nothing in a directory tells an unfinished write from rot in the newest records: their end was not recorded yet. So a
check does not say that a bad tail was never acknowledged. The other copies decide.
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass


class CheckVerdict(enum.Enum):
    """The verdicts of the module's table. A later one is worse, except for the exit code."""

    CACHE = "cache"
    TORN_TAIL = "torn or damaged tail"
    DOUBTFUL = "doubtful"
    NOT_CHECKED = "not checked"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One fault: the file, the fault itself, and the remedy."""

    path: str
    verdict: CheckVerdict
    what: str
    remedy: str
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of checked logs and segments. `batch_bytes` are the bytes of the segments."""

    logs: int = 0
    segments: int = 0
    batch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check. `broker_id` and `cluster_id` are from broker.json, None if it does not name them."""

    broker_id: int | None
    cluster_id: str | None
    counts: Counts
    findings: tuple[CheckFinding, ...]

    @property
    def worst(self) -> CheckVerdict | None:
        """The worst verdict. None if all files are sound."""
        verdicts = [finding.verdict for finding in self.findings]
        return next((verdict for verdict in reversed(CheckVerdict) if verdict in verdicts), None)


def unreadable(error: OSError, path: str) -> CheckFinding:
    """The finding for a file that cannot be read. A failing disk is damage, a lack of rights is not."""
    if error.errno == errno.EIO:
        remedy = "replace the disk: the broker then fetches its data again from the other replicas"
        return CheckFinding(error.filename or path, CheckVerdict.DAMAGED, "the disk cannot read it", remedy)
    what = f"it cannot be read: {error.strerror or error}"
    return CheckFinding(error.filename or path, CheckVerdict.NOT_CHECKED, what, "remove that cause, and check again")
