"""The points up to which a log is compacted.

    point     {clean_to, deletes_before}: the leader decides it, and its followers learn it with the records
    begun     the point of one copy that counts as promised: records below it may be gone from this copy
    done      the point that this copy has carried out: all records are gone that the point lets go

A copy stores both in its checkpoint. It stores `begun` before it changes any segment, and `done` after the last one.
Both numbers of a point only rise. So a copy that has learned the points of several leaders joins them.
docs/spec/replication.md § Compaction has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionPoint:
    """Compaction keeps one record of each key below `clean_to`. It keeps no deletion below `deletes_before`."""

    clean_to: int = 0
    deletes_before: int = 0

    def joined(self, other: CompactionPoint) -> CompactionPoint:
        """The point that demands what either of them demands."""
        if other.covers(self):
            return other
        return CompactionPoint(max(self.clean_to, other.clean_to), max(self.deletes_before, other.deletes_before))

    def covers(self, other: CompactionPoint) -> bool:
        """Whether a copy that has carried out this point has carried out the other one, too."""
        return self.clean_to >= other.clean_to and self.deletes_before >= other.deletes_before


NOT_COMPACTED = CompactionPoint()


@dataclass(frozen=True, slots=True)
class CopyCompaction:
    """The compaction of one copy. `begun` covers `done`."""

    begun: CompactionPoint = NOT_COMPACTED
    done: CompactionPoint = NOT_COMPACTED

    @property
    def is_due(self) -> bool:
        """Whether the copy has not carried out the point that it has begun."""
        return self.begun != self.done


COPY_NOT_COMPACTED = CopyCompaction()
