"""The shell of the replica manager in a life: as server/shells/replication_shell.py and server/clients/leader_links.py,
on virtual time.

Effects are carried out in order after every event; disk commands go to the data disk's thread, sessions of followers to
streams of the simulated network.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage
from minilog.stream_messages import StreamMessage
from minilog.v1 import peer_pb2
from minilog_broker.levels import SUPPORTED_LEVELS, ClusterLevel
from minilog_broker.replication import replica_effects
from minilog_broker.replication.leader.leadership import (
    BeganToLead,
    HighWatermarkMoved,
    LeadershipEffect,
    StoppedLeading,
)
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.server.disk.disk_thread import LOGS_AT_ONCE, BoundedLane, DiskCommand
from minilog_broker.server.disk.log_directory import LogDirectory, log_settings
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.find_ends import EndsSearch
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.retention import trim
from tests.simulation.clients import node_at
from tests.simulation.disk_thread import DiskThread
from tests.simulation.process import CoreTimer
from tests.simulation.pump import Pump
from tests.simulation.stream import Stream
from tests.simulation.transaction_serving import answer_markers

if TYPE_CHECKING:
    from tests.simulation.life import Life

RECONNECT_PAUSE_MS = 50.0


class LeaderLink:
    """One Replicate stream to a leader."""

    __slots__ = ("leader_id", "pump", "stream")

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.stream: Stream | None = None
        self.pump: Pump | None = None


class Replicas:
    """See the module's text. `sessions`: how to wake or refuse each session served here, by id."""

    def __init__(self, life: Life, manager: ReplicaManager, disk: DiskThread, directory: LogDirectory) -> None:
        self.manager = manager
        self.offline: dict[PartitionKey, replica_effects.PartitionOffline] = {}
        self.sessions: dict[int, Any] = {}
        self.timer = CoreTimer(life.process, manager.next_tick_ms, self._tick)
        self._life = life
        self._disk = disk
        self._lane = BoundedLane(disk, LOGS_AT_ONCE)
        self._directory = directory
        self._links: dict[int, LeaderLink] = {}
        self._running = False
        self._let_go: Counter[PartitionKey] = Counter()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            replica_effects.AppendToLog: self._append,
            replica_effects.SessionReady: self._session_ready,
            replica_effects.AnswerProduce: self._answer_produce,
            replica_effects.LeaderSessionReady: self._leader_session_ready,
            replica_effects.OpenLeaderSession: self._open_link,
            replica_effects.CloseLeaderSession: self._close_link,
            replica_effects.ProposeInSyncReplicas: lambda effect: life.link.propose(effect),
            replica_effects.SessionRefused: self._session_refused,
            replica_effects.PartitionOffline: self._go_offline,
            replica_effects.OpenLog: self._create,
            replica_effects.RecoverLog: self._recover,
            replica_effects.CheckCopy: self._check_copy,
            replica_effects.ConfigureLog: self._configure,
            replica_effects.RecordEpochStart: self._record_epoch_start,
            replica_effects.ForgetTornTail: self._forget_torn_tail,
            replica_effects.TruncateLog: self._truncate,
            replica_effects.StartLogAt: self._start_at,
            replica_effects.AdvanceLogStart: self._trim,
            replica_effects.WriteProducerSnapshot: self._write_snapshot,
            replica_effects.DeleteLog: self._delete,
            replica_effects.AnswerMarkers: answer_markers,
            replica_effects.FindEnds: lambda effect: self._find_ends(
                effect, EndsSearch(effect.producer_ids, effect.within)
            ),
            replica_effects.AnswerDeleteRecords: lambda effect: life.serving.trims.answer(effect),
            replica_effects.RegisterPartition: lambda effect: life.coordinating.calls.registration_wanted(effect),
            BeganToLead: self._tell_coordinator,
            HighWatermarkMoved: self._tell_coordinator,
            StoppedLeading: self._tell_coordinator,
        }

    # -- effects

    def run(self) -> None:
        """Carry out what the core asks for, until it asks for nothing more."""
        if self._running:
            return
        self._running = True
        life, handlers = self._life, self._handlers
        try:
            while todo := self.manager.take_effects():
                for effect in todo:
                    if life.effects_left is not None:
                        life.count_effect()
                    handlers[type(effect)](effect)
        finally:
            self._running = False
        self.timer.arm()

    def _append(self, effect: replica_effects.AppendToLog) -> None:
        key, batches, manager, life = effect.key, effect.batches, self.manager, self._life
        log = self._directory.logs[key]

        def appended(_: object) -> None:
            life.touch(key)
            manager.log_appended(key, batches.end_offset, life.now_ms)
            self.run()

        def flushed(end_offset: int) -> None:
            life.touch(key)
            manager.log_flushed(key, end_offset, life.now_ms)
            self.run()

        def work() -> None:
            life.touch(key)
            life.reserve.write_data(lambda: log.append(batches))

        self._disk.submit(
            DiskCommand(
                work=work,
                on_done=self._of(key, appended),
                on_failed=self._of(key, lambda error: self._failed(key, error)),
                log=log,
                flush=log,
                size_bytes=sum(header.length for header in batches.headers),
                on_flushed=self._of(key, flushed),
            )
        )

    def _create(self, effect: replica_effects.OpenLog) -> None:
        self._open(effect.key, lambda: (self._directory.create(effect), ProducerState()))

    def _recover(self, effect: replica_effects.RecoverLog) -> None:
        key = effect.key
        self._let_go[key] += 1

        def work() -> tuple[Log, ProducerState]:
            found = self._directory.recover_damaged(key, log_settings(effect.config))
            self._life.log_was_cut(key)
            return found

        self._open(key, work)

    def _open(self, key: PartitionKey, work: Callable[[], tuple[Log, ProducerState]]) -> None:
        def opened(found: tuple[Log, ProducerState]) -> None:
            self._life.touch(key)
            self.offline.pop(key, None)
            self.manager.log_opened(key, *found, self._life.now_ms)
            self.run()

        self._lane.submit(
            DiskCommand(
                work=work,
                on_done=self._of(key, opened),
                on_failed=self._of(key, lambda error: self._failed(key, error)),
            )
        )

    def _check_copy(self, effect: replica_effects.CheckCopy) -> None:
        key, let_go = effect.key, self._let_go[effect.key]
        log = self._directory.logs.get(key)

        def work() -> CorruptMessage | OSError | None:
            return None if log is None else check_copy(log, *key, effect.offset, effect.max_bytes)

        def checked(error: CorruptMessage | OSError | None) -> None:
            self._life.touch(key)
            told = error if self._let_go[key] == let_go else None
            self.manager.copy_checked(key, effect.offset, told, self._life.now_ms)
            self.run()

        self._disk.submit(DiskCommand(work, checked, checked))

    def _configure(self, effect: replica_effects.ConfigureLog) -> None:
        key, settings, reserve = effect.key, log_settings(effect.config), self._life.reserve

        def configured(_: object) -> None:
            self._life.touch(key)
            self.manager.log_configured(key, effect.config, self._life.now_ms)
            self.run()

        self._submit(key, lambda log: reserve.write_metadata(lambda: log.configure(settings)), configured)

    def _submit(self, key: PartitionKey, work: Callable[[Log], Any], done: Callable[[Any], None]) -> None:
        log, life = self._directory.logs[key], self._life

        def touching() -> Any:
            life.touch(key)
            return work(log)

        failed = self._of(key, lambda error: self._failed(key, error))
        self._disk.submit(DiskCommand(touching, self._of(key, done), failed, log))

    def _of(self, key: PartitionKey, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        """`tell`, unless the log was let go meanwhile, as in server/shells/replication_shell.py."""
        let_go = self._let_go[key]
        return lambda result: tell(result) if self._let_go[key] == let_go else None

    def _record_epoch_start(self, effect: replica_effects.RecordEpochStart) -> None:
        epoch, start = effect.leader_epoch, effect.start_offset
        reserve = self._life.reserve
        self._submit(effect.key, lambda log: reserve.write_metadata(lambda: log.assign_epoch(epoch, start)), _nothing)

    def _forget_torn_tail(self, effect: replica_effects.ForgetTornTail) -> None:
        self._submit(effect.key, lambda log: log.forget_torn_tail(), _nothing)

    def _truncate(self, effect: replica_effects.TruncateLog) -> None:
        def work(log: Log) -> ProducerState:
            log.truncate_to(effect.end_offset)
            return recover_producer_state(log)

        self._submit(effect.key, work, lambda state: self._truncated(effect.key, state))

    def _start_at(self, effect: replica_effects.StartLogAt) -> None:
        def work(log: Log) -> ProducerState:
            log.truncate_fully_and_start_at(effect.offset)
            return recover_producer_state(log)

        self._submit(effect.key, work, lambda state: self._truncated(effect.key, state))

    def _truncated(self, key: PartitionKey, state: ProducerState) -> None:
        self._life.touch(key)
        self.manager.log_truncated(key, state, self._life.now_ms)
        self.run()

    def _write_snapshot(self, effect: replica_effects.WriteProducerSnapshot) -> None:
        self._submit(effect.key, lambda log: log.write_producer_snapshot(effect.offset, effect.snapshot), _nothing)

    def _trim(self, effect: replica_effects.AdvanceLogStart) -> None:
        key, wanted, reserve = effect.key, (effect.offset, effect.snapshot_offset, effect.snapshot), self._life.reserve

        def moved(_: object) -> None:
            self._life.touch(key)
            self.manager.log_start_moved(key, self._life.now_ms)
            self.run()

        self._submit(key, lambda log: reserve.write_metadata(lambda: trim(log, *wanted)), moved)

    def _find_ends(self, effect: replica_effects.FindEnds, search: EndsSearch) -> None:
        def stepped(_: object) -> None:
            if search.damage is not None:
                self.manager.log_damaged(effect.key, search.damage, self._life.now_ms)
            elif search.finished:
                self._life.cluster.count("forgotten ends looked for")
                self.manager.ends_found(effect.key, effect.number, search.found)
            else:
                self._find_ends(effect, search)
                return
            self.run()

        self._submit(effect.key, search.step, stepped)

    def _delete(self, effect: replica_effects.DeleteLog) -> None:
        self.set_aside(effect.key)

    def set_aside(self, key: PartitionKey) -> None:
        """A log that no image knows: renamed aside, removed later."""
        self._life.touch(key)
        self._let_go[key] += 1
        self.offline.pop(key, None)
        self._lane.submit(DiskCommand(lambda: self._directory.delete(key), _nothing, _nothing))

    def _failed(self, key: PartitionKey, error: OSError) -> None:
        self._life.note(f"partition {key.partition} the disk failed: {error}")
        if error.errno in NO_SPACE:
            self._life.link.beat_now()
        self._life.touch(key)
        self.manager.log_failed(key, error, self._life.now_ms)
        self.run()

    def _go_offline(self, effect: replica_effects.PartitionOffline) -> None:
        key, reason = effect.key, effect.reason
        if effect.damaged:
            self._disk.submit(DiskCommand(lambda: self._directory.mark_damaged(key, reason), _nothing, _nothing))
        self._life.note(f"partition {key.partition} replica offline: {reason}")
        self._life.touch(key)
        self.offline[key] = effect
        self._life.link.beat_now()

    # -- answers and sessions served here

    def _answer_produce(self, effect: replica_effects.AnswerProduce) -> None:
        self._life.serving.answer_produce(effect)

    def _tell_coordinator(self, effect: LeadershipEffect) -> None:
        self._life.coordinating.told(effect)

    def _session_ready(self, effect: replica_effects.SessionReady) -> None:
        if (session := self.sessions.get(effect.session_id)) is not None:
            session.pump.wake()

    def _session_refused(self, effect: replica_effects.SessionRefused) -> None:
        if (session := self.sessions.get(effect.session_id)) is not None:
            session.refused = effect.error
            session.pump.wake()

    def close_session(self, session_id: int) -> None:
        """The stream of a session is gone."""
        if self.sessions.pop(session_id, None) is not None:
            self.manager.close_session(session_id, self._life.now_ms)
            self.run()

    # -- links to leaders

    def _open_link(self, effect: replica_effects.OpenLeaderSession) -> None:
        self._close_link(effect)
        leader_id = effect.leader_id
        link = self._links[leader_id] = LeaderLink(leader_id)
        life = self._life
        broker = life.image.brokers.get(leader_id)
        if broker is None:
            life.process.after(RECONNECT_PAUSE_MS, self._link_lost, link)
            return
        link.stream = stream = life.network.open_stream(life.process, node_at(broker.host), "Replicate")
        end = stream.client
        link.pump = pump = Pump(life.process, end, lambda: self._next_request(leader_id))
        end.on_open = lambda _: self._link_opened(link, pump)
        end.on_message = lambda message: self._leader_message(leader_id, message)
        end.on_closed = lambda _: life.process.after(RECONNECT_PAUSE_MS, self._link_lost, link)

    def _link_opened(self, link: LeaderLink, pump: Pump) -> None:
        self.manager.leader_session_opened(link.leader_id, self._life.now_ms)
        self.run()
        pump.wake()

    def _leader_session_ready(self, effect: replica_effects.LeaderSessionReady) -> None:
        link = self._links.get(effect.leader_id)
        if link is not None and link.stream is not None and link.stream.open and link.pump is not None:
            link.pump.wake()

    def _next_request(self, leader_id: int) -> peer_pb2.ReplicateRequest | None:
        message = self.manager.next_request(leader_id, self._life.now_ms)
        self.run()
        return message

    def _leader_message(self, leader_id: int, message: StreamMessage[peer_pb2.ReplicateResponse]) -> None:
        for run in message.message.runs:
            self._life.touch(PartitionKey(run.partition_id.topic_id, run.partition_id.partition))
        self.manager.leader_message(leader_id, message, self._life.now_ms)
        self.run()

    def _link_lost(self, link: LeaderLink) -> None:
        if self._links.get(link.leader_id) is link:
            del self._links[link.leader_id]
            self.manager.leader_session_closed(link.leader_id, self._life.now_ms)
            self.run()

    def _close_link(self, effect: replica_effects.OpenLeaderSession | replica_effects.CloseLeaderSession) -> None:
        link = self._links.pop(effect.leader_id, None)
        if link is not None and link.stream is not None:
            link.stream.client.close()

    def close_links(self) -> None:
        """The end of a clean stop."""
        for link in self._links.values():
            if link.stream is not None:
                link.stream.client.close()
        self._links.clear()

    # -- time

    def _tick(self) -> None:
        life = self._life
        for leader in self.manager.led_partitions():
            life.touch(leader.key)
        self.manager.tick(life.now_ms)
        self.run()


def _nothing(_: object = None) -> None:
    pass


def new_manager(life: Life, rng: random.Random) -> ReplicaManager:
    """The real core, with the plan's settings."""
    return ReplicaManager(life.node.node_id, life.settings, rng, ClusterLevel(SUPPORTED_LEVELS))
