"""Whether this broker lives and is ready: one rule, told over HTTP (`/livez`, `/readyz`) and by grpc.health.v1.

    alive    its event loop turns (else nothing answers), and it is not ending
    ready    alive, registered, heard by a controller that has not fenced it, and its disks answer

A broker that is not ready loses no data by it: it says that clients and restarts of others should wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minilog_broker.server.disk.disk_stall import DiskAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCondition:
    """What the rule looks at, of one moment."""

    stopping: bool
    registered: bool
    fenced: bool
    controller_silent_ms: float
    """Since a controller answered a heartbeat last."""
    session_timeout_ms: float
    disk: DiskAnswer


def not_alive(condition: BrokerCondition) -> list[str]:
    """Why it should count as dead, a line each; nothing where it lives."""
    return ["stopping: this broker was told to end, or failed; see its log"] if condition.stopping else []


def not_ready(condition: BrokerCondition) -> list[str]:
    """Why it is not ready, a line each, with what to do; nothing where it is."""
    reasons = not_alive(condition)
    if not condition.registered:
        return [*reasons, "starting: not registered yet; it recovers its logs, or finds no controller (see its log)"]
    if condition.controller_silent_ms > condition.session_timeout_ms:
        silent_s = condition.controller_silent_ms / 1000.0
        reasons.append(
            f"no controller has answered for {silent_s:.1f} s: see whether a majority of the voters runs and is reached"
        )
    elif condition.fenced:
        reasons.append("fenced: the controller does not count on this broker yet; it unfences itself when caught up")
    if condition.disk is DiskAnswer.STALLED:
        reasons.append("a disk does not answer: it hands its leadership over until the disk goes on; look at the disk")
    return reasons


Look = Callable[[], BrokerCondition]
"""What gives the condition of this moment."""
