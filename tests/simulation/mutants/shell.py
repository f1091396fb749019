"""Wrong rules of the server's shell: what is told when, in which order, and what becomes of what nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from minilog.errors import BrokerNotAvailable, RequestTimedOut
from minilog.net.payload_stream import STREAM_ERRORS
from minilog.v1 import peer_pb2
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.replication.replica_effects import PlacedBatches, ProposeInSyncReplicas, ReadRun, StoppedLeading
from minilog_broker.server import broker
from minilog_broker.server.clients.controller_link import ControllerLink
from minilog_broker.server.clients.coordinator_calls import outcome
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.disk.metadata_log import MetadataLogDisk
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.services import data_service
from minilog_broker.server.shells import leader_links, session_reads, session_streams
from minilog_broker.server.shells.coordinator_shell import CoordinatorShell, TransactionShell
from minilog_broker.server.shells.leader_links import RECONNECT_PAUSE_S, LeaderLinks
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.server.shells.session_reads import SessionReads
from minilog_broker.storage.run_reads import read_run
from tests.rules import Patches

# -- who waits for the disk


def loop_waits_for_the_disk() -> Patches:
    """What readers are sent is read on the event loop, in memory or not."""
    return [(session_reads, "read_run_now", read_run)]


def readers_threads_are_told_nothing() -> Patches:
    """What a thread has read is told to nobody: the reader waits for ever."""

    def mutant(self: SessionReads, asked: ReadRun, batches: Any) -> None:
        pass

    return [(SessionReads, "_done", mutant)]


# -- what counts before its time


def nobody_waits_for_the_replay() -> Patches:
    """A life begins, leads and sets strays aside by an image that may not have its registration yet."""

    async def mutant(self: QuorumShell, end_offset: int) -> None:
        pass

    return [(QuorumShell, "replayed", mutant)]


def metadata_counts_unsynced() -> Patches:
    """What is written to the metadata log counts as synced."""
    append = MetadataLogDisk.append

    def mutant(self: MetadataLogDisk, batches: PlacedBatches, appended: Any, flushed: Any) -> None:
        def written(end_offset: int) -> None:
            appended(end_offset)
            flushed(end_offset)

        append(self, batches, written, flushed)

    return [(MetadataLogDisk, "append", mutant)]


def deposed_hears_it_last() -> Patches:
    """The controller is told what was committed before it is told that it was deposed."""

    def mutant(self: QuorumShell) -> None:
        self._running = True
        try:
            while todo := self._node.take_effects():
                for effect in todo:
                    self._carry_out(effect)
        finally:
            self._running = False
        self._apply_committed()
        self._look_at_leadership()
        self._timer.arm()

    return [(QuorumShell, "_run", mutant)]


def session_lasts_from_its_answer() -> Patches:
    """A session with the controller is counted from the answer to a heartbeat, not from its sending."""
    answered = ControllerLink._answered

    def mutant(self: ControllerLink, answer: peer_pb2.HeartbeatResponse, sent_ms: float) -> None:
        answered(self, answer, now_ms())

    return [(ControllerLink, "_answered", mutant)]


def no_answer_is_a_yes() -> Patches:
    """Markers that a leader did not answer in time count as written: it will have written them."""

    async def mutant(self: TransactionShell, effect: Any) -> None:
        error = await outcome(self._around.calls.write_markers(effect))
        if error is None or isinstance(error, BrokerNotAvailable | RequestTimedOut):
            self.core.markers_written(effect, self._around.moment())
        else:
            self.core.markers_failed(effect, error, self._around.moment())
        self.run()

    return [(TransactionShell, "_write_markers", mutant)]


def former_log_answers() -> Patches:
    """What the disk answers for a log that was let go is taken for the answer of the one in its place."""

    def mutant(self: ReplicationShell, key: Any, tell: Any) -> Any:
        return lambda result: self._event(lambda: tell(result))

    return [(ReplicationShell, "_of", mutant)]


# -- what is never told


def lost_proposal_is_not_told() -> Patches:
    """A proposal without an answer is not told to the core: it waits for what was asked once."""

    async def mutant(self: broker.Broker, effects: Sequence[ProposeInSyncReplicas]) -> None:
        for effect, answer in zip(effects, await self._parts.link.propose(effects), strict=True):
            if answer is not None:
                self._parts.replicas.manager.proposal_answered(effect.key, answer, now_ms())
        self._parts.replicas.run()

    return [(broker.Broker, "_ask_for", mutant)]


def broken_stream_is_not_told() -> Patches:
    """A stream to a leader that broke, or could not be opened, is not told to the core: its silence will be noticed."""

    async def mutant(self: LeaderLinks, leader_id: int, ready: asyncio.Event) -> None:
        try:
            await self._converse(leader_id, ready)
        except STREAM_ERRORS:
            return
        await asyncio.sleep(RECONNECT_PAUSE_S)
        if self._ready.get(leader_id) is ready:
            self._ready.pop(leader_id)
            self._tasks.pop(leader_id, None)
            self._replicas.manager.fetcher_stream_closed(leader_id, now_ms())
            self._replicas.run()

    return [(LeaderLinks, "_run", mutant)]


def ended_session_stays() -> Patches:
    """A session whose stream is gone is forgotten by the shell alone: the core goes on with it."""

    def mutant(self: ReplicationShell, session_id: int) -> None:
        self.sessions.close(session_id)

    return [(ReplicationShell, "close_session", mutant)]


def failed_replica_is_not_said() -> Patches:
    """Heartbeats say nothing of replicas that went offline: the next registration will."""
    heartbeat = ControllerLink._heartbeat

    def mutant(self: ControllerLink) -> peer_pb2.HeartbeatRequest:
        request = heartbeat(self)
        request.ClearField("offline_replicas")
        request.ClearField("damaged_replicas")
        return request

    return [(ControllerLink, "_heartbeat", mutant)]


def stalled_disk_is_not_said() -> Patches:
    """Heartbeats say nothing of a data disk that does not answer."""
    heartbeat = ControllerLink._heartbeat

    def mutant(self: ControllerLink) -> peer_pb2.HeartbeatRequest:
        request = heartbeat(self)
        request.ClearField("disk_stalled")
        return request

    return [(ControllerLink, "_heartbeat", mutant)]


def controller_with_a_stalled_disk_goes_on() -> Patches:
    """A quorum leader whose disk does not answer leads on, and decides nothing."""
    return [(QuorumNode, "disk_stalled", lambda self, now_ms: None)]


def disk_error_is_logged_only() -> Patches:
    """An error of the disk under a replica is logged, and goes no further."""
    return [(ReplicationShell, "_failed", lambda self, key, error: None)]


def damage_is_not_recorded() -> Patches:
    """A batch that was found damaged while reading leaves no mark for the next start, nor for the recovery."""

    def mutant(self: LogDirectory, key: Any, reason: str) -> None:
        log = self.logs[key]
        log.failed = log.failed or OSError(reason)

    return [(LogDirectory, "mark_damaged", mutant)]


def coordinator_goes_on() -> Patches:
    """A coordinator is not told that its partition is led by another."""
    on_leadership = CoordinatorShell.on_leadership

    def mutant(self: Any, effect: Any) -> None:
        if not isinstance(effect, StoppedLeading):
            on_leadership(self, effect)

    return [(CoordinatorShell, "on_leadership", mutant)]


# -- streams, and the end


def wake_up_is_lost() -> Patches:
    """Between the question that found nothing to send and the waiting there is a turn of the loop: who wakes the stream
    in it is not heard."""

    async def mutant(
        incoming: Any,
        receive: Any,
        next_message: Any,
        write: Any,
        ready: asyncio.Event,
        room: Any = None,
        room_to_send: Any = None,
    ) -> None:
        async def read() -> None:
            async for message in incoming:
                if room is not None:
                    await room()
                receive(message)

        async def send() -> None:
            while True:
                if room_to_send is not None:
                    await room_to_send()
                message = next_message()
                if message is None:
                    await asyncio.sleep(0)
                    ready.clear()
                    await ready.wait()
                else:
                    await write(message)

        reading, sending = asyncio.ensure_future(read()), asyncio.ensure_future(send())
        try:
            done, _ = await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (reading, sending):
                task.cancel()
            await asyncio.gather(reading, sending, return_exceptions=True)

    return [(module, "pump", mutant) for module in (session_streams, data_service, leader_links)]


def no_hand_over() -> Patches:
    """A broker that is asked to stop stops: others find out that it is gone."""

    async def mutant(link: ControllerLink, timeout_ms: float) -> None:
        pass

    return [(broker, "hand_over", mutant)]
