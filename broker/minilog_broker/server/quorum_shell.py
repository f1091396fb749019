"""The shell around the quorum node: the metadata log with its own disk thread, its sessions, this broker's image.

    node effects ──► metadata disk thread, vote file, sessions       committed_end_offset ──► replay ──► image ──► hooks

An error of the metadata log or of the vote file ends the process (REPLICATION.md, eligible leaders): what this broker
has promised to the quorum can no longer be told.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import msgspec
import structlog

from minilog.errors import MinilogError, StorageError
from minilog.v1 import common_pb2, peer_pb2, records_pb2
from minilog_broker.controller.image import ImageChanges, MetadataImage
from minilog_broker.quorum.effects import PersistVote, QuorumEffect, SessionRefused, VoteState
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.replication import effects
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.channels import STREAM_ERRORS, reason
from minilog_broker.server.config import BrokerOptions
from minilog_broker.server.disk import DiskCommand, DiskThread
from minilog_broker.server.leader_links import RECONNECT_PAUSE_S, converse
from minilog_broker.server.sessions import Sessions
from minilog_broker.server.timer import CoreTimer, now_ms
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings

logger = structlog.get_logger()

VOTE_FILE = "quorum-vote"
# Always fsync, kept for good: the image is its replay.
METADATA_LOG_SETTINGS = LogSettings(flush_on_append=True, retention_ms=-1, retention_bytes=-1)


class QuorumShell:
    """See the module's text. `image` is this broker's replay of the committed log, changed here only.

    Hooks: on_activated(epoch), on_deposed(controller id), on_committed(end offset), on_changed(what changed).
    """

    def __init__(
        self,
        options: BrokerOptions,
        files: FileSystem,
        directory: DataDirectory,
        client: common_pb2.ClientIdentity,
        settings: ReplicationSettings,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.image = MetadataImage()
        self.on_activated: Callable[[int], None]
        self.on_deposed: Callable[[int], None]
        self.on_committed: Callable[[int], None]
        self.on_changed: Callable[[ImageChanges], None]
        self._files = files
        self._client = client
        self._failed = failed
        self._vote_path = f"{directory.path}/{VOTE_FILE}"
        self._leader_address = next((each.host, each.port) for each in options.voters)
        self._log = self._open_log(directory)
        self._disk = DiskThread("metadata-disk", asyncio.get_running_loop(), failed)
        self._node = QuorumNode(
            options.broker_id,
            bytes.fromhex(directory.directory_id),
            directory.cluster_id,
            [peer_pb2.VoterAddress(broker_id=each.id, host=each.host, port=each.port) for each in options.voters],
            self._read_vote(),
            self._log,
            settings,
            QuorumSettings(),
            None,
            random.Random(secrets.randbits(64)),
        )
        self._sessions = Sessions()
        self._link: asyncio.Task[None] | None = None
        self._link_ready = asyncio.Event()
        self._timer = CoreTimer(self._node.next_tick_ms, self._tick)
        self._progress = asyncio.Event()
        self._running = self._active = False

    def _open_log(self, directory: DataDirectory) -> Log:
        log = Log.open(
            self._files,
            directory.partition_path(CLUSTER_METADATA_TOPIC_NAME, 0),
            METADATA_KEY,
            CLUSTER_METADATA_TOPIC_NAME,
            METADATA_LOG_SETTINGS,
            unclean=directory.clean_stop_epoch is None,
            create=True,
        )
        if log.recovery.damaged:
            raise StorageError(
                f"the metadata log {log.directory} is damaged: {log.recovery.reason}. "
                f"An observer's can be deleted and is fetched again; a voter's must be restored"
            )
        return log

    def _read_vote(self) -> VoteState:
        stored = read_durable_file(self._files, self._vote_path)
        return VoteState() if stored is None else msgspec.json.decode(stored, type=VoteState)

    # -- what the rest of the server asks

    @property
    def leader_id(self) -> int:
        return self._node.leader_id

    @property
    def epoch(self) -> int:
        return self._node.epoch

    def leader_address(self) -> tuple[str, int] | None:
        """Where the controller listens."""
        return self._leader_address

    def append_records(self, records: Sequence[records_pb2.MetadataRecord]) -> int:
        return self._node.append_records(records, time.time_ns() // 1000)

    async def replayed(self, end_offset: int) -> None:
        """Return when the image has reached `end_offset`."""
        while self.image.end_offset < end_offset:
            self._progress.clear()
            await self._progress.wait()

    # -- life

    def start(self) -> None:
        self._node.start(now_ms())
        self._timer.start()
        self.run()

    async def stop(self) -> bool:
        """Close the log; whether that was clean."""
        self._timer.stop()
        self._close_link()
        await self._disk.stop()
        try:
            self._log.close(clean=True)
        except OSError as error:
            logger.error("the metadata log could not be closed cleanly", error=str(error))
            return False
        return True

    # -- effects

    def run(self) -> None:
        """Carry out what the node asks for, then replay what is committed."""
        if self._running:
            return
        self._running = True
        try:
            while todo := self._node.take_effects():
                for effect in todo:
                    self._carry_out(effect)
        finally:
            self._running = False
        self._replay()
        self._timer.arm()

    def _carry_out(self, effect: QuorumEffect) -> None:
        match effect:
            case effects.AppendToLog(batches=batches):
                self._append(batches)
            case effects.RecordEpochStart(leader_epoch=epoch, start_offset=start):
                self._submit(lambda: self._log.assign_epoch(epoch, start), lambda _: None)
            case effects.TruncateLog(end_offset=end_offset):
                self._submit(lambda: self._log.truncate_to(end_offset), lambda _: self._node.log_truncated(now_ms()))
            case effects.StartLogAt(offset=offset):
                self._submit(
                    lambda: self._log.truncate_fully_and_start_at(offset), lambda _: self._node.log_truncated(now_ms())
                )
            case PersistVote(epoch=epoch, voted_for=voted_for):
                vote = msgspec.json.encode(VoteState(epoch, voted_for))
                self._submit(
                    lambda: write_durable_file(self._files, self._vote_path, vote),
                    lambda _: self._node.vote_persisted(now_ms(), time.time_ns() // 1000),
                )
            case effects.SessionReady(session_id=session_id):
                self._sessions.wake(session_id)
            case SessionRefused(session_id=session_id, error=error):
                self._sessions.refuse(session_id, error)
            case effects.OpenLeaderSession():
                self._open_link()
            case effects.CloseLeaderSession():
                self._close_link()
            case effects.LeaderSessionReady():
                self._link_ready.set()

    def _append(self, batches: effects.PlacedBatches) -> None:
        self._disk.submit(
            DiskCommand(
                work=lambda: self._log.append(batches),
                on_done=lambda _: self._event(lambda: self._node.log_appended(batches.end_offset, now_ms())),
                on_failed=self._failed,
                log=self._log,
                flush=self._log,
                on_flushed=lambda end: self._event(lambda: self._node.log_flushed(end, now_ms())),
            )
        )

    def _submit(self, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        self._disk.submit(DiskCommand(work, lambda result: self._event(lambda: done(result)), self._failed, self._log))

    def _event(self, event: Callable[[], None]) -> None:
        try:
            event()
            self.run()
        except MinilogError as error:  # we do not belong to this cluster: the process ends with that sentence
            self._failed(error)

    def _tick(self) -> None:
        self._event(lambda: self._node.tick(now_ms()))

    # -- replay

    def _replay(self) -> None:
        before = self.image.end_offset
        while decisions := self._node.take_committed():
            for decision in decisions:
                self.image.apply_batch(decision.base_offset, decision.end_offset, decision.records)
        if self.image.end_offset == before:
            return
        self._progress.set()
        self.on_changed(self.image.take_changes())
        if self._node.is_active and not self._active:
            self._active = True
            self.on_activated(self._node.epoch)
        elif self._active:
            self.on_committed(self.image.end_offset)

    # -- our session to the leader

    def _open_link(self) -> None:
        self._close_link()
        self._link_ready = ready = asyncio.Event()
        self._link = asyncio.get_running_loop().create_task(self._follow(ready))

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.cancel()
            self._link = None

    async def _follow(self, ready: asyncio.Event) -> None:
        try:
            await converse(
                self._leader_address,
                self._client,
                lambda: self._event(lambda: self._node.leader_session_opened(now_ms())),
                lambda message: self._receive(ready, message),
                self._next_request,
                ready,
            )
        except STREAM_ERRORS as error:
            logger.debug("the session to the quorum's leader broke", error=reason(error))
        await asyncio.sleep(RECONNECT_PAUSE_S)
        if self._link_ready is ready:
            self._link = None
            self._event(lambda: self._node.leader_session_closed(now_ms()))

    def _receive(self, ready: asyncio.Event, message: peer_pb2.ReplicateResponse) -> None:
        if self._link_ready is ready:
            self._event(lambda: self._node.leader_message(message, now_ms()))

    def _next_request(self) -> peer_pb2.ReplicateRequest | None:
        request = self._node.next_request(now_ms())
        self.run()
        return request

    # -- sessions of others here

    async def serve(
        self,
        first: peer_pb2.ReplicateRequest,
        rest: AsyncIterator[peer_pb2.ReplicateRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        """A Replicate stream of the metadata log."""

        def receive(session_id: int, request: peer_pb2.ReplicateRequest) -> None:
            self._node.replicate_request(session_id, request, now_ms())
            self.run()

        def next_message(session_id: int) -> peer_pb2.ReplicateResponse | None:
            message = self._node.next_message(session_id, now_ms())
            self.run()
            return message

        session_id = self._sessions.open()
        try:
            self._node.open_session(session_id, first, now_ms())
            self.run()
            await self._sessions.serve(session_id, first, rest, context, receive, next_message)
        finally:
            self._sessions.close(session_id)
            self._node.close_session(session_id)
            self.run()
