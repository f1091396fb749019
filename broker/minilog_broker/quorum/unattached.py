"""Unattached: a voter that knows of no leader in its epoch, and waits for one to speak up before it stands itself."""

from __future__ import annotations

from minilog_broker.quorum.member import NO_LEADER, Role


class Unattached:
    """See the module's text. It stands at `due_ms`."""

    role = Role.UNATTACHED
    leader_id = NO_LEADER

    def __init__(self, due_ms: float) -> None:
        self.due_ms = due_ms
