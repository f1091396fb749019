"""The one owner of all transitions between the roles of a node. V11, V20, V21.

    role         what it is
    UNATTACHED   a voter that knows nobody who leads its epoch
    PROSPECTIVE  it asks whether it would be elected: a pre-vote
    CANDIDATE    it stands: epoch and own vote go to disk, then it asks for votes
    LEADER       it was elected
    FOLLOWER     it fetches from the leader of its epoch
    OBSERVER     it fetches and does not vote: this broker is no voter, or has lost its disk

`WAYS` has what leads from one to another. A node begins UNATTACHED. It adopts a later epoch if that is proven
(reported_epochs). Then it is a FOLLOWER if it knows the leader, else UNATTACHED. After a round that is not won in time
comes another one (PROSPECTIVE). A voter may be stuck in a later epoch than a leader that a majority hears. Then the
leader stands in the epoch above. So the voter comes back, and the leader stays (V20).

If that leader does not reach the voter (it has moved, and its new address is not recorded), the voter listens to it
meanwhile: it is a FOLLOWER that does not count (follower). Its own epoch stays what it has promised. A node that leaves
stands no more.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from minilog_broker.quorum.cluster import NewVoter, cluster_record, founding_level, level_record, new_cluster_id
from minilog_broker.quorum.fetcher import Fetcher
from minilog_broker.quorum.follower import Follower
from minilog_broker.quorum.leader import QuorumLeader
from minilog_broker.quorum.member import MAX_EPOCH, NO_LEADER, QuorumMember, Role
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import encode_leader_change, encode_records
from minilog_broker.quorum.reported_epochs import ReportedEpochs
from minilog_broker.quorum.snapshots import NodeSnapshots
from minilog_broker.quorum.standing import Candidate, Prospective, Unattached
from minilog_broker.quorum.vote_keeper import VoteKeeper

_ROUNDS_IN_VAIN = 5  # about a second: a leader that reaches this voter has long stood above it
State: TypeAlias = Unattached | Prospective | Candidate | QuorumLeader | Follower | Observer

WAYS = {
    (Role.UNATTACHED, Role.FOLLOWER): "a leader speaks up",
    (Role.UNATTACHED, Role.PROSPECTIVE): "no leader spoke up in time",
    (Role.UNATTACHED, Role.OBSERVER): "the start or the log says that this one does not vote",
    (Role.PROSPECTIVE, Role.CANDIDATE): "a majority would vote for us",
    (Role.PROSPECTIVE, Role.FOLLOWER): "a leader speaks up",
    (Role.PROSPECTIVE, Role.UNATTACHED): "a later epoch, or our vote for another",
    (Role.CANDIDATE, Role.LEADER): "a majority votes for us",
    (Role.CANDIDATE, Role.PROSPECTIVE): "the round was not won in time",
    (Role.CANDIDATE, Role.FOLLOWER): "another one was elected",
    (Role.CANDIDATE, Role.UNATTACHED): "a later epoch, or our vote for another in one",
    (Role.LEADER, Role.UNATTACHED): "no majority is heard, or a later epoch",
    (Role.LEADER, Role.OBSERVER): "the log says, committed, that this one does not vote any more",
    (Role.LEADER, Role.FOLLOWER): "a later epoch, and who leads it",
    (Role.LEADER, Role.CANDIDATE): "a voter stands in a later epoch, and a majority hears us (V20)",
    (Role.FOLLOWER, Role.PROSPECTIVE): "its stream broke, or it was silent",
    (Role.FOLLOWER, Role.UNATTACHED): "a later epoch, or our vote in one",
    (Role.FOLLOWER, Role.OBSERVER): "the log says that this one does not vote any more",
    (Role.OBSERVER, Role.UNATTACHED): "the log says that this one votes",
}
"""Every way from a role to another."""


class Transitions:
    """The role of a node, and each way from one role to another."""

    def __init__(self, member: QuorumMember, snapshots: NodeSnapshots, stored: VoteState, epoch: int) -> None:
        self.state: State = Unattached(float("inf"))
        self.epoch = epoch
        self.keeper = VoteKeeper(stored, member.emit)
        self.reported_epochs = ReportedEpochs(member)
        self.started = False
        self._leaves = False
        self._member = member
        self._snapshots = snapshots
        self._rounds = 0  # since a leader was heard
        self._timestamp_us = 0

    @property
    def leader_id(self) -> int:
        return self.state.leader_id

    @property
    def leader(self) -> QuorumLeader | None:
        return self.state if isinstance(self.state, QuorumLeader) else None

    @property
    def fetcher(self) -> Fetcher | None:
        return self.state.fetcher if isinstance(self.state, Follower | Observer) else None

    def epoch_for_others(self) -> int:
        """The epoch that this node may name to others. A voter names none that is not on its disk."""
        return self.epoch if isinstance(self.state, Observer) else min(self.epoch, self.keeper.durable.epoch)

    def hears_leader(self, now_ms: float) -> bool:
        """Whether this node knows a live leader, which may be itself."""
        match self.state:
            case QuorumLeader():
                return True
            case Follower() | Observer():
                return self.state.hears_leader(now_ms)
            case _:
                return False

    # -- a start, and who votes

    def take_part(self, now_ms: float) -> None:
        """Take the first role of a life. A voter asks the others soon, because one of them may lead."""
        self.started = True
        if not self._member.is_voter:
            self._enter(Observer(self._member, self.epoch, now_ms), now_ms)
            return
        self.keeper.record(self.epoch, self.keeper.voted_for(self.epoch))  # the log may be ahead of the vote's file
        if self._member.is_only_voter:
            self.stand(now_ms)
        else:
            self._enter(Unattached(now_ms + self._member.jitter_ms()), now_ms)

    def look_at_voters(self, now_ms: float) -> None:
        """The log may name other voters than before."""
        if not self.started or self._member.is_voter != isinstance(self.state, Observer):
            return
        if self._member.is_voter:
            self._record(max(self.keeper.current.epoch, self._member.log.last_entry[0]))  # not what an observer heard
            self._enter(Unattached(now_ms + self._member.jitter_ms()), now_ms)
        elif not isinstance(self.state, QuorumLeader):
            leader_id = self.leader_id
            if isinstance(self.state, Follower):
                self.epoch = self.state.fetcher.epoch  # an observer's is the leader's
            self._enter(Observer(self._member, self.epoch, now_ms, leader_id), now_ms)
        elif self._snapshots.replayed_end_offset >= self._member.voters.newest_end_offset:
            # The change that ended our vote is committed, and the command has its answer.
            self._enter(Observer(self._member, self.epoch, now_ms), now_ms)

    # -- what happens to a role

    def due(self, now_ms: float) -> None:
        """The time has come that the role waited for."""
        match self.state:
            case QuorumLeader() as leader:
                if leader.voters.quorum_until_ms() <= now_ms:
                    self.resign(now_ms)
                else:
                    leader.tell(now_ms)
            case Observer() as observer:
                observer.look(now_ms)
                self.epoch = observer.epoch
            case Prospective(ballot=ballot) if ballot.won:
                self.count(now_ms)
            case _:
                self.stand(now_ms)

    def broke(self, now_ms: float) -> None:
        """The stream to the leader broke, could not be opened, or a broker that does not lead refused it."""
        match self.state:
            case Follower() as follower:
                follower.fetcher.closed(now_ms)
                follower.broke(now_ms)
            case Observer() as observer:
                observer.elsewhere(now_ms)
            case _:
                pass

    # -- elections

    def leave(self, now_ms: float) -> None:
        """This process ends. Stand for election no more: a new epoch would part this voter from the others, who elect
        one of themselves."""
        self._leaves = True
        if isinstance(self.state, Prospective | Candidate):
            self._enter(Unattached(math.inf), now_ms)

    def stand(self, now_ms: float) -> None:
        """Ask whether we would be elected. Wait before, until the disk is done and the whole log is known.

        A leader judges positions by the epochs that the log has recorded. Those of queued entries are not among them.
        """
        if self._leaves:
            self._enter(Unattached(math.inf), now_ms)
            return
        waits = self.keeper.is_writing and isinstance(self.state, Candidate)
        if waits or not self._member.log.settled or self._snapshots.loading is not None or self.epoch >= MAX_EPOCH:
            if not isinstance(self.state, QuorumLeader):
                self.state.due_ms = now_ms + self._member.timing.disk_pause_ms
            return
        if not self._member.is_voter:  # replaced while it led
            self._enter(Observer(self._member, self.epoch, now_ms), now_ms)
            return
        self._rounds += 1
        state = Prospective(
            self._member,
            self.epoch,
            now_ms + self._member.election_timeout_ms(),
            lost_leader_id=self.leader_id,
            leader_due_ms=now_ms + self._member.timing.leader_word_ms,
        )
        self._enter(state, now_ms)
        state.ask()
        self.count(now_ms)

    def count(self, now_ms: float) -> None:
        """Look whether the round is won, or everybody was asked in vain."""
        state = self.state
        if not isinstance(state, Prospective | Candidate):
            return
        if state.ballot.won:
            if isinstance(state, Prospective) and state.waits_until_ms() > now_ms:
                state.due_ms = min(state.due_ms, state.waits_until_ms())
            elif isinstance(state, Prospective):
                self.stand_in(self.epoch + 1, state.new_voters, now_ms)
            else:
                self._lead(state, now_ms)
        elif state.ballot.exhausted:
            state.due_ms = min(state.due_ms, now_ms + self._back_off_ms())

    def stand_in(self, epoch: int, new_voters: dict[int, NewVoter], now_ms: float) -> None:
        """Stand in `epoch`. Ask for votes when the epoch and our own vote are on disk."""
        self.epoch = epoch
        state = Candidate(self._member, epoch, now_ms + self._member.election_timeout_ms(), new_voters)
        self._enter(state, now_ms)
        self.keeper.record(epoch, self._member.node_id, self._member.directory_id)
        self.keeper.when_durable(lambda: self._ask(state))

    def _ask(self, state: Candidate) -> None:
        if self.state is state:
            state.ask()

    def _back_off_ms(self) -> float:
        """Longer each time, so that two voters that disturb each other come apart. Never longer than an election
        takes."""
        timing = self._member.timing
        longest_ms = min(timing.election_timeout_ms, timing.jitter_ms * 2 ** min(self._rounds, 10))
        return self._member.rng.uniform(timing.jitter_ms / 5, longest_ms)

    def _lead(self, state: Candidate, now_ms: float) -> None:
        member = self._member
        voters = member.addresses.voters()
        opening = [encode_leader_change(member.node_id, self.epoch, voters, self._timestamp_us)]
        if not member.voters.current:
            first = cluster_record(new_cluster_id(member.rng), member.given, state.new_voters)
            level = level_record(founding_level(state.new_voters))
            opening.append(encode_records([first, level], self._timestamp_us))
        leader = QuorumLeader(member, self.epoch, now_ms)
        self._enter(leader, now_ms)
        self._rounds = 0
        leader.open_epoch(opening)

    def at(self, timestamp_us: int) -> None:
        """Note the wall clock, for the entries of a new leader."""
        self._timestamp_us = timestamp_us

    # -- epochs of others

    def vote_for(self, epoch: int, candidate_id: int, directory_id: bytes, now_ms: float) -> None:
        """Vote in `epoch`. The answer goes out when the vote is on disk.

        An observer votes if the candidate's log names it as a voter and its own log is behind. It stays an observer
        until its own log says the same, and keeps the epoch from then on (`look_at_voters`). Until then, entries of an
        older leader in its log do no harm: everything before the entry that adds it is on the disk of the candidate,
        too.
        """
        self.keeper.record(epoch, candidate_id, directory_id)
        if isinstance(self.state, Observer):
            return
        self.epoch = epoch
        self._enter(Unattached(now_ms + self._member.election_timeout_ms()), now_ms)

    def adopt(self, epoch: int, now_ms: float) -> None:
        """A later epoch than ours is proven. Its leader has said itself that it leads, or is not known."""
        standing = isinstance(self.state, Prospective | Candidate)
        leader_id = self.reported_epochs.leader_of(epoch)
        if leader_id != NO_LEADER:
            self.follow(epoch, leader_id, now_ms)
            return
        self._record(epoch)
        wait_ms = self._member.jitter_ms() if standing else self._member.election_timeout_ms()
        self._enter(Unattached(now_ms + wait_ms), now_ms)

    def follow(self, epoch: int, leader_id: int, now_ms: float) -> None:
        """Another voter leads `epoch`, which is ours or later."""
        state = self.state
        if isinstance(state, Follower) and leader_id == state.leader_id and not state.only_listens:
            if epoch == self.epoch:
                return
            if state.is_connected:
                self.enter_epoch(epoch, now_ms)
                return
        self._record(epoch)
        follower = Follower(self._member, leader_id, epoch, now_ms)
        self._enter(follower, now_ms)
        self.keeper.when_durable(lambda: self._fetch(follower))

    def listen(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """A voter says itself that it leads `epoch`, which is below what we have promised. Listen to it, if it has not
        stood above us in all these rounds. Whether we do.

        Our log must have nothing of a later epoch: what is in it may be committed. Our promise stays. So we vote for
        nobody below it, and our copy counts for nothing in that leader's epoch.
        """
        log = self._member.log
        newest_epoch = max(log.last_entry[0], log.log.epochs.latest_epoch or 0)
        in_vain = isinstance(self.state, Prospective) and self._rounds >= _ROUNDS_IN_VAIN
        if not in_vain or newest_epoch > epoch or not log.settled:
            return False
        follower = Follower(self._member, leader_id, epoch, now_ms, only_listens=True)
        self._enter(follower, now_ms)
        self.keeper.when_durable(lambda: self._fetch(follower))
        return True

    def listen_on(self, state: Follower, epoch: int, now_ms: float) -> None:
        """The leader that we listen to is in `epoch`, at most ours. In ours we follow it, and count."""
        if epoch == self.epoch:
            self.follow(epoch, state.leader_id, now_ms)
        elif epoch > state.fetcher.epoch:
            state.fetcher.enter(epoch, now_ms)

    def enter_epoch(self, epoch: int, now_ms: float) -> None:
        """The broker that we fetch from leads in a later epoch than ours. Continue in the same session."""
        self._record(epoch)
        state = self.state
        if isinstance(state, Observer):
            state.enter(epoch, now_ms)
        elif isinstance(state, Follower):
            state.fetcher.halt()
            state.fetcher.epoch = epoch
            state.fetcher.confirmed = False
            self.keeper.when_durable(lambda: self._fetch(state))

    def _fetch(self, follower: Follower) -> None:
        if self.state is follower:
            follower.fetcher.start(self._member.now_ms)

    def heard(self, now_ms: float) -> None:
        """The leader has spoken as the leader of our epoch."""
        self._rounds = 0
        if isinstance(self.state, Follower | Observer):
            self.state.heard(now_ms)

    def log_begins_anew(self, now_ms: float) -> None:
        """A snapshot replaces the log. A node that fetches continues behind it, and no node stands with the old log."""
        if self.fetcher is not None:
            self.fetcher.restart(now_ms)
        elif isinstance(self.state, Prospective | Candidate):
            self._enter(Unattached(now_ms + self._member.jitter_ms()), now_ms)

    def _record(self, epoch: int) -> None:
        """Enter `epoch`. A voter keeps it on disk. An observer has nothing to take back."""
        if epoch > self.keeper.current.epoch and self._member.is_voter:
            self.keeper.record(epoch)
        self.epoch = epoch

    # -- a leader's end

    def resign(self, now_ms: float) -> None:
        """Lead no more: no majority is heard, or our disk does not answer. This node voted for itself in this epoch,
        and does not vote in it again."""
        self._enter(Unattached(now_ms + self._member.election_timeout_ms()), now_ms)

    def stand_above(self, epoch: int, now_ms: float) -> bool:
        """Stand above `epoch`, as a leader that a majority hears, unless our disk is behind. Whether it does: for one
        voter's word it leaps seldom."""
        if self._leaves or not self._member.log.settled:
            return False
        leap = self.reported_epochs.leap_towards(epoch, self.epoch, now_ms)
        if leap == self.epoch:
            return False
        self.stand_in(leap + 1, {}, now_ms)
        return True

    def _enter(self, state: State, now_ms: float) -> None:
        left, self.state = self.state, state
        match left:
            case QuorumLeader():
                left.resign(self.epoch_for_others(), state.leader_id)
            case Follower():
                left.fetcher.stop()
            case Observer() if left.fetcher is not None:
                left.fetcher.stop()
            case _:
                pass
