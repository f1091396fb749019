"""The parts of a broker, and the dynamic settings that each part uses: one subscription for each.

A dynamic setting (config.py) without a subscriber would be kept and shown, and change nothing. For such a one
`subscribe_parts` raises AssertionError, at the start of every broker, simulated or not.
"""

from __future__ import annotations

from collections.abc import Callable

from minilog_broker.server.broker_steps import Parts, Stored, replication_settings
from minilog_broker.server.config import DYNAMIC_NAMES, BrokerConfig
from minilog_broker.server.running_config import RunningConfig
from minilog_broker.server.runtime.timer import now_ms

_NEW_TOPICS = (
    "num.partitions",
    "default.replication.factor",
    "min.insync.replicas",
    "flush.policy",
    "unclean.leader.election.enable",
    "max.message.bytes",
    "segment.bytes",
    "segment.ms",
    "retention.ms",
    "retention.bytes",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
)
_CONTROLLER = (
    *_NEW_TOPICS,
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.ms",
    "delegation.token.max.lifetime.ms",
    "delegation.token.expiry.time.ms",
    "delegation.token.expiry.check.interval.ms",
)
_LAG_TIME = "replica.lag.time.max.ms"
_REPLICATION = (
    _LAG_TIME,
    "replica.lag.max.records",
    "replica.fetch.max.bytes",
    "follower.replication.throttled.rate.bytes",
)
_CLEANER = (
    "log.cleaner.enable",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
)


def subscribe_parts(
    running: RunningConfig,
    stored: Stored,
    parts: Parts,
    set_log_level: Callable[[str], None],
    set_shutdown_timeout: Callable[[int], None],
) -> None:
    """Subscribe all parts of a broker. `set_shutdown_timeout` takes milliseconds."""

    def replication(config: BrokerConfig) -> None:
        parts.replicas.manager.reconfigured(replication_settings(config), now_ms())
        for stall in stored.disk_stalls:
            stall.reconfigured(config.replica_lag_time_max_ms)
        parts.replicas.run()

    def delete_delay(config: BrokerConfig) -> None:
        stored.logs.delete_delay_s = config.delete_delay_ms / 1000.0

    def retention(config: BrokerConfig) -> None:
        parts.retention.interval_s = config.log_retention_check_interval_ms / 1000.0

    running.subscribe(_CONTROLLER, parts.controller.reconfigured)
    running.subscribe(_REPLICATION, replication)
    running.subscribe((_LAG_TIME, "metadata.log.max.record.bytes.between.snapshots"), stored.quorum.reconfigured)
    running.subscribe(("num.partitions", "connections.max.reauth.ms"), parts.access.reconfigured)
    running.subscribe(("delete.delay.ms",), delete_delay)
    running.subscribe(("log.retention.check.interval.ms",), retention)
    running.subscribe(("log.scrub.interval.ms", "log.scrub.max.bytes.per.second"), parts.scrub.reconfigured)
    running.subscribe(_CLEANER, parts.cleaner.reconfigured)
    running.subscribe(("log.level",), lambda config: set_log_level(config.log_level))
    running.subscribe(
        ("controlled.shutdown.timeout.ms",), lambda config: set_shutdown_timeout(config.controlled_shutdown_timeout_ms)
    )
    if missing := DYNAMIC_NAMES - running.subscribed:
        raise AssertionError(f"{sorted(missing)} can change while a broker runs, and no part of the broker uses them")
