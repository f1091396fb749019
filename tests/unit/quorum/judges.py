"""What a quorum of cores shows the judges (tests/judges) after every event: V11, V12, V13, V20, V21."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision
from minilog_broker.controller.snapshot import encode_snapshot
from minilog_broker.quorum.follower import Follower
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CommittedBatch, decode_run
from minilog_broker.quorum.voters import Voter
from tests.judges.images import Images
from tests.judges.quorum import (
    NOBODY,
    Holders,
    Leaders,
    OneLog,
    Stored,
    Votes,
    check_entered,
    check_heard,
    check_held,
    check_not_deposed,
)
from tests.judges.violation import hold
from tests.unit.quorum.cluster import QuorumCluster
from tests.unit.quorum.machine import FETCH_TIMEOUT_MS, QuorumMachine

SLACK_MS = 250.0  # timers, messages on their way, a slow disk
SETTLED_MS = 300.0  # a leader that a majority has heard without a gap for so long
NOBODY_HEARS = Holders((), ())


@dataclass
class Led:
    """A leader as the judges know it."""

    machine: QuorumMachine
    life: int
    epoch: int
    heard_ms: float  # when a majority was last connected to it
    settled_ms: float | None = None  # since when a majority hears it without a gap
    hears: Holders = NOBODY_HEARS  # when it was looked at last


class Judges:
    """Watches a world. `committed` is the one log: what anyone has ever held for committed, by base offset."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self.cluster = cluster
        self._log = OneLog[CommittedBatch](lambda batch: batch.end_offset)
        self.image = MetadataImage()  # of all that is committed
        self.leaders_seen = 0
        self.most_epochs = 0
        self._leaders, self._votes, self._images = Leaders(), Votes(), Images()
        self._seen: dict[int, int] = {}  # node id -> the end of the image that was looked at
        self._read: dict[tuple[int, int], int] = {}  # (node id, life) -> the end of what was compared
        self._led: dict[int, Led] = {}  # by epoch, those that lead now
        cluster.watch = self.look

    @property
    def committed(self) -> list[CommittedBatch]:
        return self._log.entries

    def look(self, machine: QuorumMachine) -> None:
        node = machine.node
        if node is None:
            return
        self._look_at_votes(machine)
        self._look_at_leader(machine)
        self._look_at_committed(machine)
        self._look_at_image(machine)
        self._look_at_hearing()

    # -- V11

    def _look_at_votes(self, machine: QuorumMachine) -> None:
        key = machine.node_id, machine.disks
        for vote in machine.votes_written:
            self._votes.epoch(machine.node_id, key, vote.epoch)
            self._votes.vote(machine.node_id, key, vote.epoch, vote.voted_for)
        machine.votes_written.clear()
        for candidate, response in machine.answers:
            granted_to = candidate if response.granted else NOBODY
            self._votes.answered(machine.node_id, key, response.epoch, self._stored(machine), granted_to=granted_to)
        machine.answers.clear()

    def _stored(self, machine: QuorumMachine) -> Stored:
        vote, epochs = machine.read_vote(durable=True), machine.log.epochs.entries
        return Stored(vote.epoch, vote.voted_for, epochs[-1][0] if epochs else 0)

    def _look_at_leader(self, machine: QuorumMachine) -> None:
        node = machine.node
        assert node is not None
        if not node.is_leader:
            return
        stored_epoch = node.epoch if node.epoch in self._leaders.of else self._stored(machine).epoch
        self._leaders.leads(machine.node_id, machine.life, node.epoch, stored_epoch)
        if node.epoch not in self._led:
            self._beside_another(machine)
            self.leaders_seen += 1
            self._led[node.epoch] = Led(machine, machine.life, node.epoch, self.cluster.now_ms)

    # -- V12, V13

    def _look_at_committed(self, machine: QuorumMachine) -> None:
        node = machine.node
        assert node is not None
        known = self._read.get((machine.node_id, machine.life), 0)
        known, end = max(known, machine.log.log_start_offset), node.committed_end_offset
        if end <= known or end > machine.log.log_end_offset:
            return
        own, common = decode_all(machine, known, end), self._log.end
        lacks = next((each.base_offset for each in own if each.base_offset < common and not self._knows(each)), None)
        behind = [each for each in own if each.base_offset >= common]
        for batch in self._log.told(machine.node_id, end, lacks, behind):
            self._first_committed(machine, batch)
            self._images.committed(batch)
            apply_decision(self.image, batch.base_offset, batch.end_offset, batch.records)
        self._read[machine.node_id, machine.life] = end

    def _knows(self, batch: CommittedBatch) -> bool:
        at = bisect_left(self.committed, batch.base_offset, key=lambda known: known.base_offset)
        return self.committed[at] == batch

    def _first_committed(self, machine: QuorumMachine, batch: CommittedBatch) -> None:
        node = machine.node
        assert node is not None
        leader = node._transitions.leader
        is_led = leader is not None or self._has_just_removed_itself(machine)
        hold(is_led, "V12", f"b{machine.node_id} held {batch} for committed before any leader")
        for voters in self._voters_of(node):
            if leader is not None:
                entered = self._holders(voters, leader.epoch_start_offset + 1, node.epoch)
                check_entered(machine.node_id, batch.end_offset, node.epoch, entered.are_majority)
            check_held(batch.end_offset, [self._holders(voters, batch.end_offset, batch.epoch)])

    def _has_just_removed_itself(self, machine: QuorumMachine) -> bool:
        """It led until this event, and its removal is committed."""
        led = any(led.machine is machine and led.life == machine.life for led in self._led.values())
        return led and machine.voter().key not in {voter.key for voter in self.image.voters}

    def _holders(self, voters: Sequence[Voter], end_offset: int, epoch: int) -> Holders:
        recorded = {self.cluster.machine(voter.broker_id): voter.directory_id for voter in voters}
        holding = [m.node_id for m, disk in recorded.items() if m.directory_id == disk and m.has(end_offset, epoch)]
        return Holders([machine.node_id for machine in recorded], holding)

    def _look_at_image(self, machine: QuorumMachine) -> None:
        end = machine.image.end_offset
        if self._seen.get(machine.node_id) != end:
            self._seen[machine.node_id] = end
            self._images.shown(machine.node_id, end, encode_snapshot(machine.image, 0))

    # -- V20, V21

    def _hears(self, led: Led) -> Holders:
        """Who hears it, of the set of voters that hears it least."""
        cluster, leader = self.cluster, led.machine
        node = leader.node
        if node is None or leader.life != led.life or cluster.now_ms < leader.paused_until_ms:
            return NOBODY_HEARS
        sets = [self._hearing(voters, led) for voters in self._voters_of(node)]
        return min(sets, key=lambda each: each.are_majority)

    def _voters_of(self, node: QuorumNode) -> Iterator[Sequence[Voter]]:
        """Those of its log, and those that are committed, where more than one came or went between."""
        yield node.voters
        if self.image.voters and len({v.key for v in node.voters} ^ {v.key for v in self.image.voters}) > 1:
            yield self.image.voters

    def _hearing(self, of: Sequence[Voter], led: Led) -> Holders:
        cluster, leader = self.cluster, led.machine
        voters = {voter.broker_id: voter.directory_id for voter in of}
        hearing: list[int] = []
        for voter_id, directory_id in voters.items():
            machine = cluster.machine(voter_id)
            if machine is leader:
                hearing += [voter_id] * (machine.directory_id == directory_id)
            elif machine.node is not None and machine.directory_id == directory_id:
                state, awake = machine.node._transitions.state, cluster.now_ms >= machine.paused_until_ms
                connected = not {(voter_id, leader.node_id), (leader.node_id, voter_id)} & cluster.cut
                if isinstance(state, Follower) and state.leader_id == leader.node_id and awake and connected:
                    counts = machine.node.epoch == led.epoch and not state.only_listens
                    hearing += [voter_id] * (counts and state.hears_leader(cluster.now_ms))
        return Holders(voters, hearing)

    def _look_at_hearing(self) -> None:
        for epoch, led in list(self._led.items()):
            node = led.machine.node
            if node is not None and led.machine.life == led.life and node.is_leader and node.epoch == epoch:
                self._still_leads(led)
            else:
                del self._led[epoch]
                self._leads_no_more(led)

    def _still_leads(self, led: Led) -> None:
        now_ms, machine = self.cluster.now_ms, led.machine
        led.hears = self._hears(led)
        if led.hears.are_majority:
            led.heard_ms = now_ms
            if led.settled_ms is None:
                led.settled_ms = now_ms
        else:
            led.settled_ms = None
        # Where they do not hear it and it hears them, they go after their time-out, and it notices after its own.
        awake_ms = max(led.heard_ms, machine.awake_since_ms)
        if now_ms >= machine.paused_until_ms:
            check_heard(machine.node_id, led.epoch, now_ms - awake_ms, 2 * FETCH_TIMEOUT_MS + SLACK_MS)

    def _leads_no_more(self, led: Led) -> None:
        """By its own will, or because nobody heard it."""
        node = led.machine.node
        if node is None or led.machine.life != led.life or not self._is_settled(led):
            return
        removed = led.machine.voter().key not in {voter.key for voter in self.image.voters}
        # A candidate makes way for itself, in a later epoch.
        if node.role is not Role.CANDIDATE and not (removed and node.role is Role.OBSERVER):
            check_not_deposed(led.machine.node_id, led.epoch, led.hears, f"it is {node.role} now")

    def _beside_another(self, machine: QuorumMachine) -> None:
        """Somebody leads a later epoch while another one is heard."""
        for led in self._led.values():
            if self._is_settled(led) and led.machine is not machine:
                check_not_deposed(led.machine.node_id, led.epoch, self._hears(led), f"b{machine.node_id} leads")

    def _is_settled(self, led: Led) -> bool:
        return led.settled_ms is not None and self.cluster.now_ms - led.settled_ms > SETTLED_MS


def decode_all(machine: QuorumMachine, offset: int, end_offset: int) -> list[CommittedBatch]:
    found: list[CommittedBatch] = []
    while offset < end_offset:
        found += decode_run(machine.log.read(offset, 1 << 20, end_offset))
        offset = found[-1].end_offset
    return found
