"""What a check of a stopped broker's directory found, for people and for machines (directory_check.py, log_check.py).

verdict       what it means                                                    exit code of `minilog check`
cache         made anew, or done without, at the next start: nothing is lost   0
torn tail     the end of a write that nobody counts: cut at the next start     0
doubtful      something that was counted may be missing, and nothing shows it  0
not checked   a later version wrote it, or it may not be read                  2
damaged       what was written is not there as it was written                  1
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass


class Verdict(enum.Enum):
    """See the table above; a later one is worse, but for the exit code."""

    CACHE = "cache"
    TORN_TAIL = "torn tail"
    DOUBTFUL = "doubtful"
    NOT_CHECKED = "not checked"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: the file, what is wrong with it, and what to do."""

    path: str
    verdict: Verdict
    what: str
    remedy: str
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was looked at. `batch_bytes` are those of the segments."""

    logs: int = 0
    segments: int = 0
    batch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found. `broker_id` and `cluster_id` are as broker.json says, None where it does not."""

    broker_id: int | None
    cluster_id: str | None
    counts: Counts
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Verdict | None:
        """None: all is sound."""
        verdicts = [each.verdict for each in self.findings]
        return next((each for each in reversed(Verdict) if each in verdicts), None)


def unreadable(error: OSError, path: str) -> Finding:
    """A file that the system does not give: a disk that fails is damage, a lack of rights is none."""
    if error.errno == errno.EIO:
        remedy = "replace the disk; what it held is fetched again from the other replicas"
        return Finding(error.filename or path, Verdict.DAMAGED, "the disk does not give it", remedy)
    what = f"it cannot be read: {error.strerror or error}"
    return Finding(error.filename or path, Verdict.NOT_CHECKED, what, "see to that, and check again")
