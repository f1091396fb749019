"""Whether this broker lives and is ready: one rule, for HTTP (`/livez`, `/readyz`) and for grpc.health.v1.

    alive    its event loop turns (else nothing answers), and it is not ending
    ready    alive, registered, heard by a controller that has not fenced it, and its disks answer and have space

A broker that is not ready loses no data. Clients, and restarts of other brokers, should wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minilog.addresses import Address
from minilog_broker.server.disk.disk_stall import DiskAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCondition:
    """The input of the rule, at one moment."""

    stopping: bool
    registered: bool
    fenced: bool
    controller_silent_ms: float
    """The time since the last answer of a controller to a heartbeat."""
    session_timeout_ms: float
    disk: DiskAnswer
    no_space: bool
    """A disk is full: the broker refuses records, and serves reads."""


@dataclass(frozen=True, slots=True)
class ConsoleCondition:
    """The console that this broker serves. `address` None: none. `is_answering`: its process runs and listens."""

    address: Address | None = None
    has_tls: bool = False
    is_answering: bool = False


def not_alive(condition: BrokerCondition) -> list[str]:
    """The reasons why the broker counts as dead, a line each; none where it lives."""
    return ["stopping: the broker ends on request or by a failure. See its log"] if condition.stopping else []


def not_ready(condition: BrokerCondition) -> list[str]:
    """The reasons why the broker is not ready, a line each, with the remedy; none where it is."""
    reasons = not_alive(condition)
    if not condition.registered:
        return [
            *reasons,
            "starting: not registered yet. The broker recovers its logs, or finds no controller (see its log)",
        ]
    if condition.controller_silent_ms > condition.session_timeout_ms:
        silent_s = condition.controller_silent_ms / 1000.0
        reasons.append(
            f"no controller has answered for {silent_s:.1f} s: make sure that a majority of the voters runs and can be "
            "reached"
        )
    elif condition.fenced:
        reasons.append("fenced: the controller does not count on this broker until it has caught up. Wait for that")
    if condition.disk is DiskAnswer.STALLED:
        reasons.append("a disk does not answer: the broker hands its leadership over until it does. Check the disk")
    if condition.no_space:
        reasons.append("a disk is full: the broker refuses records until there is space. Free some, or lower retention")
    return reasons


Look = Callable[[], BrokerCondition]
"""Gives the condition of this moment."""
