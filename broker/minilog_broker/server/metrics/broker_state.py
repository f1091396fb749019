"""The state of a broker as samples. A scrape reads them from its parts, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minilog.errors import InvalidArgument
from minilog.limits import parts_of
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.server.health import BrokerCondition, Look, not_ready
from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples
from minilog_broker.server.metrics.broker_parts import BrokerParts, Parts
from minilog_broker.server.metrics.disk_space import DiskSpace
from minilog_broker.server.metrics.group_lag import GroupLag
from minilog_broker.server.metrics.queue_records import QueueRecords
from minilog_broker.version import CLIENT_VERSION

if TYPE_CHECKING:
    from minilog_broker.server.access.jwks_endpoint import KeysLook
    from minilog_broker.server.shells.cleaner import Cleaner
    from minilog_broker.server.shells.scrub import Scrub

PARTITIONS_AT_ONCE = 500  # between two looks at the clock: some milliseconds


class BrokerState:
    """A Source of samples (broker_metrics.py)."""

    def __init__(self, look: Look, parts: Parts) -> None:
        self._look = look
        self._parts = parts
        self._space = DiskSpace()
        self._group_lag = GroupLag()
        self._queue_records = QueueRecords()

    async def look(self, topics: Sequence[str]) -> Samples:
        condition, parts = self._look(), self._parts()
        samples = of_condition(condition)
        if parts is None:
            return samples
        samples += of_cluster(parts) + of_queues(parts) + of_transactions(parts)
        samples += self._queue_records.look(parts)
        samples += of_scrub(parts.scrub)
        samples += of_cleaner(parts.cleaner)
        samples += of_rules(parts.access.rules_age_s())
        samples += of_token_keys(parts.access.look_at_keys())
        samples += await of_partitions(parts, topics)
        samples += await self._space.look(parts.data_dir)
        samples += await self._group_lag.look(parts)
        return samples


def of_condition(condition: BrokerCondition) -> Samples:
    """The samples of the broker's health."""
    silent_s = condition.controller_silent_ms / 1000.0
    not_counted_on = condition.fenced or condition.controller_silent_ms > condition.session_timeout_ms
    return [
        (names.BROKER_READY, (), float(not not_ready(condition))),
        (names.BROKER_FENCED, (), float(not condition.registered or not_counted_on)),
        (names.CONTROLLER_SILENCE_SECONDS, (), max(0.0, silent_s)),
        (names.DISK_ANSWER, (), float(condition.disk)),
    ]


def of_cluster(parts: BrokerParts) -> Samples:
    """The samples of the image; those of the whole cluster where this broker is the controller."""
    image, active = parts.quorum.image, parts.controller.is_active
    identity = (str(parts.broker_id), image.cluster_id or "", CLIENT_VERSION)
    brokers = image.brokers.values()
    return [
        (names.BROKER_INFO, identity, 1.0),
        (names.ACTIVE_CONTROLLER, (), float(active)),
        (names.CONTROLLER_EPOCH, (), float(parts.quorum.epoch)),
        (names.METADATA_OFFSET, (), float(image.end_offset)),
        (names.REGISTERED_BROKERS, (), float(active * len(image.brokers))),
        (names.FENCED_BROKERS, (), float(active * sum(broker.fenced for broker in brokers))),
        (names.TOPICS, (), float(active * len(image.topics))),
        (names.PARTITIONS, (), float(active * len(image.partitions))),
        (names.REPLICA_PARTITIONS, (), float(len(image.partitions_of_broker.get(parts.broker_id, ())))),
        (names.OFFLINE_REPLICAS, (), float(len(parts.replicas.offline))),
    ]


def of_queues(parts: BrokerParts) -> Samples:
    """The samples of queues."""
    flow = parts.flow
    return [
        (names.CONNECTIONS, (), float(flow.connections)),
        (names.QUEUED_REQUEST_BYTES, (), float(flow.requests.held_bytes)),
        (names.QUEUED_RESPONSE_BYTES, (), float(flow.responses.held_bytes)),
        (names.CLIENTS_WAITING, ("requests",), float(flow.requests.waiting)),
        (names.CLIENTS_WAITING, ("responses",), float(flow.responses.waiting)),
        (names.DISK_QUEUE_BYTES, (), float(parts.replicas.backlog_bytes)),
        (names.DISK_READS_WAITING, (), float(parts.replicas.readers.waiting)),
        (names.DISK_RESERVE_HELD, (), float(parts.reserve.held)),
    ]


def of_scrub(scrub: Scrub) -> Samples:
    """The counts of the scrub."""
    counts = scrub.counts
    return [
        (names.SCRUB_ROUNDS, (), float(counts.rounds)),
        (names.SCRUB_READ_BYTES, (), float(counts.read_bytes)),
        (names.SCRUB_DAMAGED_COPIES, (), float(counts.damaged)),
        (names.SCRUB_UNDECIDED_PARTITIONS, (), float(len(scrub.undecided))),
    ]


def of_cleaner(cleaner: Cleaner) -> Samples:
    """The counts of the cleaner."""
    counts = cleaner.counts
    return [
        (names.CLEANER_CLEANINGS, (), float(counts.cleanings)),
        (names.CLEANER_USED_BYTES, (), float(counts.used_bytes)),
        (names.CLEANER_FAILURES, (), float(counts.failures)),
        (names.CLEANER_OLDEST_DUE_SECONDS, (), cleaner.oldest_due_s),
    ]


def of_rules(age_s: float | None) -> Samples:
    """The samples of users and access rules, where a listener uses them."""
    return [] if age_s is None else [(names.ACCESS_RULES_AGE_SECONDS, (), age_s)]


def of_token_keys(look: KeysLook | None) -> Samples:
    """The samples of the endpoint of keys, if there is one."""
    if look is None:
        return []
    return [
        (names.TOKEN_KEYS, (), float(look.keys)),
        (names.TOKEN_KEYS_AGE_SECONDS, (), look.age_s),
    ]


def of_transactions(parts: BrokerParts) -> Samples:
    """The samples of transactions whose coordinator is here."""
    began_us = [time_us for shell in parts.coordinators.transactions_here() for time_us in shell.core.open_since_us()]
    oldest_s = (parts.wall_us() - min(began_us)) / 1e6 if began_us else 0.0
    return [
        (names.OPEN_TRANSACTIONS, (), float(len(began_us))),
        (names.OLDEST_OPEN_TRANSACTION_SECONDS, (), max(0.0, oldest_s)),
    ]


async def of_partitions(parts: BrokerParts, topics: Sequence[str]) -> Samples:
    """The samples of partitions that this broker leads, and of the cluster's leaders, in pieces. Raises
    InvalidArgument."""
    leaders, image, piece = parts.replicas.manager.led_partitions(), parts.quorum.image, parts.turns.piece()
    offline = under_replicated = under_min = size_bytes = max_lag = 0
    if parts.controller.is_active:
        for states in parts_of(list(image.partitions.values()), 10 * PARTITIONS_AT_ONCE):
            piece = await piece.next() if piece.is_over() else piece
            offline += sum(state.leader_id == NO_LEADER for state in states)
    chosen = [leader for leader in leaders if leader.state.topic_name in topics] if topics else []
    if len(chosen) > names.MAX_TOPIC_PARTITIONS:
        raise InvalidArgument(
            f"the topics have {len(chosen)} partitions here: one scrape has at most {names.MAX_TOPIC_PARTITIONS}"
        )
    for part in parts_of(leaders, PARTITIONS_AT_ONCE):
        piece = await piece.next() if piece.is_over() else piece
        for leader in part:
            state = leader.state
            under_replicated += len(state.in_sync_replicas) < len(state.replicas)
            under_min += len(state.in_sync_replicas) < leader.min_in_sync
            size_bytes += leader.log.log.size_bytes
            max_lag = max(max_lag, _lag(leader))
    return [
        (names.OFFLINE_PARTITIONS, (), float(offline)),
        (names.LEADER_PARTITIONS, (), float(len(leaders))),
        (names.UNDER_REPLICATED_PARTITIONS, (), float(under_replicated)),
        (names.UNDER_MIN_ISR_PARTITIONS, (), float(under_min)),
        (names.LOG_SIZE_BYTES, (), float(size_bytes)),
        (names.REPLICA_MAX_LAG_RECORDS, (), float(max_lag)),
        *(sample for leader in chosen for sample in of_one_partition(leader)),
    ]


def _lag(leader: LeaderPartition) -> int:
    """The longest lag of the followers that have reported their ends."""
    end, followers = leader.log.appended_end, leader.replica_ends()[1:]
    reported = [follower.log_end_offset for follower in followers if follower.HasField("log_end_offset")]
    return max((end - offset for offset in reported), default=0)


def of_one_partition(leader: LeaderPartition) -> Samples:
    """The samples of a partition whose topic a scrape names."""
    state, ends = leader.state, leader.ends()
    where = (state.topic_name, str(state.key.partition))
    return [
        (names.PARTITION_LOG_START_OFFSET, where, float(ends.log_start_offset)),
        (names.PARTITION_HIGH_WATERMARK, where, float(ends.high_watermark)),
        (names.PARTITION_LOG_SIZE_BYTES, where, float(leader.log.log.size_bytes)),
        (names.PARTITION_IN_SYNC_REPLICAS, where, float(len(state.in_sync_replicas))),
        *(
            (names.REPLICA_LOG_END_OFFSET, (*where, str(replica.broker_id)), float(replica.log_end_offset))
            for replica in leader.replica_ends()
            if replica.HasField("log_end_offset")
        ),
    ]
