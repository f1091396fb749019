"""The shell of the quorum node in a life: as server/shells/quorum_shell.py. The metadata log has a disk thread of its
own.

An error of the metadata log or of the vote's file ends the process. Votes and new epochs are unary calls, which may be
lost, doubled and late; sessions are streams.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minilog.errors import StorageError
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.replay import MetadataReplay, newest_snapshot
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.quorum import quorum_effects as quorum_effects
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import PersistVote, VoteState
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.replication import replica_effects
from minilog_broker.server.disk.disk_thread import DiskCommand
from minilog_broker.server.disk.metadata_log import CHECKPOINT_DELAY_S
from minilog_broker.server.disk.vote_file import open_vote, write_vote
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.snapshot_files import SnapshotFiles, SnapshotId
from tests.simulation.clients import node_address
from tests.simulation.disk_thread import DiskThread
from tests.simulation.process import CoreTimer
from tests.simulation.pump import Pump
from tests.simulation.stream import Stream
from tests.simulation.voting import Voting

if TYPE_CHECKING:
    from tests.simulation.life import Life

METADATA_LOG_SETTINGS = LogSettings(flush_on_append=True, retention_ms=-1, retention_bytes=-1)


class QuorumPart:
    """See the module's text. `image` is this life's replay of the committed log, changed here only."""

    voting: Voting

    def __init__(self, life: Life, directory: DataDirectory, disk: DiskThread, rng: random.Random) -> None:
        self.image = MetadataImage()
        self.sessions: dict[int, Any] = {}
        self._life = life
        self._files = life.node.files
        self._directory = directory
        self.log = self._open_log(directory)
        self.disk = disk
        self.snapshots = SnapshotFiles(self._files, self.log.directory)
        self.node = self._new_node(directory, rng)
        self.replay = MetadataReplay(self.node, self.image, self.snapshots, snapshot_bytes=life.plan.snapshot_bytes)
        self.voting = Voting(life, self)
        self._stream: Stream | None = None
        self._pump: Pump | None = None
        self._running = self._checkpoint_due = False
        self._active_epoch: int | None = None
        self._known_leader = -1
        self.timer = CoreTimer(life.process, self.node.next_tick_ms, self._tick)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            replica_effects.AppendToLog: self._append,
            replica_effects.RecordEpochStart: self._record_epoch_start,
            replica_effects.TruncateLog: self._truncate,
            replica_effects.StartLogAt: self._start_at,
            PersistVote: self._persist_vote,
            replica_effects.SessionReady: self._session_ready,
            quorum_effects.MetadataSessionRefused: self._session_refused,
            replica_effects.OpenLeaderSession: self._open_link,
            replica_effects.CloseLeaderSession: lambda _: self._close_link(),
            replica_effects.LeaderSessionReady: self._leader_session_ready,
            quorum_effects.LoadSnapshot: self._load_snapshot,
            quorum_effects.DeleteBeforeSnapshot: self._advance_log_start,
            **self.voting.handlers(),
        }

    def _open_log(self, directory: DataDirectory) -> Log:
        log = Log.open(
            self._files,
            directory.partition_path(CLUSTER_METADATA_TOPIC_NAME, 0),
            METADATA_KEY,
            CLUSTER_METADATA_TOPIC_NAME,
            METADATA_LOG_SETTINGS,
            unclean=directory.clean_stop_epoch is None,
            create=True,
            boot_id=directory.boot_id,
        )
        if log.recovery.damaged:
            raise StorageError(f"the metadata log {log.directory} is damaged: {log.recovery.reason}")
        if log.has_torn_tail:
            log.forget_torn_tail()
        return log

    def _new_node(self, directory: DataDirectory, rng: random.Random) -> QuorumNode:
        plan = self._life.plan
        voters = [node_address(voter_id) for voter_id in self._life.voter_ids]
        return QuorumNode(
            self._life.node.node_id,
            bytes.fromhex(directory.directory_id),
            directory.cluster_id,
            voters,
            open_vote(self._files, directory, self.log),
            self.log,
            self._life.settings,
            QuorumSettings(plan.election_timeout_ms, plan.fetch_timeout_ms),
            newest_snapshot(self.snapshots),
            rng,
            SUPPORTED_LEVELS,
        )

    # -- what the rest of the life asks

    @property
    def controller_id(self) -> int:
        """Who leads the quorum, as far as it is known here; -1 unknown."""
        return self.node.leader_id

    def append_records(self, records: Sequence[records_pb2.MetadataRecord]) -> int:
        return self.node.append_records(records, self._life.node.now_us)

    def start(self) -> None:
        self.node.start(self._life.now_ms)
        self.timer.start()
        self.run()

    # -- effects

    def run(self) -> None:
        """Carry out what the node asks for, then replay what is committed."""
        if self._running:
            return
        self._running = True
        life, handlers = self._life, self._handlers
        life.touched.quorum[life.node.node_id] = None
        self._look_who_leads()
        try:
            while todo := self.node.take_effects():
                for effect in todo:
                    if life.effects_left is not None:
                        life.count_effect()
                    handlers[type(effect)](effect)
        finally:
            self._running = False
        self._replay()
        self.timer.arm()

    def _look_who_leads(self) -> None:
        """Deposed: the controller is told before anything else happens."""
        node = self.node
        still = node.epoch if node.is_active else None
        if self._active_epoch is not None and still != self._active_epoch:
            self._active_epoch = None
            self._life.controlling.deposed(node.leader_id)
        if node.leader_id != self._known_leader:
            self._known_leader = node.leader_id
            self._life.note(f"quorum leader is {node.leader_id} of epoch {node.epoch}")
            self._life.controller_moved()

    def _append(self, effect: replica_effects.AppendToLog) -> None:
        batches, node, life = effect.batches, self.node, self._life

        def appended(_: object) -> None:
            node.log_appended(batches.end_offset, life.now_ms)
            self.run()

        def flushed(end_offset: int) -> None:
            if not self._checkpoint_due:
                self._checkpoint_due = True
                life.process.after(CHECKPOINT_DELAY_S * 1000.0, self._write_checkpoint)
            node.log_flushed(end_offset, life.now_ms)
            self.run()

        def work() -> None:
            life.touched.quorum[life.node.node_id] = None
            life.reserve.write_metadata(lambda: self.log.append(batches))

        self.disk.submit(
            DiskCommand(
                work=work,
                on_done=appended,
                on_failed=self._failed,
                log=self.log,
                flush=self.log,
                on_flushed=flushed,
            )
        )

    def _write_checkpoint(self, _: object) -> None:
        self._checkpoint_due = False
        self.submit(self.log.write_checkpoint, _nothing)

    def submit(self, work: Callable[[], object], done: Callable[[], None]) -> None:
        """Let the metadata disk do `work`, then tell; an OSError ends the process."""
        life = self._life

        def touching() -> object:
            life.touched.quorum[life.node.node_id] = None
            return life.reserve.write_metadata(work)

        def told(_: object) -> None:
            done()
            self.run()

        self.disk.submit(DiskCommand(touching, told, self._failed, self.log))

    def _failed(self, error: OSError) -> None:
        raise error

    def _record_epoch_start(self, effect: replica_effects.RecordEpochStart) -> None:
        self.submit(lambda: self.log.assign_epoch(effect.leader_epoch, effect.start_offset), _nothing)

    def _truncate(self, effect: replica_effects.TruncateLog) -> None:
        self.submit(lambda: self.log.truncate_to(effect.end_offset), self._truncated)

    def _start_at(self, effect: replica_effects.StartLogAt) -> None:
        self.submit(lambda: self.log.truncate_fully_and_start_at(effect.offset), self._truncated)

    def _truncated(self) -> None:
        self.node.log_truncated(self._life.now_ms)

    def _persist_vote(self, effect: PersistVote) -> None:
        life = self._life
        vote = VoteState(effect.epoch, effect.voted_for, effect.voted_directory)
        self.submit(
            lambda: write_vote(self._files, self._directory, vote),
            lambda: self.node.vote_persisted(life.now_ms, life.node.now_us),
        )

    def _tick(self) -> None:
        self.node.tick(self._life.now_ms)
        self.run()

    # -- replay

    def _replay(self) -> None:
        image, life = self.image, self._life
        before = image.end_offset
        while self.replay.replay():
            pass
        if image.end_offset == before:
            return
        self._image_moved()
        if self.node.is_active and self._active_epoch is None:
            self._active_epoch = self.node.epoch
            life.controlling.activated(self.node.epoch)
        elif self._active_epoch is not None:
            life.controlling.committed(image.end_offset)

    def _image_moved(self) -> None:
        life = self._life
        life.touched.images[life.node.node_id] = None
        life.image_moved(self.image.take_changes())
        due = self.replay.snapshot_due()
        if due is not None:
            snapshot_id, content = due
            life.cluster.count("snapshot taken")
            self.submit(
                lambda: self.snapshots.write(snapshot_id, content),
                lambda: self.node.snapshot_taken(snapshot_id, life.now_ms),
            )

    def _load_snapshot(self, effect: quorum_effects.LoadSnapshot) -> None:
        self._life.cluster.count("snapshot loaded")
        self.replay.load(effect.snapshot_id)
        self._image_moved()

    def _advance_log_start(self, effect: quorum_effects.DeleteBeforeSnapshot) -> None:
        newest = SnapshotId(effect.offset, 0)

        def work() -> None:
            self.log.advance_log_start(effect.offset)
            self.snapshots.remove_before(newest)

        self.submit(work, _nothing)

    # -- our session to the leader

    def _open_link(self, effect: replica_effects.OpenLeaderSession) -> None:
        self._close_link()
        life = self._life
        self._stream = stream = life.network.open_stream(life.process, effect.leader_id, "Replicate")
        end = stream.client
        self._pump = pump = Pump(life.process, end, self._next_request)

        def opened(_: object) -> None:
            self.node.leader_session_opened(life.now_ms)
            self.run()
            pump.wake()

        end.on_open = opened
        end.on_message = self._leader_message
        end.on_closed = lambda _: self._link_lost(stream)

    def _close_link(self) -> None:
        if self._stream is not None:
            self._stream.client.close()
            self._stream = None

    def _link_lost(self, stream: Stream) -> None:
        if self._stream is stream:
            self._stream = None
            self.node.leader_session_closed(self._life.now_ms)
            self.run()

    def _leader_session_ready(self, _: replica_effects.LeaderSessionReady) -> None:
        if self._stream is not None and self._stream.open and self._pump is not None:
            self._pump.wake()

    def _leader_message(self, message: StreamMessage[peer_pb2.ReplicateResponse]) -> None:
        life = self._life
        if self._stream is not None:
            life.touched.heard[(self._stream.target_id, life.node.node_id)] = None
        self.node.leader_message(message, life.now_ms)
        self.run()

    def _next_request(self) -> peer_pb2.ReplicateRequest | None:
        request = self.node.next_request(self._life.now_ms)
        self.run()
        return request

    # -- sessions of others here

    def open_session(self, session_id: int, first: peer_pb2.ReplicateRequest) -> None:
        self.node.open_session(session_id, first, self._life.now_ms)
        self.run()

    def replicate_request(self, session_id: int, request: peer_pb2.ReplicateRequest) -> None:
        self.node.replicate_request(session_id, request, self._life.now_ms)
        self.run()

    def next_message(self, session_id: int) -> StreamMessage[peer_pb2.ReplicateResponse] | None:
        message = self.node.next_message(session_id, self._life.now_ms)
        self.run()
        return message

    def close_session(self, session_id: int) -> None:
        if self.sessions.pop(session_id, None) is not None:
            self.node.close_session(session_id)
            self.run()

    def _session_ready(self, effect: replica_effects.SessionReady) -> None:
        if (session := self.sessions.get(effect.session_id)) is not None:
            session.pump.wake()

    def _session_refused(self, effect: quorum_effects.MetadataSessionRefused) -> None:
        if (session := self.sessions.get(effect.session_id)) is not None:
            session.refused = effect
            session.pump.wake()


def _nothing() -> None:
    pass
