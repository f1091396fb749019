"""Quorum nodes over real logs on disks that can lose power, joined by a wire in memory, on virtual time.

The disk works when `World.settle` runs, or when a test lets it: appends first, then their sync.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.quorum.effects import PersistVote, QuorumEffect, SessionRefused, VoteState
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.replication import effects
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from tests.unit.storage.crashable_files import CrashableFiles

DIRECTORY = "/data/__cluster_metadata-0"
TIMESTAMP_US = 1_700_000_000_000_000
VOTER = peer_pb2.VoterAddress(broker_id=1, host="one", port=9092)


def directory_id(node_id: int) -> bytes:
    return bytes([node_id]) * 16


def topic_record(name: str) -> records_pb2.MetadataRecord:
    return records_pb2.MetadataRecord(topic=records_pb2.TopicRecord(name=name, topic_id=name.encode().rjust(16, b"x")))


@dataclass
class Machine:
    """A disk and, while it runs, a node."""

    node_id: int
    files: CrashableFiles
    vote: VoteState = field(default_factory=VoteState)
    cluster_id: str | None = None
    node: QuorumNode | None = None
    log: Log | None = None
    image: MetadataImage = field(default_factory=MetadataImage)
    commands: deque[QuorumEffect] = field(default_factory=deque)
    votes_written: list[VoteState] = field(default_factory=list)


class World:
    """See the module's text."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self.machines: dict[int, Machine] = {}
        self.streams: dict[int, int] = {}  # session id at the leader, by follower
        self.refused: list[SessionRefused] = []
        self._next_session = 0

    def machine(self, node_id: int) -> Machine:
        if node_id not in self.machines:
            self.machines[node_id] = Machine(node_id, CrashableFiles(random.Random(node_id)))
        return self.machines[node_id]

    def start(self, node_id: int, *, directory: bytes | None = None, voters: tuple[int, ...] = (1,)) -> QuorumNode:
        machine = self.machine(node_id)
        log = Log.open(
            machine.files,
            DIRECTORY,
            METADATA_KEY,
            CLUSTER_METADATA_TOPIC_NAME,
            LogSettings(),
            unclean=True,
            create=True,
        )
        addresses = [peer_pb2.VoterAddress(broker_id=each, host=f"host{each}", port=9092) for each in voters]
        node = QuorumNode(
            node_id=node_id,
            directory_id=directory_id(node_id) if directory is None else directory,
            cluster_id=machine.cluster_id,
            voters=addresses,
            vote=machine.vote,
            log=log,
            settings=ReplicationSettings(),
            quorum_settings=QuorumSettings(),
            snapshot=None,
            rng=self.random,
        )
        machine.log, machine.image = log, MetadataImage()
        machine.commands.clear()
        node.start(self.now_ms)
        machine.node = node
        return node

    def stop(self, node_id: int, *, power_loss: bool = False) -> None:
        machine = self.machine(node_id)
        machine.node = None
        machine.commands.clear()
        for follower in [node_id, *self.streams] if node_id == VOTER.broker_id else [node_id]:
            self.break_stream(follower)
        machine.files.crash() if power_loss else machine.files.stop_process()

    def node(self, node_id: int) -> QuorumNode:
        node = self.machine(node_id).node
        assert node is not None
        return node

    # -- the disk

    def write(self, node_id: int) -> None:
        """Carry out what the disk was asked for; nothing is synced."""
        machine, node = self.machine(node_id), self.node(node_id)
        self.collect(node_id)
        while machine.commands:
            self._command(machine, node, machine.commands.popleft())
            self.collect(node_id)

    def _command(self, machine: Machine, node: QuorumNode, command: QuorumEffect) -> None:
        assert machine.log is not None
        match command:
            case PersistVote(epoch=epoch, voted_for=voted_for):
                machine.vote = VoteState(epoch, voted_for)
                machine.votes_written.append(machine.vote)
                node.vote_persisted(self.now_ms, TIMESTAMP_US)
            case effects.RecordEpochStart(leader_epoch=epoch, start_offset=start):
                machine.log.assign_epoch(epoch, start)
            case effects.AppendToLog(batches=batches):
                machine.log.append(batches)
                node.log_appended(batches.end_offset, self.now_ms)
            case effects.TruncateLog(end_offset=end_offset):
                machine.log.truncate_to(end_offset)
                node.log_truncated(self.now_ms)
            case effects.StartLogAt(offset=offset):
                machine.log.truncate_fully_and_start_at(offset)
                node.log_truncated(self.now_ms)

    def flush(self, node_id: int) -> None:
        log = self.machine(node_id).log
        assert log is not None
        log.flush()
        self.node(node_id).log_flushed(log.durable_end_offset, self.now_ms)
        self.replay(node_id)

    def replay(self, node_id: int) -> None:
        machine, node = self.machine(node_id), self.node(node_id)
        while decisions := node.take_committed():
            for decision in decisions:
                machine.image.apply_batch(decision.base_offset, decision.end_offset, decision.records)

    # -- the wire

    def collect(self, node_id: int) -> None:
        """Take the node's effects: the disk's are queued, the wire's carried out."""
        machine, node = self.machine(node_id), self.node(node_id)
        for effect in node.take_effects():
            match effect:
                case effects.OpenLeaderSession():
                    self._open_stream(node_id)
                case effects.CloseLeaderSession():
                    self.break_stream(node_id)
                case SessionRefused():
                    self.refused.append(effect)
                case effects.SessionReady() | effects.LeaderSessionReady():
                    pass  # `exchange` asks all of them
                case _:
                    machine.commands.append(effect)

    def _open_stream(self, node_id: int) -> None:
        leader = self.machine(VOTER.broker_id).node
        if leader is None or not leader.is_leader:
            self.node(node_id).leader_session_closed(self.now_ms)
            return
        self._next_session += 1
        self.streams[node_id] = self._next_session
        leader.open_session(
            self._next_session, peer_pb2.ReplicateRequest(broker_id=node_id, broker_epoch=-1), self.now_ms
        )
        self.node(node_id).leader_session_opened(self.now_ms)

    def break_stream(self, node_id: int) -> None:
        session_id = self.streams.pop(node_id, None)
        leader, follower = self.machine(VOTER.broker_id).node, self.machine(node_id).node
        if session_id is not None and leader is not None:
            leader.close_session(session_id)
        if session_id is not None and follower is not None:
            follower.leader_session_closed(self.now_ms)

    def exchange(self, node_id: int) -> bool:
        """Carry what is to be said on one stream, both ways; whether anything was."""
        session_id = self.streams.get(node_id)
        leader = self.machine(VOTER.broker_id).node
        if session_id is None or leader is None:
            return False
        said = False
        if (request := self.node(node_id).next_request(self.now_ms)) is not None:
            leader.replicate_request(
                session_id, peer_pb2.ReplicateRequest.FromString(request.SerializeToString()), self.now_ms
            )
            said = True
        if (response := leader.next_message(session_id, self.now_ms)) is not None:
            self.node(node_id).leader_message(
                peer_pb2.ReplicateResponse.FromString(response.SerializeToString()), self.now_ms
            )
            said = True
        return said

    def settle(self, *, for_ms: float = 300.0) -> None:
        """Let everybody work for a while of virtual time."""
        until_ms = self.now_ms + for_ms
        while self.now_ms < until_ms:
            for node_id, machine in self.machines.items():
                if machine.node is None:
                    continue
                machine.node.tick(self.now_ms)
                self.write(node_id)
                self.flush(node_id)
                while self.exchange(node_id):
                    self.write(node_id)
                    self.flush(node_id)
            self.now_ms += 10.0
