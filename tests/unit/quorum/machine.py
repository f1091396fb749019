"""One machine of the world: a disk with a real log, vote file and snapshots, and, while it runs, a node."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from minilog.errors import CorruptMessage
from minilog.record_batch.header import iterate_headers
from minilog.stream_messages import REPLICATE, StreamMessage
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.replay import MetadataReplay
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.quorum import quorum_effects
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.voters import Voter
from minilog_broker.replication import replica_effects
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.clients.snapshot_transfer import newest_snapshot
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.log import Log
from minilog_broker.storage.run_reads import read_run
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.world.disk import MemoryDisk
from tests.world.stored import content_of

FETCH_TIMEOUT_MS = 1_000.0  # what is left to machines that are busy is not needed here

if TYPE_CHECKING:
    from tests.unit.quorum.cluster import QuorumCluster

DIRECTORY = "/data/__cluster_metadata-0"
VOTE_FILE = "/data/vote"
SETTINGS = LogSettings(segment_bytes=900)  # a few batches: what a segment forgets to sync shows


PORT = 9092


def first_host(node_id: int) -> str:
    return f"host{node_id}"


@dataclass(frozen=True)
class Ticket:
    """A vote request that waits for its answer."""

    answer: Callable[[bytes], None]
    real: bool  # not a pre-vote
    candidate: int = -1


class QuorumMachine:
    """See the module's text. `directory_id` changes when it loses its disk."""

    def __init__(self, node_id: int, cluster: QuorumCluster) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.disks = 0
        self.life = 0
        self.cluster_id: str | None = None
        self.voters = cluster.voters
        self.host = first_host(node_id)
        self.levels = SUPPORTED_LEVELS
        self.node: QuorumNode | None = None
        self.failure: BaseException | None = None
        self.votes_written: list[quorum_effects.VoteState] = []
        self.answers: list[tuple[int, peer_pb2.VoteResponse]] = []
        self.paused_until_ms = 0.0
        self.awake_since_ms = 0.0
        self.new_disk()

    # -- its life

    def new_disk(self) -> None:
        """An empty one, with a directory id of its own."""
        self.disks += 1
        self.directory_id = bytes([self.node_id, self.disks, self.cluster.seed % 256, 0]) * 4
        self.files = MemoryDisk(random.Random(self.cluster.random.random()))
        self.files.make_dir("/data")
        self.files.fsync_dir("/")
        self.votes_written = []
        self.cluster_id = None

    def read_vote(self, *, durable: bool = False) -> quorum_effects.VoteState:
        """`durable`: as a loss of power would leave it."""
        stored = read_durable_file(self.files, VOTE_FILE)
        if durable:
            stored = content_of(self.files.durable_content(VOTE_FILE))
        return (
            quorum_effects.VoteState() if stored is None else msgspec.json.decode(stored, type=quorum_effects.VoteState)
        )

    def start(self) -> None:
        assert self.node is None
        self.life += 1
        self.failure = None
        self.paused_until_ms = 0.0
        self.log = Log.open(
            self.files, DIRECTORY, METADATA_KEY, CLUSTER_METADATA_TOPIC_NAME, SETTINGS, unclean=True, create=True
        )
        self.snapshots = SnapshotFiles(self.files, DIRECTORY)
        self.image = MetadataImage()
        self.commands: deque[Callable[[], None]] = deque()
        self._working = False
        self._tick_ms = float("inf")
        self.node = QuorumNode(
            node_id=self.node_id,
            directory_id=self.directory_id,
            cluster_id=self.cluster_id,
            address=(self.host, PORT),
            voters=[self.cluster.given_address(each) for each in self.voters],
            vote=self.read_vote(),
            log=self.log,
            settings=ReplicationSettings(session_keepalive_ms=100.0),
            quorum_settings=QuorumSettings(fetch_timeout_ms=FETCH_TIMEOUT_MS),
            snapshot=newest_snapshot(self.snapshots),
            rng=random.Random(self.cluster.random.random()),
            levels=self.levels,
            registered=self.image.address_of_voter,
        )
        self.replay = MetadataReplay(self.node, self.image, snapshot_bytes=self.cluster.snapshot_bytes)
        self.event(lambda node: node.start(self.cluster.now_ms))

    def stop(self, *, power_loss: bool = False) -> None:
        self.node = None
        self.life += 1
        self.files.lose_power() if power_loss else self.files.end_process()

    def voter(self) -> Voter:
        """This machine as the log would record it now."""
        return Voter(self.node_id, self.directory_id, self.host, PORT)

    def find(self, broker_id: int) -> QuorumMachine | None:
        """The machine at one of the addresses that the node knows of a broker; None: there is none at any."""
        assert self.node is not None
        machine = self.cluster.machine(broker_id)
        return machine if any(host == machine.host for host, _ in self.node.addresses(broker_id)) else None

    def later(self, delay_ms: float, what: Callable[[], None], life: int) -> None:
        """In this life, and when it is awake."""

        def due() -> None:
            if self.life == life:
                self.when_awake(what)

        self.cluster.at(self.cluster.now_ms + delay_ms, due)

    def when_awake(self, what: Callable[[], None]) -> None:
        if self.cluster.now_ms >= self.paused_until_ms:
            what()
        else:
            self.later(self.paused_until_ms - self.cluster.now_ms, what, self.life)

    def pause(self, for_ms: float) -> None:
        """It stands still: all that comes meanwhile waits."""
        self.paused_until_ms = self.awake_since_ms = max(self.paused_until_ms, self.cluster.now_ms + for_ms)

    def has(self, end_offset: int, epoch: int) -> bool:
        """Whether the record before `end_offset`, of `epoch`, would be there after a loss of power; running or not."""
        names = [path.removeprefix(f"{DIRECTORY}/") for path in self.files.names if path.startswith(f"{DIRECTORY}/")]
        if any(name.endswith(".snapshot") and int(name[:20]) >= end_offset for name in names):
            return True
        bases = sorted(int(name[:20]) for name in names if name.endswith(".log") and int(name[:20]) < end_offset)
        inode = self.files.names[f"{DIRECTORY}/{bases[-1]:020d}.log"] if bases else None
        if inode is None:
            return False
        with contextlib.suppress(CorruptMessage):  # a torn tail
            for _, header in iterate_headers(inode.durable):
                if header.next_offset == end_offset:
                    return header.partition_leader_epoch == epoch
        return False

    # -- the node

    def event(self, event: Callable[[QuorumNode], object]) -> None:
        """Something happens to the node; then its effects are carried out, and what is committed replayed."""
        node = self.node
        if node is None:
            return
        try:
            event(node)
            self._carry_out(node)
            while (asked := node.next_committed()) and self.replay.replay(asked, read_run(self.log, asked)):
                self.cluster.watch(self)
        except Exception as error:
            if isinstance(error, AssertionError):
                raise
            self.failure = error
            self.cluster.stop(self.node_id)
            return
        self._carry_out(node)
        if self.image.cluster_id is not None:
            self.cluster_id = self.image.cluster_id
        if (due := self.replay.snapshot_due()) is not None:
            self.submit(
                lambda: self.snapshots.write(*due), lambda node: node.snapshot_taken(due[0], self.cluster.now_ms)
            )
        self._pump()
        self._arm()
        self.cluster.watch(self)

    def append(self, *records: records_pb2.MetadataRecord) -> int:
        """As the controller does; the end offset."""
        ends: list[int] = []
        self.event(lambda node: ends.append(node.append_records(records, 0)))
        if self.failure is not None:
            raise self.failure
        return ends[0]

    def _arm(self) -> None:
        assert self.node is not None
        due_ms = self.node.next_tick_ms()
        if due_ms < self._tick_ms:
            self._tick_ms = due_ms
            self.later(max(0.0, due_ms - self.cluster.now_ms), lambda: self._tick(due_ms), self.life)

    def _tick(self, due_ms: float) -> None:
        if self._tick_ms == due_ms:
            self._tick_ms = float("inf")
            self.event(lambda node: node.tick(self.cluster.now_ms))

    def _pump(self) -> None:
        """Streams: what is to be said goes on its way."""
        cluster, node = self.cluster, self.node
        assert node is not None
        own = cluster.streams.get(self.node_id)
        if own is not None and own.is_open:
            while (request := node.next_request(cluster.now_ms)) is not None:
                own.first_sent = True
                cluster.carry(
                    own, self, cluster.machine(own.target), b"".join(REPLICATE.request.parts(StreamMessage(request)))
                )
        for stream in list(cluster.streams.values()):
            if stream.target == self.node_id:
                while (message := self.next_message(node, stream.session_id)) is not None:
                    cluster.carry(
                        stream, self, cluster.machine(stream.opener), b"".join(REPLICATE.response.parts(message))
                    )
        self._carry_out(node)

    def next_message(self, node: QuorumNode, session_id: int) -> StreamMessage[peer_pb2.ReplicateResponse] | None:
        """What a session here says next: the log is in memory."""
        while (asked := node.next_read(session_id, self.cluster.now_ms)) is not None:
            node.run_read(asked, read_run(self.log, asked), self.cluster.now_ms)
        return node.next_message(session_id, self.cluster.now_ms)

    # -- effects

    def _carry_out(self, node: QuorumNode) -> None:
        while todo := node.take_effects():
            for effect in todo:
                self._carry_out_one(effect)

    def _carry_out_one(self, effect: quorum_effects.QuorumEffect) -> None:
        match effect:
            case quorum_effects.PersistVote(epoch=epoch, voted_for=voted_for, voted_directory=voted_directory):
                vote = quorum_effects.VoteState(epoch, voted_for, voted_directory)
                self.submit(lambda: self.write_vote(vote), self._vote_persisted)
            case quorum_effects.RecordEpochStart(leader_epoch=epoch, start_offset=start):
                self.submit(lambda: self.log.assign_epoch(epoch, start))
            case quorum_effects.AppendToLog(batches=batches):
                end = batches.end_offset
                self.submit(lambda: self.log.append(batches), lambda node: node.log_appended(end, self.cluster.now_ms))
                self.submit(self.log.flush, self._flushed)
            case quorum_effects.TruncateLog(end_offset=end_offset):
                self.submit(lambda: self.log.truncate_to(end_offset), self._truncated)
            case quorum_effects.StartLogAt(offset=offset):
                self.submit(lambda: self.log.truncate_fully_and_start_at(offset), self._truncated)
            case quorum_effects.DeleteBeforeSnapshot(offset=offset):
                self.submit(lambda: self._advance(offset))
            case quorum_effects.LoadSnapshot(snapshot_id=snapshot_id):
                self.replay.load(snapshot_id, self.snapshots.read(snapshot_id))
            case replica_effects.CheckCopy(offset=offset, max_bytes=max_bytes):
                error = check_copy(self.log, *METADATA_KEY, offset, max_bytes)
                self.later(0.0, lambda: self.event(lambda node: node.copy_checked(offset, error)), self.life)
            case quorum_effects.SendVote() | quorum_effects.SendBeginQuorumEpoch() | quorum_effects.FetchSnapshot():
                self._send(effect)
            case quorum_effects.AnswerVote(ticket=ticket, response=response):
                assert isinstance(ticket, Ticket)
                if ticket.real:
                    self.answers.append((ticket.candidate, response))
                ticket.answer(response.SerializeToString())
            case quorum_effects.MetadataSessionRefused(session_id=session_id):
                for stream in self.cluster.streams.values():
                    if stream.session_id == session_id:
                        opener = self.cluster.machine(stream.opener)
                        self.cluster.carry(
                            stream, self, opener, b"".join(REPLICATE.response.parts(StreamMessage(effect.response)))
                        )
            case quorum_effects.OpenFetcherStream(leader_id=leader_id):
                self.cluster.open_stream(self, leader_id, self.find(leader_id))
            case quorum_effects.CloseFetcherStream():
                self.cluster.close_stream(self)
            case _:
                pass

    def _vote_persisted(self, node: QuorumNode) -> None:
        node.vote_persisted(self.cluster.now_ms, 0)

    def _flushed(self, node: QuorumNode) -> None:
        node.log_flushed(self.log.durable_end_offset, self.cluster.now_ms)

    def _truncated(self, node: QuorumNode) -> None:
        node.log_truncated(self.cluster.now_ms)

    def write_vote(self, vote: quorum_effects.VoteState) -> None:
        write_durable_file(self.files, VOTE_FILE, msgspec.json.encode(vote))
        self.votes_written.append(vote)

    def _advance(self, offset: int) -> None:
        self.log.advance_log_start(offset)
        self.snapshots.remove_before(self.snapshots.list()[0])

    # -- the disk: one command after another, each takes a while

    def submit(self, work: Callable[[], object], done: Callable[[QuorumNode], object] = lambda node: None) -> None:
        def command() -> None:
            work()
            self.event(done)

        self.commands.append(command)
        self._work()

    def _work(self) -> None:
        if self._working or not self.commands:
            return
        self._working = True

        def do() -> None:
            self._working = False
            self.commands.popleft()()
            if self.node is not None:
                self._work()

        self.later(self.cluster.random.uniform(*self.cluster.weather.disk_ms), do, self.life)

    # -- requests

    def _send(
        self, effect: quorum_effects.SendVote | quorum_effects.SendBeginQuorumEpoch | quorum_effects.FetchSnapshot
    ) -> None:
        cluster = self.cluster
        if isinstance(effect, quorum_effects.FetchSnapshot):
            self._fetch_snapshot(effect)
            return
        content, voter_id, request = effect.request.SerializeToString(), effect.voter_id, effect.request
        if isinstance(request, peer_pb2.VoteRequest):
            vote = request

            def answered(answer: bytes | None) -> None:
                if answer is None:
                    self.event(lambda node: node.vote_unanswered(voter_id, vote, cluster.now_ms))
                    return
                response = peer_pb2.VoteResponse.FromString(answer)
                self.event(lambda node: node.vote_answered(voter_id, vote, response, cluster.now_ms, 0))

            def ask(at: QuorumMachine, answer: Callable[[bytes], None]) -> None:
                asked = peer_pb2.VoteRequest.FromString(content)
                ticket = Ticket(answer, not asked.pre_vote, asked.candidate_id)
                at.event(lambda node: node.vote_request(ticket, asked, cluster.now_ms))

            cluster.request(self, self.find(voter_id), ask, answered)
            return

        def begin(at: QuorumMachine, answer: Callable[[bytes], None]) -> None:
            begun = peer_pb2.BeginQuorumEpochRequest.FromString(content)
            at.event(lambda node: answer(node.begin_quorum_epoch(begun, cluster.now_ms).SerializeToString()))

        def begun(answer: bytes | None) -> None:
            response = None if answer is None else peer_pb2.BeginQuorumEpochResponse.FromString(answer)
            self.event(lambda node: node.begin_epoch_answered(voter_id, response, cluster.now_ms))

        cluster.request(self, self.find(voter_id), begin, begun)

    def _fetch_snapshot(self, effect: quorum_effects.FetchSnapshot) -> None:
        snapshot_id, cluster = effect.snapshot_id, self.cluster
        request = peer_pb2.FetchSnapshotRequest(
            cluster_id=self.cluster_id or "", broker_id=self.node_id, epoch=self.node.epoch if self.node else 0
        )
        request.snapshot_id.end_offset, request.snapshot_id.epoch = snapshot_id

        def ask(at: QuorumMachine, answer: Callable[[bytes], None]) -> None:
            def send(node: QuorumNode) -> None:
                try:
                    answer(b"+" + at.snapshots.read(node.snapshot_request(request)))
                except Exception as error:
                    answer(b"-" + str(error).encode())

            at.event(send)

        def answered(answer: bytes | None) -> None:
            if answer is None or answer[:1] == b"-":
                self.event(lambda node: node.snapshot_unfetched(cluster.now_ms))
                return
            self.submit(lambda: self._store(snapshot_id, answer[1:]), lambda node: self._fetched(node, snapshot_id))

        cluster.request(self, self.find(effect.leader_id), ask, answered)

    def _store(self, snapshot_id: SnapshotId, content: bytes) -> None:
        receiver = self.snapshots.receive(snapshot_id)
        receiver.write(0, content)
        receiver.finish()

    def _fetched(self, node: QuorumNode, snapshot_id: SnapshotId) -> None:
        node.snapshot_fetched(snapshot_id, self.cluster.now_ms)
