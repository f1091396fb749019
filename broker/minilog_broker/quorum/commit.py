"""What of the metadata log is committed: by majority, and never by counting an earlier epoch's entries (V12)."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def majority_commit(ends: Collection[int]) -> int:
    """The largest end that a majority of voters have on disk; `ends` is one durable end per voter, 0 where unknown."""
    if not ends:
        raise ValueError("a quorum has at least one voter")
    return sorted(ends, reverse=True)[len(ends) // 2]


def committed_end(sets_of_ends: Sequence[Collection[int]], epoch_start_offset: int, committed: int) -> int:
    """The new committed end of a leader whose epoch began at `epoch_start_offset` and that had committed `committed`.

    Every set of voters needs its majority (quorum.voters). Raft 5.4.2: only an entry of the leader's own epoch is
    committed by counting; those before it are with it.
    """
    reached = min(majority_commit(ends) for ends in sets_of_ends)
    return max(committed, reached) if reached > epoch_start_offset else committed
