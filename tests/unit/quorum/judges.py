"""The invariants of the metadata quorum, looked at after every event: V11, V12, V13, V20, V21."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision
from minilog_broker.quorum.follower import Follower
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CommittedBatch, decode_run
from minilog_broker.quorum.voters import Voter
from tests.judges.quorum import Leaders, Votes
from tests.judges.violation import Violation
from tests.unit.quorum.cluster import QuorumCluster
from tests.unit.quorum.machine import FETCH_TIMEOUT_MS, QuorumMachine

SLACK_MS = 250.0  # timers, messages on their way, a slow disk
SETTLED_MS = 300.0  # a leader that a majority has heard without a gap for so long


@dataclass
class Led:
    """A leader as the judges know it."""

    machine: QuorumMachine
    life: int
    epoch: int
    heard_ms: float  # when a majority was last connected to it
    settled_ms: float | None = None  # since when a majority hears it without a gap


class Judges:
    """Watches a world. `committed` is the one log: what anyone has ever held for committed, by base offset."""

    def __init__(self, cluster: QuorumCluster) -> None:
        self.cluster = cluster
        self.committed: list[CommittedBatch] = []
        self.image = MetadataImage()  # of all that is committed
        self.leaders_seen = 0
        self.most_epochs = 0
        self._leaders, self._votes = Leaders(), Votes()
        self._on_disk: dict[tuple[int, int], int] = {}  # (node id, disk) -> the epoch of the last vote
        self._read: dict[tuple[int, int], int] = {}  # (node id, life) -> the end of what was compared
        self._led: dict[int, Led] = {}  # by epoch, those that lead now
        cluster.watch = self.look

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
        key, node = (machine.node_id, machine.disks), machine.node
        assert node is not None
        for vote in machine.votes_written:
            self._votes.epoch(machine.node_id, key, vote.epoch)
            self._votes.vote(machine.node_id, key, vote.epoch, vote.voted_for)
            self._on_disk[key] = vote.epoch
        machine.votes_written.clear()
        for response in machine.answers:
            on_disk = self._on_disk.get(key, 0)
            if response.granted and response.epoch > on_disk:
                raise Violation("V11", f"{machine.node_id} granted a vote in {response.epoch}, its disk has {on_disk}")
        machine.answers.clear()

    def _look_at_leader(self, machine: QuorumMachine) -> None:
        node = machine.node
        assert node is not None
        if not node.is_leader:
            return
        self._leaders.leads(machine.node_id, machine.life, node.epoch)
        if node.epoch not in self._led:
            self._beside_another(machine)
            self.leaders_seen += 1
            self._led[node.epoch] = Led(machine, machine.life, node.epoch, self.cluster.now_ms)

    # -- V12, V13

    def _look_at_committed(self, machine: QuorumMachine) -> None:
        node = machine.node
        assert node is not None
        known = self._read.get((machine.node_id, machine.life), machine.log.log_start_offset)
        end = node.committed_end_offset
        known = max(known, machine.log.log_start_offset)
        if end <= known or end > machine.log.log_end_offset:
            return
        for batch in decode_all(machine, known, end):
            self._compare(machine, batch)
        self._read[machine.node_id, machine.life] = end

    def _compare(self, machine: QuorumMachine, batch: CommittedBatch) -> None:
        for position in range(len(self.committed) - 1, -1, -1):
            known = self.committed[position]
            if known.base_offset == batch.base_offset:
                if known != batch:
                    raise Violation("V12", f"{machine.node_id} has committed {batch}, {known} was committed before")
                return
            if known.base_offset < batch.base_offset:
                break
        end = self.committed[-1].end_offset if self.committed else 0
        if batch.base_offset != end:
            raise Violation("V12", f"{machine.node_id} has committed {batch.base_offset}, the end of all is {end}")
        self._first_committed(machine, batch)
        self.committed.append(batch)
        apply_decision(self.image, batch.base_offset, batch.end_offset, batch.records)

    def _first_committed(self, machine: QuorumMachine, batch: CommittedBatch) -> None:
        node = machine.node
        assert node is not None
        leader = node._transitions.leader
        if leader is None and not self._has_just_removed_itself(machine):
            raise Violation("V12", f"{machine.node_id} held {batch} for committed before any leader")
        for voters in self._voters_of(node):
            recorded = {voter.broker_id: voter.directory_id for voter in voters}
            if leader is not None and not self._on_majority(recorded, leader.epoch_start_offset + 1, node.epoch):
                raise Violation("V12", f"{batch.end_offset} was committed by counting in epoch {node.epoch}")
            if not self._on_majority(recorded, batch.end_offset, batch.epoch):
                raise Violation("V12", f"{batch} is committed, and not on a majority of {sorted(recorded)}")

    def _has_just_removed_itself(self, machine: QuorumMachine) -> bool:
        """It led until this event, and its removal is committed."""
        led = any(led.machine is machine and led.life == machine.life for led in self._led.values())
        return led and machine.voter().key not in {voter.key for voter in self.image.voters}

    def _on_majority(self, voters: dict[int, bytes], end_offset: int, epoch: int) -> bool:
        machines = [self.cluster.machine(voter_id) for voter_id in voters]
        have = [each for each in machines if each.directory_id == voters[each.node_id] and each.has(end_offset, epoch)]
        return 2 * len(have) > len(voters)

    def _look_at_image(self, machine: QuorumMachine) -> None:
        end = machine.image.end_offset
        if end == self.image.end_offset and machine.image != self.image:
            raise Violation("V13", f"the image of {machine.node_id} at {end} is not what was committed")
        if end > self.image.end_offset:
            raise Violation("V13", f"{machine.node_id} has replayed {end}, {self.image.end_offset} is committed")

    # -- V20, V21

    def _majority_hears(self, led: Led) -> bool:
        cluster, leader = self.cluster, led.machine
        node = leader.node
        if node is None or leader.life != led.life or cluster.now_ms < leader.paused_until_ms:
            return False
        return all(self._majority_of(voters, led) for voters in self._voters_of(node))

    def _voters_of(self, node: QuorumNode) -> Iterator[Sequence[Voter]]:
        """Those of its log, and those that are committed, where more than one came or went between."""
        yield node.voters
        if self.image.voters and len({v.key for v in node.voters} ^ {v.key for v in self.image.voters}) > 1:
            yield self.image.voters

    def _majority_of(self, of: Sequence[Voter], led: Led) -> bool:
        cluster, leader = self.cluster, led.machine
        voters = {voter.broker_id: voter.directory_id for voter in of}
        count = 0
        for voter_id, directory_id in voters.items():
            machine = cluster.machine(voter_id)
            if machine is leader:
                count += machine.directory_id == directory_id
            elif machine.node is not None and machine.directory_id == directory_id:
                state, awake = machine.node._transitions.state, cluster.now_ms >= machine.paused_until_ms
                connected = not {(voter_id, leader.node_id), (leader.node_id, voter_id)} & cluster.cut
                if isinstance(state, Follower) and state.leader_id == leader.node_id and awake and connected:
                    counts = machine.node.epoch == led.epoch and not state.only_listens
                    count += counts and state.hears_leader(cluster.now_ms)
        return 2 * count > len(voters)

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
        if self._majority_hears(led):
            led.heard_ms = now_ms
            if led.settled_ms is None:
                led.settled_ms = now_ms
        else:
            led.settled_ms = None
        # Where they do not hear it and it hears them, they go after their time-out, and it notices after its own.
        awake_ms = max(led.heard_ms, machine.awake_since_ms)
        if now_ms > awake_ms + 2 * FETCH_TIMEOUT_MS + SLACK_MS and now_ms >= machine.paused_until_ms:
            raise Violation("V21", f"{machine.node_id} leads, and no majority hears it since {led.heard_ms}")

    def _leads_no_more(self, led: Led) -> None:
        """By its own will, or because nobody heard it."""
        node, now_ms = led.machine.node, self.cluster.now_ms
        settled = led.settled_ms is not None and now_ms - led.settled_ms > SETTLED_MS
        if node is None or led.machine.life != led.life or not settled:
            return
        removed = led.machine.voter().key not in {voter.key for voter in self.image.voters}
        # A candidate makes way for itself, in a later epoch.
        if node.role is not Role.CANDIDATE and not (removed and node.role is Role.OBSERVER):
            raise Violation("V20", f"{led.machine.node_id} led epoch {led.epoch}, was heard, and is {node.role} now")

    def _beside_another(self, machine: QuorumMachine) -> None:
        """Somebody leads a later epoch while another one is heard."""
        for led in self._led.values():
            settled = led.settled_ms is not None and self.cluster.now_ms - led.settled_ms > SETTLED_MS
            if settled and led.machine is not machine and self._majority_hears(led):
                raise Violation("V20", f"{machine.node_id} leads, {led.machine.node_id} was heard by a majority")


def decode_all(machine: QuorumMachine, offset: int, end_offset: int) -> list[CommittedBatch]:
    found: list[CommittedBatch] = []
    while offset < end_offset:
        found += decode_run(machine.log.read(offset, 1 << 20, end_offset))
        offset = found[-1].end_offset
    return found
