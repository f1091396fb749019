"""All metrics of a broker: name, type, meaning, labels. The code and the dashboard's tests take them from here.

Names are Prometheus' (units last, counters end in _total), with Kafka's words where it has one. Every label is bounded:
kinds of calls are ours, groups are at most MAX_GROUPS, topics are those that a scrape names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_GROUPS = 100  # groups with a lag, and queues with records: the first by name
MAX_TOPICS = 20  # of one scrape, with `?topics=`
MAX_TOPIC_PARTITIONS = 1_000  # of one scrape, led here


class MetricType(Enum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name. `buckets`: the upper bounds of a histogram."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(f"minilog_{name}", MetricType.GAUGE, help_, labels)


def _counter(name: str, help_: str, *labels: str) -> Metric:
    assert name.endswith("_total")
    return Metric(f"minilog_{name}", MetricType.COUNTER, help_, labels)


def _histogram(name: str, help_: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"minilog_{name}", MetricType.HISTOGRAM, help_, labels, buckets)


_LATENCIES_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_DELAYS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

# This broker, and its place in the cluster
BROKER_INFO = _gauge(
    "broker_info", "1, with the broker, its cluster and its version as labels", "broker_id", "cluster_id", "version"
)
BROKER_READY = _gauge("broker_ready", "1 while /readyz answers 200")
BROKER_FENCED = _gauge("broker_fenced", "1 while this broker is fenced, or no controller answers it")
CONTROLLER_SILENCE_SECONDS = _gauge(
    "controller_silence_seconds", "Seconds since a controller last answered a heartbeat of this broker"
)
ACTIVE_CONTROLLER = _gauge("active_controller", "1 where this broker is the active controller")
CONTROLLER_EPOCH = _gauge("controller_epoch", "The newest epoch of the metadata quorum that this broker knows")
CONTROLLER_CHANGES = _counter("controller_changes_total", "Changes of the quorum's leader that this broker has seen")
METADATA_OFFSET = _gauge("metadata_offset", "The end of the metadata log that this broker has replayed")

# The cluster: values of the active controller, and 0 elsewhere, so that sums are right
FENCED_BROKERS = _gauge("fenced_brokers", "Registered brokers that are fenced, by the active controller")
REGISTERED_BROKERS = _gauge("registered_brokers", "Brokers that ever registered, by the active controller")
TOPICS = _gauge("topics", "Topics, also internal ones, by the active controller")
PARTITIONS = _gauge("partitions", "Partitions of all topics, by the active controller")
OFFLINE_PARTITIONS = _gauge("offline_partitions", "Partitions without a leader, by the active controller")
UNCLEAN_ELECTIONS = _counter(
    "unclean_elections_total", "Leaders that may lack acknowledged records, made by this broker as the controller"
)

# Partitions of this broker
LEADER_PARTITIONS = _gauge("leader_partitions", "Partitions that this broker leads")
REPLICA_PARTITIONS = _gauge("replica_partitions", "Partitions that have a replica on this broker")
OFFLINE_REPLICAS = _gauge("offline_replicas", "Replicas here whose log failed or is damaged")
UNDER_REPLICATED_PARTITIONS = _gauge("under_replicated_partitions", "Partitions led here whose ISR lacks a replica")
UNDER_MIN_ISR_PARTITIONS = _gauge(
    "under_min_isr_partitions",
    "Partitions led here whose ISR is smaller than min.insync.replicas. They refuse writes with acks=all",
)
REPLICA_MAX_LAG_RECORDS = _gauge(
    "replica_max_lag_records", "The largest lag, in records, of a follower's durable end behind a log led here"
)
LEADER_ELECTIONS = _counter("leader_elections_total", "Partitions that this broker began to lead after another leader")
ISR_SHRINKS = _counter("isr_shrinks_total", "Committed ISRs of partitions led here that lost a replica")
ISR_EXPANDS = _counter("isr_expands_total", "Committed ISRs of partitions led here that gained a replica")
LOG_SIZE_BYTES = _gauge("log_size_bytes", "Bytes of all logs led here")
APPENDED_BYTES = _counter("appended_bytes_total", "Bytes of batches given to logs here, of producers and of leaders")
APPENDED_RECORDS = _counter("appended_records_total", "The offsets of those batches")

RUNS_READ = _counter(
    "runs_read_total",
    "Runs of batches that were read for followers and consumers: from memory, or from the disk by a thread that waited",
    "source",
)
RUN_BYTES_READ = _counter("run_bytes_read_total", "Their bytes", "source")

# The scrub
SCRUB_ROUNDS = _counter("scrub_rounds_total", "Finished scrub rounds over all partitions led here")
SCRUB_READ_BYTES = _counter(
    "scrub_read_bytes_total", "Bytes that this broker read for its own scrub and for the scrub of others"
)
SCRUB_DAMAGED_COPIES = _counter(
    "scrub_damaged_copies_total", "Copies of this broker that are damaged or differ from most, as a scrub found"
)
SCRUB_UNDECIDED_PARTITIONS = _gauge(
    "scrub_undecided_partitions", "Partitions led here whose copies differ, without a majority that agrees"
)

# The cleaner
CLEANER_CLEANINGS = _counter("log_cleaner_cleanings_total", "Finished cleanings on this broker")
CLEANER_USED_BYTES = _counter("log_cleaner_used_bytes_total", "Bytes that the cleaner read and wrote")
CLEANER_FAILURES = _counter("log_cleaner_failures_total", "Cleanings that failed. Each one starts again")
CLEANER_OLDEST_DUE_SECONDS = _gauge(
    "log_cleaner_oldest_due_seconds", "Age in seconds of the oldest unfinished cleaning on this broker"
)

# Calls
REQUEST_DURATION_SECONDS = _histogram(
    "request_duration_seconds",
    "Unary calls: from the request to its answer. Produce: from a validated batch to its answer, as acks demands. "
    "Fetch: to read and make up one message, without the wait for records",
    _LATENCIES_S,
    "kind",
)
RECEIVED_BYTES = _counter("received_bytes_total", "Bytes of messages that came, by kind of call", "kind")
SENT_BYTES = _counter("sent_bytes_total", "Bytes of messages that were sent, by kind of call", "kind")
CONNECTIONS = _gauge("connections", "Connections to the port of this broker at the last look, at most 5 s ago")
QUEUED_REQUEST_BYTES = _gauge("queued_request_bytes", "Of clients, received and not yet on disk or answered")
QUEUED_RESPONSE_BYTES = _gauge("queued_response_bytes", "Read for clients, and not yet taken by them")
CLIENTS_WAITING = _gauge("clients_waiting", "Streams that wait for room in a budget", "budget")

# Disks and the process
DISK_QUEUE_BYTES = _gauge("disk_queue_bytes", "Bytes that wait for the data disk, or are being written")
DISK_READS_WAITING = _gauge("disk_reads_waiting", "Reads for followers and consumers that wait for the data disk")
DISK_ANSWER = _gauge("disk_answer", "How the disks answer: 0 in time, 1 slow, 2 stalled")
SYNC_DURATION_SECONDS = _histogram(
    "sync_duration_seconds",
    "Seconds to sync the logs of one group of appends (fdatasync, with flush.policy=fsync)",
    _LATENCIES_S,
)
DISK_FREE_BYTES = _gauge("disk_free_bytes", "Free bytes for this process on the file system of the data directory")
DISK_SIZE_BYTES = _gauge("disk_size_bytes", "Size in bytes of that file system")
DISK_RESERVE_HELD = _gauge("disk_reserve_held", "0 while the disk counts as full: data is refused")
LOOP_DELAY_SECONDS = _histogram(
    "event_loop_delay_seconds", "The delay of the event loop, ten times a second", _DELAYS_S
)

# Transactions and groups: by their coordinator
OPEN_TRANSACTIONS = _gauge("open_transactions", "Transactions coordinated here whose fate is not decided")
OLDEST_OPEN_TRANSACTION_SECONDS = _gauge(
    "oldest_open_transaction_seconds", "Seconds since the oldest open generation began, 0 without one"
)
GROUPS = _gauge("groups", "Groups coordinated here that have committed offsets")
GROUP_MEMBERS = _gauge("group_members", "Members of the groups coordinated here")
GROUP_LAG_RECORDS = _gauge(
    "group_lag_records", "Sum over all partitions of high watermark minus committed offset", "group"
)
GROUP_LAG_BYTES = _gauge(
    "group_lag_bytes", "The same in bytes, estimated: by the average record of each partition's log", "group"
)
GROUP_LAG_SECONDS = _gauge(
    "group_lag_seconds",
    "Seconds since the first uncommitted record of the partition furthest behind arrived. Estimated from the log's end "
    "and at most the time since this broker began to watch the group",
    "group",
)
GROUPS_NOT_SHOWN = _gauge(
    "groups_not_shown", "Groups coordinated here whose lag is not shown, because there are too many"
)
QUEUES = _gauge("queues", "Queues coordinated here")
QUEUE_RECORDS = _gauge(
    "queue_records",
    "Offsets that are not settled: ready to be delivered again, leased, settling in a transaction, or never leased and "
    "below the last stable offset that the coordinator knows (fresh)",
    "queue",
    "state",
)
QUEUE_DEAD_RECORDS = _counter(
    "queue_dead_records_total",
    "Records that were rejected or delivered too often, since this broker coordinates",
    "queue",
)
QUEUE_EXPIRED_RECORDS = _counter(
    "queue_expired_records_total",
    "Records that retention took before they were settled, since this broker coordinates the queue",
    "queue",
)
QUEUE_REDELIVERED_RECORDS = _counter(
    "queue_redelivered_records_total",
    "Records that were leased again, since this broker coordinates the queue",
    "queue",
)
QUEUE_LAG_SECONDS = _gauge(
    "queue_lag_seconds",
    "Seconds since the oldest unsettled record of the partition furthest behind arrived. Estimated from the log's end "
    "and at most the time since this broker began to watch the queue",
    "queue",
)
QUEUES_NOT_SHOWN = _gauge(
    "queues_not_shown", "Queues coordinated here whose records are not shown, because there are too many"
)

# Keys of tokens: where they are fetched (sasl.oauthbearer.jwks.endpoint.url)
ACCESS_RULES_AGE_SECONDS = _gauge(
    "access_rules_age_seconds",
    "Age in seconds of users and rules on this broker. Above broker.session.timeout.ms the broker refuses clients",
)
TOKEN_KEYS = _gauge("token_keys", "Keys for the check of tokens. With 0 the broker refuses every token")
TOKEN_KEYS_AGE_SECONDS = _gauge(
    "token_keys_age_seconds",
    "Seconds since the last answer of the endpoint of token keys, or since the first fetch without an answer",
)

# Only for topics that a scrape names (`/metrics?topics=a,b`), of partitions led here
PARTITION_LOG_START_OFFSET = _gauge("partition_log_start_offset", "The first offset that exists", "topic", "partition")
PARTITION_HIGH_WATERMARK = _gauge("partition_high_watermark", "All records below are committed", "topic", "partition")
PARTITION_LOG_SIZE_BYTES = _gauge("partition_log_size_bytes", "Bytes of the leader's log", "topic", "partition")
PARTITION_IN_SYNC_REPLICAS = _gauge("partition_in_sync_replicas", "Replicas in the ISR", "topic", "partition")
REPLICA_LOG_END_OFFSET = _gauge(
    "replica_log_end_offset",
    "The end of each replica's durable log, as the leader knows",
    "topic",
    "partition",
    "replica",
)

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
