"""Faults that the product once had, put back one by one: the code as it was before each was mended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minilog.errors import CorruptMessage, InvalidArgument, MinilogError
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog.v1.peer_pb2 import RecoveryFinding
from minilog_broker.controller import brokers, election, liveness
from minilog_broker.controller.brokers import BrokerRegistrations
from minilog_broker.controller.election import Departure, ElectionOutcome, depart
from minilog_broker.controller.image import BrokerRegistration, MetadataImage
from minilog_broker.controller.topic_config import effective_topic_config, topic_config_values
from minilog_broker.controller.torn_tails import TornTails
from minilog_broker.coordinators.transactions import clocks
from minilog_broker.quorum import follower as quorum_follower
from minilog_broker.quorum import voters_heard, voting
from minilog_broker.quorum.elections import Elections
from minilog_broker.quorum.member import MAX_EPOCH, NO_LEADER
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS
from minilog_broker.replication.follower import fetcher
from minilog_broker.replication.leader.forgotten_ends import ForgottenEnds
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from minilog_broker.replication.replica import Replica
from minilog_broker.replication.rules.in_sync import FollowerView, LogEndMarks, Progress
from minilog_broker.replication.sessions import session
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.disk.log_directory import FoundLog, LogDirectory
from minilog_broker.server.shells.controller_shell import default_topic_config
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.storage.batch_scan import SCAN_CHUNK_BYTES, _valid_batch, _Window
from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Recovery
from minilog_broker.storage.settings import LogSettings
from tests.rules import Patches
from tests.simulation.mutants.replication import joins_without_a_session, late_ticks_excuse_for_a_full_period

_ALIGNMENT_BYTES = 8  # of batches in a segment


# -- what a follower told before it was put out, or when nobody hears it any more


def _what_was_told_goes_on_to_count() -> Patches:
    """A shorter durable end changes nothing of when it was caught up, either."""
    progressed = FollowerView.progressed

    def mutant(self: FollowerView, told: Progress, *, log_end: int, marks: LogEndMarks, now_ms: float) -> None:
        before = self.last_caught_up_ms
        progressed(self, told, log_end=log_end, marks=marks, now_ms=now_ms)
        self.last_caught_up_ms = max(self.last_caught_up_ms, before)

    return [(FollowerView, "progressed", mutant)]


def old_progress_of_a_copy_that_was_cut() -> Patches:
    """A copy is cut in the middle of a life, and its leader takes it in by what it told before."""
    go_offline = Replica.go_offline

    def mutant(self: Replica, error: Exception, now_ms: float) -> None:
        go_offline(self, error, now_ms)
        self._offline_since = -1
        self._recover_log()

    return [
        *joins_without_a_session(),
        *_what_was_told_goes_on_to_count(),
        (Replica, "go_offline", mutant),
        (brokers, "overtaking", ElectionOutcome),
    ]


def put_out_and_taken_in_for_ever() -> Patches:
    """Whom the leader alone does not hear is put out for its lag, and taken in again by what it told before."""
    return [*joins_without_a_session(), *_what_was_told_goes_on_to_count()]


def closed_joiner_is_waited_for() -> Patches:
    """The high watermark waits for a joiner whose session is closed, or whose disk failed or is full."""
    joiner_ends = IsrState._joiner_ends

    def mutant(self: IsrState, members: frozenset[int], log_end: int, now_ms: float) -> list[int]:
        heard = {broker_id: view.wants_in for broker_id, view in self.views.items()}
        try:
            for view in self.views.values():
                view.wants_in = True
            return joiner_ends(self, members, log_end, now_ms)
        finally:
            for broker_id, view in self.views.items():
                view.wants_in = heard[broker_id]

    return [(IsrState, "_joiner_ends", mutant), (FollowerView, "is_out", lambda self, partition_epoch: None)]


# -- what a topic has


def own_configuration_counts() -> Patches:
    """What a topic does not set each broker takes from its own configuration; and another flush policy counts at
    once, for what was appended under the former one, too."""
    make, copy = QuorumShell.__init__, MetadataImage.copy

    def made(self: QuorumShell, options: BrokerOptions, *given: Any) -> None:
        make(self, options, *given)
        self.image.__dict__["_own"] = topic_config_values(default_topic_config(options.config))

    def copied(self: MetadataImage) -> MetadataImage:
        twin = copy(self)
        twin.__dict__["_own"] = self.__dict__.get("_own", {})
        return twin

    def effective(self: MetadataImage, topic_id: bytes) -> TopicConfig:
        return effective_topic_config({**self.__dict__.get("_own", {}), **self.configs.get(topic_id, {})})

    def configure(self: Log, settings: LogSettings) -> None:
        self.settings = settings
        self.durable_end_offset = self.durable_end_offset if settings.flush_on_append else self.log_end_offset

    return [
        (QuorumShell, "__init__", made),
        (MetadataImage, "copy", copied),
        (MetadataImage, "effective_config", effective),
        (Log, "configure", configure),
    ]


# -- what a start makes of its copies


def whole_copies_are_not_eligible() -> Patches:
    """Whoever starts after an unclean stop is no eligible leader: of machines that lost power together the last one
    that comes is waited for, and where it never comes nobody leads."""
    settle = election._settle

    def departure(
        self: BrokerRegistrations,
        request: peer_pb2.RegisterRequest,
        former: BrokerRegistration | None,
        state: PartitionState,
        finding: RecoveryFinding.ValueType,
        *,
        clean: bool,
    ) -> Departure:
        if clean:
            return Departure.OUT
        if former is not None and former.directory_id != request.directory_id:
            return Departure.DAMAGED
        same_boot = former is not None and request.kernel_boot_id == former.kernel_boot_id != ""
        whole = same_boot or self._ledger.config(state.key.topic_id).flush_on_append
        alone = state.in_sync_replicas == (request.broker_id,)
        return Departure.DAMAGED if alone and not whole else Departure.UNCLEAN

    def settled(before: PartitionState, state: PartitionState, barred: frozenset[int], rules: Any) -> ElectionOutcome:
        enough = len(state.in_sync_replicas) >= rules.effective_min(state)
        return settle(before, replace(state, eligible_leaders=()) if enough else state, barred, rules)

    def one_by_one(self: BrokerRegistrations, *silent: BrokerRegistration) -> None:
        for broker in silent:
            self._write_state(broker, fenced=True, stopping=broker.stopping)
            self._ledger.write_outcomes(
                self._ledger.image.replicas_on(broker.broker_id),
                lambda state, rules, gone=broker.broker_id: depart(state, gone, Departure.OUT, rules),  # type: ignore[misc]
            )

    return [
        (BrokerRegistrations, "_departure", departure),
        (BrokerRegistrations, "_among_those_heard", lambda self, rules: rules),
        (BrokerRegistrations, "fence", one_by_one),
        (election, "_settle", settled),
        (TornTails, "end_of", lambda *_: None),
    ]


def unreadable_log_ends_the_start() -> Patches:
    """A log that cannot be read ends the start of its broker."""

    def recover(self: LogDirectory) -> list[FoundLog]:
        found = []
        for path in self._directory.partition_paths():
            each = self._directory.partition_at(path)
            if each is not None and (key := PartitionKey(each.topic_id, each.partition)) != METADATA_KEY:
                found.append(self._recover_one(each, key))
        return found

    return [(LogDirectory, "recover", recover)]


def valid_batch_behind_is_damage() -> Patches:
    """A valid batch behind an invalid one is damage, also in a tail that was never synced."""
    look = Recovery._look_at_segments

    def mutant(self: Recovery) -> None:
        look(self)
        scan = self._found[-1].scan if self._found else None
        if scan is None or not scan.surplus_bytes:
            return
        file = self._files.open(self._found[-1].name.path(self._directory))
        window = _Window(file, scan.file_bytes, SCAN_CHUNK_BYTES)
        for position in range(scan.end.size_bytes + _ALIGNMENT_BYTES, scan.file_bytes, _ALIGNMENT_BYTES):
            try:
                if _valid_batch(window, position, self._key).base_offset >= scan.end.end_offset:
                    self._damage.append(f"a valid batch stands behind an invalid one: {scan.problem}")
                    return
            except CorruptMessage:
                continue

    return [(Recovery, "_look_at_segments", mutant)]


# -- one's own delay


def late_excuses_for_a_full_period() -> Patches:
    """Who was late itself excuses everybody for a full period: a loop that is late now and then blames nobody,
    ever."""

    def full_period(time_ms: float, delay_ms: float, latest_ms: float) -> float:
        return latest_ms

    modules = (liveness, clocks, quorum_follower, fetcher, session, voters_heard)
    return [*late_ticks_excuse_for_a_full_period(), *((module, "excused", full_period) for module in modules)]


# -- markers of long ago


def forgotten_ends_are_refused() -> Patches:
    """A commit marker of a producer whose end was forgotten is refused for good."""
    return [
        (ForgottenEnds, "look_for", lambda self, producer_ids: None),
        (ForgottenEnds, "end_of", lambda self, producer_id, **named: None),
    ]


# -- epochs of others


def _plausible(own_epoch: int, epoch: int) -> bool:
    return 0 <= epoch <= min(own_epoch + LEAP_EPOCHS, MAX_EPOCH)


def every_plausible_epoch_is_adopted() -> Patches:
    """Whatever a request or an answer says of epochs and leaders is believed, where it may be of this cluster."""

    def stand_above(self: Elections, epoch: int, now_ms: float) -> None:
        if self._member.log.settled:
            self._transitions.stand_in(epoch + 1, {}, now_ms)

    def grants(self: Elections, request: peer_pb2.VoteRequest, now_ms: float) -> bool:
        transitions, leader = self._transitions, self._transitions.leader
        its_epoch = voting.candidates_epoch(request)
        if not voting.is_addressed(self._member, request) or not _plausible(self._epoch, its_epoch):
            return False
        if leader is not None and its_epoch > self._epoch and leader.voters.hears_majority(now_ms):
            stand_above(self, its_epoch, now_ms)
            return False
        up_to_date = voting.is_up_to_date(self._member, request)
        if request.pre_vote:
            return up_to_date and request.epoch > self._epoch and not transitions.hears_leader(now_ms)
        if leader is None and transitions.hears_leader(now_ms) and request.candidate_id != self._leader_id:
            return False
        if request.epoch < self._epoch:
            return False
        free = self._is_free(request)
        if free and up_to_date:
            transitions.vote_for(request.epoch, request.candidate_id, request.candidate_directory_id, now_ms)
        elif request.epoch > self._epoch:
            transitions.adopt(request.epoch, now_ms)
        return free and up_to_date

    def learn(self: Elections, voter_id: int, epoch: int, leader_id: int, now_ms: float) -> bool:
        transitions, leader = self._transitions, self._transitions.leader
        if isinstance(transitions.state, Observer):
            transitions.state.turn_to(leader_id, now_ms)
            return False
        if not self._epoch <= epoch or not _plausible(self._epoch, epoch):
            return False
        if epoch > self._epoch and leader is not None and leader.voters.hears_majority(now_ms):
            stand_above(self, epoch, now_ms)
            return True
        known = leader_id in self._member.voter_ids and leader_id != self._member.node_id
        if epoch > self._epoch and not known:
            transitions.adopt(epoch, now_ms)
        elif known and (epoch > self._epoch or self._leader_id == NO_LEADER):
            transitions.follow(epoch, leader_id, now_ms)
        else:
            return False
        return True

    def begin(self: Elections, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float) -> MinilogError | None:
        if not _plausible(self._epoch, request.epoch):
            return InvalidArgument(f"broker {request.leader_id} cannot lead in epoch {request.epoch}")
        if isinstance(self._transitions.state, Observer):
            self._transitions.state.turn_to(request.leader_id, now_ms)
            return None
        self._transitions.follow(request.epoch, request.leader_id, now_ms)
        self._transitions.heard(now_ms)
        return None

    return [(Elections, "_grants", grants), (Elections, "learn", learn), (Elections, "_begin", begin)]
