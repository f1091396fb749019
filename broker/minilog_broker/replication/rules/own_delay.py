"""A process that judges others late by a timer first subtracts its own delay. Pure.

docs/spec/quorum.md § Clocks and own delays has the rule.

If a process's own timer fires late, the process stood still, and received no message meanwhile. So it excuses the
others for the length of the delay: it moves the time of the last received message by the delay. It does not excuse them
for a whole period. Else a process that is late now and then would never find another one late. If the delay is a small
part of the time-out, it does not excuse them at all, because such delays are usual.
"""

from __future__ import annotations

SMALL_SHARE = 4  # after a delay above a quarter of the time-out, too little of it is left to receive a message


def own_delay_ms(due_ms: float, now_ms: float, timeout_ms: float) -> float:
    """The time for which a process whose timer was due at `due_ms` stood still. 0 if it is a small part of the
    time-out."""
    delay_ms = now_ms - due_ms
    return delay_ms if delay_ms > timeout_ms / SMALL_SHARE else 0.0


def excused(time_ms: float, delay_ms: float, latest_ms: float) -> float:
    """`time_ms` moved by this process's delay, but at most to `latest_ms`. It is the time of a received message, or the
    time at which another process becomes late."""
    return min(time_ms + delay_ms, latest_ms)
