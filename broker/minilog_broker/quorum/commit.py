"""The committed end of the metadata log: by majority, and never by counting the entries of an earlier epoch (V12)."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def majority_commit(ends: Collection[int]) -> int:
    """The largest end that a majority of voters have on disk. `ends` has one durable end for each voter, 0 if
    unknown."""
    if not ends:
        raise ValueError("a quorum has at least one voter")
    return sorted(ends, reverse=True)[len(ends) // 2]


def committed_end(sets_of_ends: Sequence[Collection[int]], epoch_start_offset: int, committed: int) -> int:
    """The new committed end of a leader whose epoch began at `epoch_start_offset` and that had committed `committed`.

    Every set of voters needs its majority (quorum.voters). A leader counts voters only for the entries of its own
    epoch. The entries before them are committed together with them (Raft 5.4.2).
    """
    reached = min(majority_commit(ends) for ends in sets_of_ends)
    return max(committed, reached) if reached > epoch_start_offset else committed
