"""One broker process. Its parts start in the order of one list (`Broker._steps`) and stop in reverse.

The broker serves nothing before the metadata log knows this life, and leads no replica before this life is registered.
A requested stop begins with a controlled shutdown (leadership moves). Its last act is the mark of a clean stop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import structlog

from minilog.errors import MinilogError
from minilog.limits import MAX_ADMIN_PARTITIONS, parts_of
from minilog.malloc import keep_freed_memory
from minilog.net.event_loop import new_event_loop
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2
from minilog_broker.controller.image import ImageChanges
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from minilog_broker.failure import CommandFailed
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.replica_effects import ProposeInSyncReplicas
from minilog_broker.server.background.retention import WallClock
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.broker_steps import (
    BrokerStanding,
    Opened,
    Parts,
    Stored,
    build_cleaner,
    build_jobs,
    build_retention,
    build_scrub,
    member_settings,
    metadata_settings,
    replication_settings,
    services_of,
)
from minilog_broker.server.clients.channels import let_calls_end
from minilog_broker.server.clients.controller_link import ControllerLink, HeartbeatSources
from minilog_broker.server.clients.coordinator_calls import CallsHere, CoordinatorCalls
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.clients.partition_registrations import PartitionRegistrations
from minilog_broker.server.clients.peer_channels import PeerChannels
from minilog_broker.server.clients.registration import registration_request, unsettled_replicas
from minilog_broker.server.clients.stable_offsets import StableOffsets
from minilog_broker.server.controlled_shutdown import hand_over
from minilog_broker.server.disk.disk_stall import DiskAnswer, DiskStall
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.disk.reader_threads import DATA_READERS
from minilog_broker.server.health import BrokerCondition
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.listening import Listening
from minilog_broker.server.ingress.transport.port import PortParts
from minilog_broker.server.metrics.broker_parts import BrokerParts
from minilog_broker.server.observing import console_of, observer_of, open_http
from minilog_broker.server.reconfiguring import subscribe_parts
from minilog_broker.server.running_config import RunningConfig
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.descriptors import OUT_OF_FILES_WORDS
from minilog_broker.server.runtime.logging import configure_logging
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.services.data_service import answer_delete_records, answer_produce
from minilog_broker.server.services.marker_service import MarkerService, answer_markers
from minilog_broker.server.services.stable_offset_answers import StableOffsetAnswers
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.shells.coordinator_loading import Loader
from minilog_broker.server.shells.coordinator_shell import Surroundings
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.image_to_replicas import ImageToReplicas
from minilog_broker.server.shells.leader_links import LeaderLinks
from minilog_broker.server.shells.quorum_shell import QuorumListeners, QuorumShell
from minilog_broker.server.shells.replication_shell import Outside, ReplicationShell
from minilog_broker.server.system_runtime import SystemBrokerRuntime
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.open_files import OUT_OF_FILES, PooledFileSystem
from minilog_broker.storage.reserve import Reserve
from minilog_broker.version import CLIENT_VERSION

logger = structlog.get_logger()

SERVER_GRACE_S = 0.5  # for calls under way when the server stops
_Act: TypeAlias = Callable[[], Awaitable[None]]


def run_broker(options: BrokerOptions) -> int:
    """Run one broker until SIGINT or SIGTERM, and give the exit code. Raises CommandFailed where it cannot start or go
    on."""
    configure_logging(options.config.log_level)
    keep_freed_memory()
    observer = observer_of(options)
    try:
        return _run_to_its_end(_run(options, observer))
    except MinilogError as error:
        raise CommandFailed(f"broker {options.broker_id}: {error}") from error
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise CommandFailed(f"broker {options.broker_id}: {OUT_OF_FILES_WORDS}") from error
        raise CommandFailed(f"broker {options.broker_id}: the disk under {options.data_dir} failed: {error}") from error


def _run_to_its_end(work: Coroutine[Any, Any, int]) -> int:
    """Like asyncio.run, on the loop of net/event_loop.py."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(work)
    finally:
        with contextlib.suppress(OSError, RuntimeError):  # uvloop ends in order by a descriptor: there may be none
            runner.close()


async def _run(options: BrokerOptions, observer: BrokerObserver) -> int:
    return await Broker(options, SystemBrokerRuntime(observer), observer).run()


class Broker:
    """A broker with its options and its runtime. `run` gives the exit code after the stop."""

    def __init__(self, options: BrokerOptions, runtime: BrokerRuntime, observer: BrokerObserver = UNOBSERVED) -> None:
        self._options = options
        self._observer = observer
        self._runtime = runtime
        self._wall_clock = WallClock(runtime)
        self._config = options.config
        self._running = RunningConfig(options.broker_id, options.config, options.origins)
        self._shutdown_timeout_ms = options.config.controlled_shutdown_timeout_ms
        self._client = common_pb2.ClientIdentity(client_id=f"broker-{options.broker_id}", client_version=CLIENT_VERSION)
        self._channels = PeerChannels(options.config, runtime)
        self._descriptors = runtime.descriptors()
        self._stop = asyncio.Event()
        self._crash: BaseException | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._proposals: list[ProposeInSyncReplicas] = []  # for the next turn of the loop
        self._turns = Turns()
        self._session_pending: asyncio.Task[None] | None = None
        self._registered = self._stopped = self._closed_cleanly = self._built = False
        self._registered_ms = 0.0
        self._disk_answer = DiskAnswer.IN_TIME
        self._console = console_of(options)

    # -- life

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._runtime.on_stop_signal(self._stop.set)
        loop.set_exception_handler(self._loop_failed)
        try:
            await self._live()
        except Exception as error:
            self._failed(error)
        if self._crash is not None:
            raise self._crash
        return 0

    async def _live(self) -> None:
        """The life from the first step of the start to the last step of the stop."""
        async with contextlib.AsyncExitStack() as started:
            for start, stop in self._steps():
                await start()
                started.push_async_callback(stop)
            if await self._join():
                await self._stop.wait()
                self._console.end()
                if self._crash is None:
                    await hand_over(self._parts.link, self._shutdown_timeout_ms)

    def _steps(self) -> tuple[tuple[_Act, _Act], ...]:
        """The steps of the start in order, each with its step of the stop. A step that failed has no stop."""
        return (
            (self._open_http, self._close_http),
            (self._open_directory, self._close_directory),
            (self._open_logs, self._close_logs),
            (self._build, self._end),
            (self._listen, self._stop_listening),
            (self._follow_quorum, self._stop_leading),
        )

    async def _open_http(self) -> None:
        """Start HTTP first, and stop it last: it reports the progress of the start and the stop."""
        console = self._console.condition
        self._http = open_http(self._options, self._observer, self._condition, self._metered, console)
        if self._http is not None:
            await self._http.start()

    async def _close_http(self) -> None:
        if self._http is not None:
            await self._http.stop()

    def _condition(self) -> BrokerCondition:
        registered = self._registered
        return BrokerCondition(
            stopping=self._stop.is_set(),
            registered=registered,
            fenced=registered and self._parts.link.fenced,
            controller_silent_ms=self._controller_silent_ms() if registered else 0.0,
            session_timeout_ms=self._config.broker_session_timeout_ms,
            disk=self._disk_answer,
            no_space=self._no_space(),
        )

    def _no_space(self) -> bool:
        """Whether a write found the disk full, and there is no space again yet. False before the disks are open."""
        return self._registered and not self._stored.reserve.held

    def _controller_silent_ms(self) -> float:
        return now_ms() - max(self._parts.link.answered_ms, self._registered_ms)

    def _metered(self) -> BrokerParts | None:
        """The parts that metrics read, None before they exist."""
        if not self._built:
            return None
        return BrokerParts(
            broker_id=self._options.broker_id,
            data_dir=self._opened.directory.path,
            quorum=self._stored.quorum,
            replicas=self._parts.replicas,
            controller=self._parts.controller,
            coordinators=self._parts.coordinators,
            calls=self._parts.calls,
            flow=self._listening.flow,
            reserve=self._stored.reserve,
            turns=self._turns,
            wall_us=self._runtime.wall_us,
            access=self._parts.access,
            scrub=self._parts.scrub,
            cleaner=self._parts.cleaner,
        )

    async def _open_directory(self) -> None:
        runtime = self._runtime
        files = runtime.files()
        directory = DataDirectory.open(
            files,
            str(self._options.data_dir.absolute()),
            self._options.broker_id,
            None,
            boot_id=runtime.boot_id(),
            random_bytes=runtime.unique_bytes,
            levels=self._options.levels,
        )
        self._opened = Opened(files, directory)

    async def _close_directory(self) -> None:
        try:
            if self._closed_cleanly and self._crash is None:
                # A life that did not register has appended nothing, so the former mark is still right.
                epoch = self._parts.link.broker_epoch if self._registered else self._opened.directory.clean_stop_epoch
                if epoch is not None:
                    self._opened.directory.write_clean_stop(epoch)
        finally:
            self._opened.directory.close()
            await let_calls_end(SERVER_GRACE_S)

    async def _open_logs(self) -> None:
        """Open the data logs, with recovery, and the metadata log."""
        runtime, config, files, directory = self._runtime, self._config, self._opened.files, self._opened.directory
        reserve = Reserve(files, directory.path, runtime.monotonic_s)
        await asyncio.to_thread(reserve.hold)
        pool = PooledFileSystem(files, self._descriptors.segment_files, config.page_cache_bytes)
        logs = LogDirectory(pool, directory, config.delete_delay_ms, reserve, runtime.monotonic_s)
        recovered = await asyncio.to_thread(logs.recover)
        disk = runtime.disk("data-disk", self._failed)
        readers = runtime.readers("data-reader", DATA_READERS, self._failed)
        quorum = QuorumShell(
            self._options,
            files,
            directory,
            reserve,
            self._client,
            metadata_settings(config),
            self._failed,
            self._quorum_listeners(),
            runtime,
            self._channels,
        )
        stalls = [DiskStall(user, config.replica_lag_time_max_ms, now_ms) for user in (disk, readers)]
        self._stored = Stored(reserve, logs, recovered, disk, readers, stalls, quorum)

    async def _close_logs(self) -> None:
        await self._stored.readers.stop()
        await self._stored.disk.stop()
        clean = self._stored.logs.close()
        self._closed_cleanly = await self._stored.quorum.stop() and clean

    async def _build(self) -> None:
        """Make the parts and connect them."""
        options, stored = self._options, self._stored
        image = stored.quorum.image
        settings = replication_settings(self._config)
        manager = ReplicaManager(options.broker_id, settings, self._runtime.chance(), stored.quorum.level)
        replicas = ReplicationShell(
            manager, stored.disk, stored.logs, stored.reserve, self._outside(), stored.readers, self._observer
        )
        link = self._controller_link(replicas)
        internal_topics = InternalTopics(link.create_internal_topic, stored.quorum.level)
        calls = self._coordinator_calls()
        stable_offsets = StableOffsets(calls, self._spawn)
        coordinators = self._build_coordinators(replicas, calls, stable_offsets, internal_topics)
        self._parts = Parts(
            replicas=replicas,
            link=link,
            internal_topics=internal_topics,
            calls=calls,
            coordinators=coordinators,
            stable_offsets=stable_offsets,
            stable_offset_answers=StableOffsetAnswers(replicas),
            links=LeaderLinks(replicas, self._client, self._address_of, self._channels),
            registrations=PartitionRegistrations(replicas, calls.register_partitions, self._spawn),
            access=BrokerAccess(options, image, self._runtime.wall_us),
            controller=ControllerShell(stored.quorum, options, self._turns, self._runtime, self._observer),
            to_replicas=ImageToReplicas(image, replicas, coordinators, self._turns, self._spawn, self._observer),
            markers=MarkerService(replicas, image, coordinators.write_markers, self._runtime.wall_us),
            retention=build_retention(
                self._config, stored.logs, self._wall_clock, self._log_start_moved, coordinators.expire
            ),
            scrub=build_scrub(options.broker_id, self._config, replicas, stored.disk, calls, self._runtime),
            cleaner=build_cleaner(
                self._config, self._opened.files, stored, replicas, self._runtime, self._wall_clock, self._failed
            ),
        )
        subscribe_parts(self._running, stored, self._parts, self._runtime.set_log_level, self._set_shutdown_timeout)

    def _set_shutdown_timeout(self, timeout_ms: int) -> None:
        self._shutdown_timeout_ms = timeout_ms

    async def _end(self) -> None:
        self._parts.replicas.stop()
        await self._parts.links.stop()
        self._parts.controller.stop()
        self._parts.internal_topics.stop()
        self._parts.coordinators.stop()
        self._parts.stable_offsets.stop()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._parts.link.close()
        await self._parts.calls.close()

    def _quorum_listeners(self) -> QuorumListeners:
        """The listeners to the quorum. They look their parts up at each event, since these are made later."""
        return QuorumListeners(
            activated=lambda epoch: self._parts.controller.activated(epoch),
            deposed=lambda controller_id: self._parts.controller.deposed(controller_id),
            committed=lambda end_offset: self._parts.controller.committed(end_offset),
            leader_changed=self._controller_moved,
            image_changed=self._image_changed,
        )

    def _controller_moved(self) -> None:
        self._observer.controller_changed()
        self._parts.link.controller_moved()

    def _outside(self) -> Outside:
        """The handlers of effects that leave the replicas. They look their parts up at each effect, since these need
        the replicas."""
        return Outside(
            answer_produce=answer_produce,
            answer_markers=answer_markers,
            answer_delete_records=answer_delete_records,
            register=lambda effect: self._parts.registrations.ask(effect),
            open_link=lambda effect: self._parts.links.open(effect),
            close_link=lambda leader_id: self._parts.links.close(leader_id),
            wake_link=lambda leader_id: self._parts.links.wake(leader_id),
            propose=self._propose,
            tell_coordinator=lambda effect: self._parts.coordinators.on_leadership(effect),
            stable_offset_moved=lambda key: self._parts.stable_offset_answers.moved(key),
            disk_changed=lambda: self._parts.link.beat_now(),
            failed=self._failed,
        )

    def _controller_link(self, replicas: ReplicationShell) -> ControllerLink:
        sources = HeartbeatSources(
            metadata_offset=lambda: self._stored.quorum.image.end_offset,
            offline_replicas=replicas.offline.values,
            unsettled_replicas=lambda: unsettled_replicas(self._stored.logs),
            undecided_partitions=lambda: self._parts.scrub.undecided,
            late_cleanings=lambda: self._parts.cleaner.late_cleanings,
            no_space=self._no_space,
            disk_answer=self._look_at_disks,
        )
        interval_ms = self._config.broker_heartbeat_interval_ms
        return ControllerLink(
            self._client,
            self._options.broker_id,
            self._stored.quorum.leader,
            interval_ms,
            sources,
            self._session_goes_on,
            self._channels,
        )

    def _look_at_disks(self) -> DiskAnswer:
        """The answer of the disks. The metadata log's disk counts, too: a broker without replay must not lead by old
        metadata."""
        data = max(stall.look() for stall in self._stored.disk_stalls)
        answer = self._disk_answer = max(data, self._stored.quorum.look_at_disk())
        has_space = self._stored.reserve.held
        self._parts.replicas.disk_looked_at(answers=answer is not DiskAnswer.STALLED, has_space=has_space)
        return answer

    def _coordinator_calls(self) -> CoordinatorCalls:
        here = CallsHere(
            write_markers=lambda request: self._parts.markers.write(request),
            register_partitions=lambda request: self._parts.coordinators.register(request),
            await_stable_offsets=lambda request: self._parts.stable_offset_answers.answer(request),
        )
        image = self._stored.quorum.image
        return CoordinatorCalls(self._options.broker_id, self._client, image, self._address_of, here, self._channels)

    def _build_coordinators(
        self,
        replicas: ReplicationShell,
        calls: CoordinatorCalls,
        stable_offsets: StableOffsets,
        internal_topics: InternalTopics,
    ) -> Coordinators:
        config, quorum = self._config, self._stored.quorum
        loader = Loader(self._stored.disk, lambda key: self._stored.logs.logs[key])
        outside = (lambda event: self._parts.access.audit(event)), quorum.image.topic_name
        around = Surroundings(replicas, loader, calls, self._spawn, self._runtime.wall_us, stable_offsets.ask, *outside)
        settings = TransactionSettings(config.transaction_timeout_ms, config.transaction_max_timeout_ms)
        return Coordinators(quorum.image, internal_topics, quorum.level, settings, member_settings(config), around)

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registration = self._stored.quorum.image.brokers.get(broker_id)
        return None if registration is None else registration.peer_address

    async def _listen(self) -> None:
        condition = BrokerStanding(lambda: self._registered, self._condition, self._wall_clock.trusted_now_us)
        services = services_of(self._parts, self._stored.quorum, self._running, condition, self._turns, self._observer)
        parts = PortParts(
            self._options,
            self._descriptors,
            lambda: self._parts.replicas.backlog_bytes,
            self._turns,
            self._runtime,
            self._observer,
            self._parts.access.audit,
        )
        self._listening = Listening(self._parts.access, services, parts)
        self._built = True
        await self._listening.start()

    async def _stop_listening(self) -> None:
        await self._listening.stop(SERVER_GRACE_S)
        self._parts.access.close()

    async def _follow_quorum(self) -> None:
        self._spawn(self._parts.access.watch())
        for watch in self._listening.watches():
            self._spawn(watch)
        self._stored.quorum.start()

    async def _stop_leading(self) -> None:
        self._stopped = True  # later changes of the image have no effect
        self._stored.quorum.leave()
        self._parts.to_replicas.stop()
        self._parts.replicas.manager.stop_leading(now_ms())
        self._parts.replicas.run()
        self._parts.replicas.timer.stop()

    # -- joining the cluster

    async def _join(self) -> bool:
        """Register, and take up the replicas. False where a request to stop came before."""
        joining = self._spawn(self._register())
        stopping = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not joining.done():
            joining.cancel()
            return False
        joining.result()
        return True

    async def _register(self) -> None:
        manager, directory, recovered = self._parts.replicas.manager, self._opened.directory, self._stored.recovered
        self._stored.logs.name_unreadable(self._stored.quorum.image.replicas_on(self._options.broker_id))
        self._parts.replicas.adopt(recovered)
        request = registration_request(self._options, self._client, directory, recovered, self._stored.logs)
        answer = await self._parts.link.register(request)
        await self._stored.quorum.replayed(answer.committed_end_offset)
        directory.set_cluster(answer.cluster_id, [voter.broker_id for voter in self._stored.quorum.image.voters])
        manager.set_broker_epoch(answer.broker_epoch, now_ms())
        self._registered, self._registered_ms = True, now_ms()
        self._image_changed(self._whole_image())
        self._set_strays_aside()
        self._parts.replicas.run()
        self._parts.replicas.timer.start()
        self._spawn(self._parts.link.keep_beating())
        self._spawn(build_jobs(self._stored, self._parts, self._runtime.monotonic_s).run())
        self._spawn(self._parts.scrub.run())
        self._spawn(self._parts.cleaner.run())
        self._spawn(self._console.run())
        logger.info("registered", broker=self._options.broker_id, broker_epoch=answer.broker_epoch)

    def _whole_image(self) -> ImageChanges:
        """The changes that make this broker take up everything, at the begin of its life."""
        image = self._stored.quorum.image
        mine = image.partitions_of_broker.get(self._options.broker_id, set())
        topic_ids = {key.topic_id for key in mine}
        return ImageChanges(set(image.brokers), set(mine), set(), set(image.topics), topic_ids, security=True)

    def _set_strays_aside(self) -> None:
        """Set logs aside that the image does not know, but not while it knows no topic at all."""
        image = self._stored.quorum.image
        if not image.topics:
            return
        for key, path in self._stored.logs.paths().items():
            state = image.partitions.get(key)
            if state is None or self._options.broker_id not in state.replicas:
                logger.warning("the broker sets a log aside that belongs to no replica here", log=path)
                self._parts.replicas.manager.remove_stray(key, now_ms())

    # -- running

    def _image_changed(self, changes: ImageChanges) -> None:
        """Hand on the changes of the image by committed batches."""
        if changes.broker_settings and not self._stopped:
            self._running.apply(self._stored.quorum.image.broker_settings)
        if changes.security:
            self._parts.access.changed()
        if not self._registered or self._stopped:
            return
        if self._parts.link.fenced and self._options.broker_id in changes.brokers:
            self._parts.link.beat_now()  # the registration is replayed: the controller may unfence this broker
        self._parts.to_replicas.changed(changes)

    def _session_goes_on(self, sent_ms: float, ends_ms: float, committed_end_offset: int) -> None:
        """Note an answer of the controller. It counts after the replay of all earlier decisions (rules/fencing.py)."""

        async def count() -> None:
            await self._stored.quorum.replayed(committed_end_offset)
            self._parts.access.confirmed(sent_ms)
            await self._parts.to_replicas.settled()
            self._parts.replicas.manager.session_lasts_until(sent_ms, ends_ms, now_ms())
            self._parts.replicas.run()

        if self._session_pending is None or self._session_pending.done():  # else the next answer is soon enough
            self._session_pending = self._spawn(count())

    def _log_start_moved(self, key: PartitionKey) -> None:
        self._parts.replicas.manager.log_start_moved(key, now_ms())
        self._parts.replicas.run()

    def _propose(self, effect: ProposeInSyncReplicas) -> None:
        """Collect the proposals of one turn of the loop into one call. Where many partitions come into sync at once, a
        call for each cost the controller more than all else."""
        self._proposals.append(effect)
        if len(self._proposals) == 1:
            self._spawn(self._propose_all())

    async def _propose_all(self) -> None:
        effects, self._proposals = self._proposals, []
        for part in parts_of(effects, MAX_ADMIN_PARTITIONS):
            self._spawn(self._ask_for(part))

    async def _ask_for(self, effects: Sequence[ProposeInSyncReplicas]) -> None:
        manager = self._parts.replicas.manager
        for effect, answer in zip(effects, await self._parts.link.propose(effects), strict=True):
            if answer is None:
                manager.proposal_lost(effect.key, now_ms())
            else:
                manager.proposal_answered(effect.key, answer, now_ms())
        self._parts.replicas.run()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task of this broker. An unexpected error in it ends the broker."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """End the process with an error. A restart is better than a broker that is half alive."""
        if not isinstance(error, MinilogError | OSError | CommandFailed) and error is not self._crash:
            logger.error("a fault in the broker's own code stops it", exc_info=error)
        elif self._crash is not None and error is not self._crash:
            logger.error("the broker meets another error while it stops", error=str(error))
        if self._crash is None:
            self._crash = error
        self._stop.set()

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            logger.warning("the event loop reported a problem", message=context.get("message"))
        else:
            self._failed(error)
