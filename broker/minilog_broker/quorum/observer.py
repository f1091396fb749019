"""Observer: fetches the log and votes for nobody. It finds the leader by asking the voters in turn.

A broker that does not lead refuses the session and names the leader, if it knows it. The observer asks that one next. A
broker that is no voter is an observer. So is a voter's broker with another directory than the recorded one.

Its epoch is the epoch of the leader that it hears, and no promise to anybody. If it has asked all brokers in vain, it
begins again with the epoch of its own log, and the leader names a later one. So no invented epoch keeps it from the
real leader.
"""

from __future__ import annotations

import math

from minilog_broker.quorum.fetcher import Fetcher
from minilog_broker.quorum.member import NO_LEADER, QuorumMember, Role
from minilog_broker.replication.rules.own_delay import excused


class Observer:
    """The role of a node that follows the quorum without a vote.

    At `due_ms` it opens a session, or gives up one that is silent.
    """

    role = Role.OBSERVER

    def __init__(self, member: QuorumMember, epoch: int, now_ms: float, leader_id: int = NO_LEADER) -> None:
        self.leader_id = leader_id
        self.fetcher: Fetcher | None = None
        self.due_ms = now_ms
        self.epoch = epoch
        self._member = member
        self._in_vain = 0  # so many brokers in a row did not lead
        self._pause_ms = member.settings.reopen_min_ms
        others = member.peer_keys()
        self._turn = member.rng.randrange(len(others)) if others else 0
        self._heard_ms = -math.inf

    def look(self, now_ms: float) -> None:
        """Timer: open a session, or give up a silent one."""
        if self.fetcher is not None:
            self.elsewhere(now_ms)
        elif others := self._member.peer_keys():
            target = self.leader_id
            if target == NO_LEADER:
                target = others[self._turn % len(others)].broker_id
                self._turn += 1
            if self._in_vain > len(others):
                self._in_vain, self.epoch = 0, max(0, self._member.log.last_entry[0])
            self.fetcher = Fetcher(self._member, target, self.epoch)
            self.fetcher.start(now_ms)
            self.due_ms = now_ms + self._member.timing.fetch_timeout_ms
        else:
            self.due_ms = math.inf

    def heard(self, now_ms: float) -> None:
        """The leader has spoken as the leader of our epoch."""
        assert self.fetcher is not None
        self.leader_id = self.fetcher.leader_id
        self._heard_ms, self._in_vain = now_ms, 0
        self._pause_ms = self._member.settings.reopen_min_ms
        self.due_ms = now_ms + self._member.timing.fetch_timeout_ms

    def hears_leader(self, now_ms: float) -> bool:
        return self.fetcher is not None and now_ms - self._heard_ms < self._member.timing.fetch_timeout_ms

    def turn_to(self, leader_id: int, now_ms: float) -> None:
        """Somebody said that `leader_id` leads. If we hear nobody, we ask it next, after the pause."""
        if self._member.is_peer(leader_id) and not self.hears_leader(now_ms):
            self.leader_id = leader_id

    def enter(self, epoch: int, now_ms: float) -> None:
        """The broker that we ask leads in a later epoch than ours. Continue in the session."""
        assert self.fetcher is not None
        self.epoch = epoch
        self.fetcher.enter(epoch, now_ms)

    def elsewhere(self, now_ms: float) -> None:
        """The stream broke, was refused or is silent. Ask another broker, after a pause."""
        self._leave()
        self._in_vain += 1
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
        """This process stood still for `delay_ms`. That silence is not the leader's fault."""
        if self.fetcher is not None:
            self.fetcher.session.excuse(delay_ms, now_ms)
            self.due_ms = excused(self.due_ms, delay_ms, now_ms + self._member.timing.fetch_timeout_ms)
            self._heard_ms = excused(self._heard_ms, delay_ms, now_ms) if self.fetcher.confirmed else self._heard_ms
