"""The objects that the steps of a broker's start make (broker.py). Each is whole when the next step begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from grpc_health.v1 import health_pb2_grpc

from minilog.partition_key import PartitionKey
from minilog.v1 import (
    admin_pb2_grpc,
    coordinator_pb2_grpc,
    data_pb2_grpc,
    metadata_pb2_grpc,
    peer_pb2_grpc,
    queue_pb2_grpc,
    security_pb2_grpc,
)
from minilog_broker.coordinators.groups.presences import GroupSettings
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.server.background.jobs import Jobs
from minilog_broker.server.background.retention import Retention, WallClock
from minilog_broker.server.background.upkeep import Checkpoints, DeletedLogs, Space
from minilog_broker.server.clients.controller_link import ControllerLink
from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.clients.partition_registrations import PartitionRegistrations
from minilog_broker.server.clients.stable_offsets import StableOffsets
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.disk_stall import DiskStall
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.disk.log_directory import FoundLog, LogDirectory
from minilog_broker.server.disk.reader_threads import Readers
from minilog_broker.server.health import BrokerCondition
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.listening import Services
from minilog_broker.server.running_config import RunningConfig
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.observer import BrokerObserver
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.services.admin_service import AdminService
from minilog_broker.server.services.data_service import DataService
from minilog_broker.server.services.group_service import GroupService
from minilog_broker.server.services.health_service import HealthService
from minilog_broker.server.services.marker_service import MarkerService
from minilog_broker.server.services.metadata_service import MetadataService
from minilog_broker.server.services.peer_service import PeerService
from minilog_broker.server.services.producer_ids import ProducerIds
from minilog_broker.server.services.queue_service import QueueService
from minilog_broker.server.services.security_service import SecurityService
from minilog_broker.server.services.stable_offset_answers import StableOffsetAnswers
from minilog_broker.server.services.transaction_service import TransactionService
from minilog_broker.server.shells.cleaner import Cleaner
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.shells.coordinators import Coordinators
from minilog_broker.server.shells.image_to_replicas import ImageToReplicas
from minilog_broker.server.shells.leader_links import LeaderLinks
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.server.shells.scrub import Scrub, ScrubPace
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.reserve import Reserve


@dataclass(frozen=True, slots=True)
class Opened:
    """The data directory, which no other process may use from here on."""

    files: FileSystem
    directory: DataDirectory


@dataclass(frozen=True, slots=True)
class Stored:
    """The logs: the recovered ones of topics with the findings, and the metadata log."""

    reserve: Reserve
    logs: LogDirectory
    recovered: list[FoundLog]
    disk: Disk
    readers: Readers
    disk_stalls: list[DiskStall]
    quorum: QuorumShell


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that use the logs."""

    replicas: ReplicationShell
    link: ControllerLink
    internal_topics: InternalTopics
    calls: CoordinatorCalls
    coordinators: Coordinators
    stable_offsets: StableOffsets
    stable_offset_answers: StableOffsetAnswers
    links: LeaderLinks
    registrations: PartitionRegistrations
    access: BrokerAccess
    controller: ControllerShell
    to_replicas: ImageToReplicas
    markers: MarkerService
    retention: Retention
    scrub: Scrub
    cleaner: Cleaner


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """The state of the broker that services read: whether it is registered, its condition, and a trusted wall clock."""

    is_registered: Callable[[], bool]
    look: Callable[[], BrokerCondition]
    trusted_now_us: Callable[[], int | None]


def replication_settings(config: BrokerConfig) -> ReplicationSettings:
    """The settings of replication for the logs of topics."""
    return ReplicationSettings(
        replica_lag_time_max_ms=config.replica_lag_time_max_ms,
        replica_lag_max_records=config.replica_lag_max_records,
        replica_fetch_max_bytes=config.replica_fetch_max_bytes,
        session_keepalive_ms=config.session_keepalive_ms,
        follower_replication_throttled_rate_bytes=config.follower_replication_throttled_rate_bytes,
    )


def metadata_settings(config: BrokerConfig) -> ReplicationSettings:
    """The settings of replication for the metadata log.

    A voter that hears nothing for quorum.fetch.timeout.ms begins an election. So the streams of the metadata log carry
    a message at least four times in it, however rare those of topics are.
    """
    settings, longest_ms = replication_settings(config), config.quorum_fetch_timeout_ms / 4
    return replace(settings, session_keepalive_ms=min(settings.session_keepalive_ms, longest_ms))


def member_settings(config: BrokerConfig) -> GroupSettings:
    """Of the members of groups."""
    return GroupSettings(
        config.group_consumer_session_timeout_ms,
        config.group_consumer_heartbeat_interval_ms,
        config.group_consumer_max_size,
        config.group_consumer_assignors,
    )


def services_of(
    parts: Parts,
    quorum: QuorumShell,
    running: RunningConfig,
    condition: BrokerStanding,
    turns: Turns,
    observer: BrokerObserver,
) -> Services:
    """All services: those for clients, for brokers, and for both."""
    config = running.config
    image, replicas, coordinators, controller = quorum.image, parts.replicas, parts.coordinators, parts.controller
    producer_ids = ProducerIds(image, parts.link.allocate_producer_ids, quorum.replayed)
    data = DataService(replicas, replication_settings(config), image, observer, condition.trusted_now_us)
    metadata = MetadataService(
        quorum,
        replicas,
        producer_ids,
        parts.internal_topics,
        condition.is_registered,
        controller.reported,
        turns,
        config.stream_port_offset,
        running,
    )
    return Services(
        clients=(
            (data_pb2_grpc.add_DataServiceServicer_to_server, data),
            (coordinator_pb2_grpc.add_GroupServiceServicer_to_server, GroupService(coordinators, image)),
            (queue_pb2_grpc.add_QueueServiceServicer_to_server, QueueService(coordinators, image)),
            (admin_pb2_grpc.add_AdminServiceServicer_to_server, AdminService(controller)),
            (security_pb2_grpc.add_SecurityServiceServicer_to_server, SecurityService(controller)),
        ),
        peers=(
            (coordinator_pb2_grpc.add_MarkerServiceServicer_to_server, parts.markers),
            (
                peer_pb2_grpc.add_PeerServiceServicer_to_server,
                PeerService(replicas, quorum, controller, parts.scrub, parts.stable_offset_answers),
            ),
        ),
        shared=(
            (metadata_pb2_grpc.add_MetadataServiceServicer_to_server, metadata),
            (
                coordinator_pb2_grpc.add_TransactionServiceServicer_to_server,
                TransactionService(coordinators, producer_ids),
            ),
            (health_pb2_grpc.add_HealthServicer_to_server, HealthService(condition.look)),
        ),
    )


def build_cleaner(
    config: BrokerConfig,
    files: FileSystem,
    stored: Stored,
    replicas: ReplicationShell,
    runtime: BrokerRuntime,
    clock: WallClock,
    failed: Callable[[BaseException], None],
) -> Cleaner:
    """The cleaner of this broker. `files` is not the pool of the logs: only the disk's thread changes files there."""
    thread = runtime.readers("cleaner", 1, failed)
    return Cleaner(
        config,
        replicas,
        stored.disk,
        stored.reserve,
        thread,
        files,
        runtime.monotonic_s,
        clock.trusted_now_us,
        lambda topic_id: (topic := stored.quorum.image.topics.get(topic_id)) is not None and topic.internal,
    )


def build_jobs(stored: Stored, parts: Parts, monotonic_s: Callable[[], float]) -> Jobs:
    """The periodic jobs of this broker."""
    logs = stored.logs
    jobs = Checkpoints(logs), DeletedLogs(logs), Space(stored.reserve), parts.retention
    return Jobs(jobs, stored.disk.call, monotonic_s)


def build_retention(
    config: BrokerConfig,
    logs: LogDirectory,
    clock: WallClock,
    log_start_moved: Callable[[PartitionKey], None],
    expire: Callable[[int], None],
) -> Retention:
    """The job of retention, with the interval of its configuration."""
    return Retention(logs, config.log_retention_check_interval_ms / 1000.0, clock, log_start_moved, expire)


def build_scrub(
    broker_id: int,
    config: BrokerConfig,
    replicas: ReplicationShell,
    disk: Disk,
    calls: CoordinatorCalls,
    runtime: BrokerRuntime,
) -> Scrub:
    """The scrub of this broker, with the rate and the interval of its configuration."""
    pace = ScrubPace(config.log_scrub_max_bytes_per_second, runtime.monotonic_s)
    chance = random.Random(f"{broker_id} {runtime.wall_us()}")  # only for another order in each life
    return Scrub(
        broker_id, replicas, disk, calls, pace, chance, runtime.monotonic_s, config.log_scrub_interval_ms / 1000.0
    )
