"""Follower: a voter that fetches the log from the leader of its epoch. It stands for election if it stops hearing the
leader.

    what happens                                     when it stands
    the stream breaks or is refused                  at once, with jitter
    nothing comes over the open stream               after quorum.fetch.timeout: the leader hangs, or the link is cut
    our own process stood still                      so much later

It begins with a pre-vote. If others hear the leader, nothing comes of it (V20).

A follower that *only listens* has promised a later epoch than its leader's. The leader would stand above that epoch,
but it does not reach this voter. So this voter fetches as an observer does. It does not name its directory, and so
nothing that it has counts for a commit.
"""

from __future__ import annotations

import math

from minilog_broker.quorum.fetcher import Fetcher
from minilog_broker.quorum.member import QuorumMember, Role
from minilog_broker.replication.follower.fetcher import FetcherState
from minilog_broker.replication.rules.own_delay import excused


class Follower:
    """The role of a voter that follows a leader. It stands for election at `due_ms`."""

    role = Role.FOLLOWER

    def __init__(
        self, member: QuorumMember, leader_id: int, epoch: int, now_ms: float, *, only_listens: bool = False
    ) -> None:
        self.leader_id = leader_id
        self.only_listens = only_listens
        self.fetcher = Fetcher(member, leader_id, epoch, directory_id=b"" if only_listens else member.directory_id)
        self.due_ms = now_ms + member.timing.fetch_timeout_ms
        self._member = member
        self._heard_ms = -math.inf
        self._broken = False

    def heard(self, now_ms: float) -> None:
        """The leader has spoken as the leader of our epoch."""
        self._heard_ms, self._broken = now_ms, False
        self.due_ms = now_ms + self._member.timing.fetch_timeout_ms

    def hears_leader(self, now_ms: float) -> bool:
        return not self._broken and now_ms - self._heard_ms < self._member.timing.fetch_timeout_ms

    @property
    def is_connected(self) -> bool:
        """Whether the stream to the leader is open."""
        return not self._broken and self.fetcher.session.state is FetcherState.OPEN

    def broke(self, now_ms: float) -> None:
        """The stream is gone, and this node did not close it."""
        self._broken = True
        self.due_ms = min(self.due_ms, now_ms + self._member.jitter_ms())

    def excuse(self, delay_ms: float, now_ms: float) -> None:
        """This process stood still for `delay_ms`. That silence is not the leader's fault."""
        self.fetcher.session.excuse(delay_ms, now_ms)
        if not self._broken:
            self.due_ms = excused(self.due_ms, delay_ms, now_ms + self._member.timing.fetch_timeout_ms)
            self._heard_ms = excused(self._heard_ms, delay_ms, now_ms) if self.fetcher.confirmed else self._heard_ms
