"""The shell around the quorum node: its disk, its sessions and calls, and this broker's image of what is committed.

    node effects ──► metadata log and votes (metadata_log)     committed ──► MetadataReplay ──► image ──► hooks
                 ──► session to the leader (quorum_link), sessions of others here
                 ──► votes, epochs, snapshots (quorum_peers, snapshot_transfer)

After each event the controller hears first whether this node still leads: deposed, it decides and answers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from minilog.errors import CorruptMessage, MinilogError, UnsupportedVersion, wire_error
from minilog.net.payload_stream import PayloadStream
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, peer_pb2, records_pb2
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.controller.replay import MetadataReplay
from minilog_broker.levels import ClusterLevel
from minilog_broker.quorum import quorum_effects as quorum
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import NO_LEADER, QuorumEffect
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.voters import Voter, VoterKey, VoterSet
from minilog_broker.replication import replica_effects
from minilog_broker.replication.rules.own_delay import own_delay_ms
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.clients.peer_channels import Peer, PeerChannels
from minilog_broker.server.clients.quorum_peers import QuorumPeers
from minilog_broker.server.clients.registration import own_peer_address
from minilog_broker.server.clients.snapshot_transfer import newest_snapshot, pieces, receive_snapshot
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.disk_stall import DiskAnswer, DiskStall
from minilog_broker.server.disk.metadata_log import MetadataLogDisk
from minilog_broker.server.disk.reader_threads import METADATA_READERS, DiskRead
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.observer import UNOBSERVED
from minilog_broker.server.runtime.timer import CoreTimer, now_ms
from minilog_broker.server.shells.quorum_link import QuorumLink
from minilog_broker.server.shells.session_reads import SessionReads
from minilog_broker.server.shells.session_streams import CoreSessions
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.run_reads import read_run, read_run_now
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.snapshot_id import SnapshotId

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class QuorumListeners:
    """Who hears of the quorum: `activated` and `deposed` of this node's office, `committed` of the end of the log while
    it is active, `leader_changed` of any change, `image_changed` of what was applied to the image."""

    activated: Callable[[int], None]
    deposed: Callable[[int], None]
    committed: Callable[[int], None]
    leader_changed: Callable[[], None]
    image_changed: Callable[[ImageChanges], None]


class QuorumShell:
    """The I/O around a broker's quorum node.

    `image` is this broker's replay of the committed log. Only the shell changes it.
    """

    def __init__(
        self,
        options: BrokerOptions,
        files: FileSystem,
        directory: DataDirectory,
        reserve: Reserve,
        client: common_pb2.ClientIdentity,
        settings: ReplicationSettings,
        failed: Callable[[BaseException], None],
        listeners: QuorumListeners,
        runtime: BrokerRuntime,
        channels: PeerChannels,
    ) -> None:
        self._now_us = runtime.wall_us  # for the record batches only
        self.image = MetadataImage()
        self.level = ClusterLevel(options.levels)
        self._directory, self._reserve = directory, reserve
        self._listeners = listeners
        self.broker_id = options.broker_id
        self._shortest_timeout_ms = settings.shortest_timeout_ms
        self._fetch_timeout_ms = float(options.config.quorum_fetch_timeout_ms)
        self._failed = failed
        config = options.config
        disk = runtime.disk("metadata-disk", failed)
        self._log = MetadataLogDisk(files, directory, reserve, disk, failed)
        self._readers = runtime.readers("metadata-reader", METADATA_READERS, failed)
        # Answers to heartbeats wait for our own replay, which does not queue behind what followers read.
        self._replay_readers = runtime.readers("metadata-replay-reader", METADATA_READERS, failed)
        self._stall = DiskStall(disk, settings.replica_lag_time_max_ms, now_ms)
        self._snapshots = SnapshotFiles(files, self._log.path)
        self._node = QuorumNode(
            options.broker_id,
            bytes.fromhex(directory.directory_id),
            directory.cluster_id,
            own_peer_address(options),
            [peer_pb2.VoterAddress(broker_id=voter.id, host=voter.host, port=voter.port) for voter in options.voters],
            self._log.vote,
            self._log.log,
            settings,
            QuorumSettings(config.quorum_election_timeout_ms, config.quorum_fetch_timeout_ms),
            newest_snapshot(self._snapshots),
            runtime.chance(),
            options.levels,
            self.image.address_of_voter,
        )
        self._replay = MetadataReplay(
            self._node, self.image, snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots
        )
        self._peers = QuorumPeers(self._node.addresses, config.quorum_fetch_timeout_ms, channels)
        self._link = QuorumLink(
            client,
            lambda: self._event(lambda: self._node.fetcher_stream_opened(now_ms())),
            lambda: self._event(lambda: self._node.fetcher_stream_closed(now_ms())),
            self._peers.failed,
            lambda message: self._event(lambda: self._node.leader_message(message, now_ms())),
            self._next_request,
            channels,
        )
        self._sessions = CoreSessions()
        self._reads = SessionReads(self._node, lambda read: self._log.log, self._readers, self._event, UNOBSERVED)
        self._timer = CoreTimer(self._node.next_tick_ms, self._tick)
        self._progress = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._fetched: tuple[SnapshotId, bytes] | None = None  # a snapshot on its way from our disk to the image
        self._written_voters: tuple[Voter, ...] = ()  # to the data directory, for those who start brokers
        self._running = False
        self._is_reading = False  # what is committed, to be replayed
        self._active_epoch: int | None = None
        self._known_leader_id = self._former_leader_id = NO_LEADER

    # -- what the rest of the server asks

    @property
    def leader_id(self) -> int:
        """Who leads the quorum, and so is the controller; -1 where it is not known."""
        return self._node.leader_id

    @property
    def epoch(self) -> int:
        return self._node.epoch

    def leader(self) -> Peer | None:
        """The controller, and where it listens; None where it is not known."""
        return self._peers.peer(self._node.leader_id)

    def lost_leader(self) -> tuple[int, float] | None:
        """The leader before this one, and for how many milliseconds the voters had not heard it when they elected."""
        if self._former_leader_id in (NO_LEADER, self.broker_id):
            return None
        return self._former_leader_id, self._fetch_timeout_ms

    def copy_end(self, key: VoterKey) -> int | None:
        """The durable end of another broker's metadata log; None: it does not fetch from us."""
        return self._node.copy_end(key)

    def hears_majority_of(self, voters: VoterSet) -> bool:
        """Whether a majority of these is heard of late, where they vote or not."""
        return self._node.hears_majority_of(voters, now_ms())

    def append_records(self, records: Sequence[records_pb2.MetadataRecord]) -> int:
        return self._node.append_records(records, self._now_us())

    async def replayed(self, end_offset: int) -> None:
        """Return when the image has reached `end_offset`."""
        while self.image.end_offset < end_offset:
            self._progress.clear()
            await self._progress.wait()

    # -- life

    def start(self) -> None:
        try:
            self._node.start(now_ms())
            self._timer.start()
            self._run()
        except CorruptMessage as error:  # rot in a part that a clean stop vouched for
            raise self._log.damaged(str(error)) from error

    def leave(self) -> None:
        """This process ends: stand for election no more."""
        self._event(lambda: self._node.leave(now_ms()))

    async def stop(self) -> bool:
        """Close the log; whether that was clean."""
        self._timer.stop()
        self._link.close()
        for task in list(self._tasks):
            task.cancel()
        await self._peers.close()
        await asyncio.gather(self._readers.stop(), self._replay_readers.stop())
        return await self._log.stop()

    # -- events and effects

    def run(self) -> None:
        """Carry out what the node asks for, then replay what is committed."""
        if self._running:
            return
        try:
            self._run()
        except Exception as error:  # what was to be done is lost, also where a call's own task takes the error
            self._failed(self._log.damaged(str(error)) if isinstance(error, CorruptMessage) else error)
            raise

    def _run(self) -> None:
        self._running = True
        try:
            self._look_at_leadership()
            while todo := self._node.take_effects():
                for effect in todo:
                    self._carry_out(effect)
        finally:
            self._running = False
        self._apply_committed()
        self._timer.arm()

    def _event(self, event: Callable[[], object]) -> None:
        try:
            event()
            self.run()
        except (CorruptMessage, OSError) as error:  # of a read that was waited for
            self._failed(self._log.damaged(str(error)))
        except MinilogError as error:  # we do not belong to this cluster: the process ends with that sentence
            self._failed(error)

    def _tick(self) -> None:
        self._look_whether_late()
        self._event(lambda: self._node.tick(now_ms()))
        if self.look_at_disk() is DiskAnswer.STALLED:
            self._event(lambda: self._node.disk_stalled(now_ms()))

    def look_at_disk(self) -> DiskAnswer:
        """Of the metadata log."""
        return self._stall.look()

    def reconfigured(self, config: BrokerConfig) -> None:
        """Take a new configuration of the running broker."""
        self._stall.reconfigured(config.replica_lag_time_max_ms)
        self._replay.snapshot_bytes = config.metadata_log_max_record_bytes_between_snapshots

    def _look_whether_late(self) -> None:
        """This process stood still: it blames nobody for its own length of that, and others may have blamed it."""
        late_ms = own_delay_ms(self._node.next_tick_ms(), now_ms(), self._shortest_timeout_ms)
        if late_ms > 0:
            logger.warning("the event loop was late", late_ms=round(late_ms))

    def _look_at_leadership(self) -> None:
        """Before anything else: a controller that was deposed decides and answers nothing more."""
        still = self._node.epoch if self._node.is_active else None
        if self._active_epoch is not None and still != self._active_epoch:
            self._active_epoch = None
            self._listeners.deposed(self._node.leader_id)
        if self._node.leader_id != self._known_leader_id:
            if self._known_leader_id != NO_LEADER:
                self._former_leader_id = self._known_leader_id
            self._known_leader_id = self._node.leader_id
            logger.info("the quorum's leader", leader=self._known_leader_id, epoch=self._node.epoch)
            self._listeners.leader_changed()

    def _carry_out(self, effect: QuorumEffect) -> None:
        match effect:
            case replica_effects.AppendToLog(batches=batches):
                self._log.append(
                    batches,
                    lambda end: self._event(lambda: self._node.log_appended(end, now_ms())),
                    lambda end: self._event(lambda: self._node.log_flushed(end, now_ms())),
                )
            case replica_effects.SessionReady(session_id=session_id):
                self._sessions.wake(session_id)
            case replica_effects.ReadRun():
                self._reads.read(effect)
            case replica_effects.CheckCopy(offset=offset, max_bytes=max_bytes):
                self._check_copy(offset, max_bytes)
            case replica_effects.FetcherStreamReady():
                self._link.wake()
            case replica_effects.OpenFetcherStream(leader_id=leader_id):
                self._link.open(self._peers.peer(leader_id))
            case replica_effects.CloseFetcherStream():
                self._link.close()
            case quorum.MetadataSessionRefused(session_id=session_id, error=error):
                self._sessions.refuse(session_id, error, effect.response)
            case quorum.SendVote(voter_id=voter_id, request=vote):
                self._spawn(self._ask_for_vote(voter_id, vote))
            case quorum.AnswerVote(ticket=asyncio.Future() as ticket, response=response):
                if not ticket.done():
                    ticket.set_result(response)
            case quorum.SendBeginQuorumEpoch(voter_id=voter_id, request=begin):
                self._spawn(self._begin_epoch(voter_id, begin))
            case quorum.FetchSnapshot():
                self._spawn(self._fetch_snapshot(effect))
            case replica_effects.LaterVersionMet(error=error):
                self._failed(error)
            case quorum.LoadSnapshot(snapshot_id=snapshot_id):
                self._load(snapshot_id)
            case _:
                self._carry_out_on_disk(effect)

    def _carry_out_on_disk(self, effect: QuorumEffect) -> None:
        log, node = self._log.log, self._node

        def truncated(_: object) -> None:
            self._event(lambda: node.log_truncated(now_ms()))

        def persisted() -> None:
            self._event(lambda: node.vote_persisted(now_ms(), self._now_us()))

        if isinstance(effect, replica_effects.TruncateLog | replica_effects.StartLogAt) and effect.committed_lost:
            logger.error(
                "committed decisions are gone: the quorum's leader lacks them, for a majority of voters came back with "
                "disks older than they were. Set those aside, replace the voters, and start this broker again",
                decisions=effect.committed_lost,
            )
        match effect:
            case quorum.PersistVote():
                self._log.persist_vote(effect, persisted)
            case replica_effects.RecordEpochStart(leader_epoch=epoch, start_offset=start):
                self._log.submit(lambda: log.assign_epoch(epoch, start), _nothing)
            case replica_effects.TruncateLog(end_offset=end_offset):
                self._log.submit(lambda: log.truncate_to(end_offset), truncated)
            case replica_effects.StartLogAt(offset=offset):
                self._log.submit(lambda: log.truncate_fully_and_start_at(offset), truncated)
            case quorum.DeleteBeforeSnapshot(offset=offset):
                self._log.submit(lambda: log.advance_log_start(offset), _nothing)
                self._log.submit(lambda: self._snapshots.remove_before(SnapshotId(offset, 0)), _nothing)
            case _:
                raise AssertionError(f"the quorum's shell does not know {effect}")

    def _check_copy(self, offset: int, max_bytes: int) -> None:
        log = self._log.log

        def checked(error: Exception | None) -> None:
            self._event(lambda: self._node.copy_checked(offset, error))

        self._readers.submit(DiskRead(lambda: check_copy(log, *METADATA_KEY, offset, max_bytes), checked, checked))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of this shell's; an error in it that nobody expected ends the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    # -- replay

    def _apply_committed(self) -> None:
        """Replay what is committed; about a mebibyte at a time, and the event loop has its turn between. What is not in
        memory is read by a thread, one run at a time."""
        if self._is_reading or (read := self._node.next_committed()) is None:
            return
        if (run := read_run_now(self._log.log, read)) is not None:
            self._apply(read, run)
            return
        self._is_reading = True
        log = self._log.log
        self._replay_readers.submit(
            DiskRead(lambda: read_run(log, read), lambda run: self._committed_read(read, run), self._unreadable)
        )

    def _committed_read(self, read: quorum.CommittedRead, run: bytes) -> None:
        self._is_reading = False
        self._event(lambda: self._apply(read, run))

    def _unreadable(self, error: OSError | MinilogError) -> None:
        self._failed(error if isinstance(error, UnsupportedVersion) else self._log.damaged(str(error)))

    def _apply(self, read: quorum.CommittedRead, run: Buffer) -> None:
        if not self._replay.replay(read, run):
            return
        self._image_changed()
        if self._node.is_active and self._active_epoch is None:
            self._active_epoch = self._node.epoch
            self._listeners.activated(self._node.epoch)
        elif self._active_epoch is not None:
            self._listeners.committed(self.image.end_offset)
        if (due := self._replay.snapshot_due()) is not None:
            self._write_snapshot(*due)
        if self._node.replayed_end_offset < self._node.committed_end_offset:
            asyncio.get_running_loop().call_soon(self._event, _nothing)

    def _image_changed(self) -> None:
        if self.image.level != self.level.current:
            self._reserve.write_metadata(lambda: self._directory.set_level(self.image.level))
            self.level.reach(self.image.level)
            logger.info("the cluster's level", level=self.image.level)
        if self.image.voters is not self._written_voters:
            self._written_voters = self.image.voters
            voter_ids = [voter.broker_id for voter in self.image.voters]
            self._reserve.write_metadata(lambda: self._directory.set_voters(voter_ids))
        self._progress.set()
        self._listeners.image_changed(self.image.take_changes())

    # -- snapshots

    def _load(self, snapshot_id: SnapshotId) -> None:
        """The image is the snapshot's from now on. What was fetched is in memory; at a start its file is read, before
        anybody is served."""
        fetched, self._fetched = self._fetched, None
        if fetched is not None and fetched[0] == snapshot_id:
            content = fetched[1]
        else:
            content = self._snapshots.read(snapshot_id)
        self._replay.load(snapshot_id, content)
        self._image_changed()

    def _write_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        self._log.submit(
            lambda: self._snapshots.write(snapshot_id, content),
            lambda _: self._event(lambda: self._node.snapshot_taken(snapshot_id, now_ms())),
        )

    async def _fetch_snapshot(self, effect: quorum.FetchSnapshot) -> None:
        request = peer_pb2.FetchSnapshotRequest(
            cluster_id=self.image.cluster_id or "",
            broker_id=self.broker_id,
            epoch=self._node.epoch,
            snapshot_id=peer_pb2.SnapshotId(end_offset=effect.snapshot_id.end_offset, epoch=effect.snapshot_id.epoch),
        )
        try:
            content = await receive_snapshot(
                self._snapshots, effect.snapshot_id, self._peers.fetch_snapshot(effect.leader_id, request)
            )
        except UnsupportedVersion as error:  # another try would tell the same
            self._failed(error)
        except (MinilogError, ValueError) as error:
            logger.warning("a snapshot could not be fetched", leader=effect.leader_id, error=str(error))
            self._event(lambda: self._node.snapshot_unfetched(now_ms()))
        else:
            self._fetched = effect.snapshot_id, content
            self._event(lambda: self._node.snapshot_fetched(effect.snapshot_id, now_ms()))
            self._fetched = None

    async def send_snapshot(
        self, request: peer_pb2.FetchSnapshotRequest
    ) -> AsyncIterator[peer_pb2.FetchSnapshotResponse]:
        """A snapshot's file in pieces; one with the error where it is refused."""
        try:
            snapshot_id = self._node.snapshot_request(request)
            async for piece in pieces(self._snapshots, snapshot_id):
                yield piece
        except MinilogError as error:
            yield peer_pb2.FetchSnapshotResponse(error=wire_error(error))

    # -- votes and epochs

    async def _ask_for_vote(self, voter_id: int, request: peer_pb2.VoteRequest) -> None:
        answer = await self._peers.vote(voter_id, request)
        if answer is None:
            self._event(lambda: self._node.vote_unanswered(voter_id, request, now_ms()))
        else:
            self._event(lambda: self._node.vote_answered(voter_id, request, answer, now_ms(), self._now_us()))

    async def _begin_epoch(self, voter_id: int, request: peer_pb2.BeginQuorumEpochRequest) -> None:
        answer = await self._peers.begin_quorum_epoch(voter_id, request)
        self._event(lambda: self._node.begin_epoch_answered(voter_id, answer, now_ms()))

    async def vote(self, request: peer_pb2.VoteRequest) -> peer_pb2.VoteResponse:
        """A candidate asks; the answer is durable."""
        self._look_whether_late()
        ticket: asyncio.Future[peer_pb2.VoteResponse] = asyncio.get_running_loop().create_future()
        self._event(lambda: self._node.vote_request(ticket, request, now_ms()))
        return await ticket

    def begin_quorum_epoch(self, request: peer_pb2.BeginQuorumEpochRequest) -> peer_pb2.BeginQuorumEpochResponse:
        """A leader says that it leads."""
        response = self._node.begin_quorum_epoch(request, now_ms())
        self._event(_nothing)
        return response

    # -- our session to the leader, and those of others here

    def _next_request(self) -> peer_pb2.ReplicateRequest | None:
        request = self._node.next_request(now_ms())
        self._event(_nothing)
        return request

    async def serve(
        self,
        first: peer_pb2.ReplicateRequest,
        rest: AsyncIterator[StreamMessage[peer_pb2.ReplicateRequest]],
        stream: PayloadStream,
    ) -> None:
        """A Replicate stream of the metadata log."""

        def receive(session_id: int, request: peer_pb2.ReplicateRequest) -> None:
            self._event(lambda: self._node.replicate_request(session_id, request, now_ms()))

        def next_message(session_id: int) -> StreamMessage[peer_pb2.ReplicateResponse] | None:
            try:
                self._reads.make_up(session_id)
                message = self._node.next_message(session_id, now_ms())
            except (CorruptMessage, OSError) as error:
                self._failed(self._log.damaged(str(error)))
                return None
            except UnsupportedVersion as error:
                self._failed(error)
                return None
            self._event(_nothing)
            return message

        session_id = self._sessions.open()
        try:
            self._event(lambda: self._node.open_session(session_id, first, now_ms()))
            await self._sessions.serve(session_id, first, rest, stream, receive, next_message)
        finally:
            self._sessions.close(session_id)
            self._event(lambda: self._node.close_session(session_id))


def _nothing(_: object = None) -> None:
    """Nothing is to be told."""
