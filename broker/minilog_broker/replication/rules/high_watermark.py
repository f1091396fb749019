"""The rule of the high watermark (HW): the offset up to which a leader's log is committed. Pure.

The HW is the smallest durable end in the maximal ISR, the leader's own included. It stands still while the leader does
not know the durable end of a member in this leader epoch and in the member's current broker epoch. It also waits for
joiners that are eligible and were caught up within the lag time. Without that wait a joiner under load would never get
in. The HW moves only while the committed ISR has at least min members (V18), and never back (V8).
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
    """The high watermark after `current`. `member_ends` has the durable ends of the other members of the maximal ISR,
    and None for a member whose end is unknown."""
    if in_sync_count < min_in_sync:
        return current
    end = own_durable_end
    for member_end in member_ends:
        if member_end is None:
            return current
        end = min(end, member_end)
    return max(current, min(end, *joiner_ends, end))
