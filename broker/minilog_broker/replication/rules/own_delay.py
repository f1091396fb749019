"""Whoever judges others late by a timer first looks at itself. Pure.

The rule: docs/spec/quorum.md § Clocks and own delays.

A timer of one's own that fires late says that this process stood still, and heard nobody meanwhile. That excuses the
others for the length of the delay: what it heard last counts as heard so much later. Not for a whole period: a loop
that is late now and then would blame nobody, ever. And not for delays that are a small part of the time-out: those are
the loop's everyday.
"""

from __future__ import annotations

SMALL_SHARE = 4  # of a time-out: a quarter of it late, and the rest would be too little to hear anybody in


def own_delay_ms(due_ms: float, now_ms: float, timeout_ms: float) -> float:
    """For how long a process whose timer was due at `due_ms` stood still; 0 where that matters to no time-out."""
    delay_ms = now_ms - due_ms
    return delay_ms if delay_ms > timeout_ms / SMALL_SHARE else 0.0


def excused(time_ms: float, delay_ms: float, latest_ms: float) -> float:
    """When somebody was heard, or is late, as if the time in which we stood still had not passed."""
    return min(time_ms + delay_ms, latest_ms)
