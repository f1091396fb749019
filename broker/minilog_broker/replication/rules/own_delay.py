"""A process that judges others late by a timer first subtracts its own delay. Pure.

docs/spec/quorum.md § Clocks and own delays has the rule.

If a process's own timer fires late, the process stood still, and heard nobody meanwhile. That excuses the others for
the length of the delay: the last message that the process heard counts as heard so much later. It does not excuse them
for a whole period, because a loop that is late now and then would never blame anybody. It does not excuse them for a
delay that is a small part of the time-out either, because such delays are usual.
"""

from __future__ import annotations

SMALL_SHARE = 4  # a delay above a quarter of the time-out leaves too little of it to hear anybody in


def own_delay_ms(due_ms: float, now_ms: float, timeout_ms: float) -> float:
    """The time for which a process whose timer was due at `due_ms` stood still. 0 if it is a small part of the
    time-out."""
    delay_ms = now_ms - due_ms
    return delay_ms if delay_ms > timeout_ms / SMALL_SHARE else 0.0


def excused(time_ms: float, delay_ms: float, latest_ms: float) -> float:
    """`time_ms`, at which somebody was heard or becomes late, moved as if this process's delay had not passed."""
    return min(time_ms + delay_ms, latest_ms)
