"""How far a leader's log is committed. Pure.

HW = min(durable end) over the maximal ISR, the leader's own included. A member whose durable end is not known in this
leader epoch and its current broker epoch holds it where it is. It also waits for joiners that are eligible and were
caught up within the lag time, else a joiner under load never gets in. It moves only while the committed ISR has at
least min members (V18), and never back (V8).
"""

from __future__ import annotations

from collections.abc import Iterable


def next_high_watermark(
    current: int,
    *,
    own_durable_end: int,
    member_ends: Iterable[int | None],
    joiner_ends: Iterable[int],
    in_sync_count: int,
    min_in_sync: int,
) -> int:
    """The high watermark after `current`. `member_ends`: the other members of the maximal ISR, None: unknown."""
    if in_sync_count < min_in_sync:
        return current
    end = own_durable_end
    for member_end in member_ends:
        if member_end is None:
            return current
        end = min(end, member_end)
    return max(current, min(end, *joiner_ends, end))
