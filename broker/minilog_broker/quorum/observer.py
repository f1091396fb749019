"""Observer: fetches the log and votes for nobody. It finds the leader by asking the voters in turn.

Whoever does not lead refuses the session and says who does, as far as it knows; that one is asked next. A broker that
is no voter is an observer, and a voter's that has another directory than the recorded one.
"""

from __future__ import annotations

import math

from minilog_broker.quorum.fetcher import Fetcher
from minilog_broker.quorum.member import NO_LEADER, Member, Role
from minilog_broker.replication.own_delay import excused


class Observer:
    """See the module's text. At `due_ms` it opens a session, or gives up one that is silent."""

    role = Role.OBSERVER

    def __init__(self, member: Member, epoch: int, now_ms: float, leader_id: int = NO_LEADER) -> None:
        self.leader_id = leader_id
        self.fetcher: Fetcher | None = None
        self.due_ms = now_ms
        self._member = member
        self._epoch = epoch
        self._pause_ms = member.settings.reopen_min_ms
        self._others = [voter_id for voter_id in member.voter_ids if voter_id != member.node_id]
        self._turn = member.rng.randrange(len(self._others)) if self._others else 0
        self._heard_ms = -math.inf

    def look(self, now_ms: float) -> None:
        """Timer."""
        if self.fetcher is not None:
            self.elsewhere(now_ms)
        elif self._others:
            target = self.leader_id
            if target == NO_LEADER:
                target = self._others[self._turn % len(self._others)]
                self._turn += 1
            self.fetcher = Fetcher(self._member, target, self._epoch)
            self.fetcher.start(now_ms)
            self.due_ms = now_ms + self._member.timing.fetch_timeout_ms
        else:
            self.due_ms = math.inf

    def heard(self, now_ms: float) -> None:
        """The leader has spoken as the leader of our epoch."""
        assert self.fetcher is not None
        self.leader_id = self.fetcher.leader_id
        self._heard_ms = now_ms
        self._pause_ms = self._member.settings.reopen_min_ms
        self.due_ms = now_ms + self._member.timing.fetch_timeout_ms

    def hears_leader(self, now_ms: float) -> bool:
        return self.fetcher is not None and now_ms - self._heard_ms < self._member.timing.fetch_timeout_ms

    def adopt(self, epoch: int, leader_id: int, now_ms: float) -> None:
        """Another epoch, or a leader where none was known: turn there, at once where we know whom to ask."""
        if leader_id == self._member.node_id:
            leader_id = NO_LEADER
        self._leave()
        news = epoch > self._epoch and leader_id != NO_LEADER
        self._epoch, self.leader_id = epoch, leader_id
        self.due_ms = now_ms if news else self._paused(now_ms)

    def enter(self, epoch: int, now_ms: float) -> None:
        """The one we ask leads in a later epoch than ours: go on in the session."""
        assert self.fetcher is not None
        self.fetcher.halt()
        self._epoch = self.fetcher.epoch = epoch
        self.fetcher.start(now_ms)

    def elsewhere(self, now_ms: float) -> None:
        """The stream broke, was refused or is silent: ask another one, after a pause."""
        self._leave()
        self.leader_id = NO_LEADER
        self.due_ms = self._paused(now_ms)

    def _leave(self) -> None:
        self._heard_ms = -math.inf
        if self.fetcher is not None:
            self.fetcher.stop()
            self.fetcher = None

    def _paused(self, now_ms: float) -> float:
        due_ms = now_ms + self._pause_ms * self._member.rng.uniform(0.5, 1.0)
        self._pause_ms = min(2 * self._pause_ms, self._member.settings.reopen_max_ms)
        return due_ms

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """This process stood still for so long: the leader is not to blame for that."""
        if self.fetcher is not None:
            self.fetcher.session.excuse(delay_ms, now_ms)
            self.due_ms = excused(self.due_ms, delay_ms, now_ms + self._member.timing.fetch_timeout_ms)
            self._heard_ms = excused(self._heard_ms, delay_ms, now_ms) if self.fetcher.confirmed else self._heard_ms
