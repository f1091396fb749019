"""A cluster as large as a company has: 50 brokers, 5,000 partitions, 100 of them written to. Not drawn: a seed takes
minutes. The judge looks at all disks at intervals, at messages as ever."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan

BROKERS, PARTITIONS, SILENT_PARTITIONS = 50, 100, 4_900
LOOK_S = 2.0


def large(plan: Plan, chance: random.Random) -> Plan:
    """Brokers die, lose power, stop and are cut off, alone and by the half, under load on some partitions."""
    plan = of_brokers(plan, BROKERS)
    shipped = configured(
        plan,
        session_keepalive_ms=500,
        quorum_fetch_timeout_ms=2_000,
        broker_session_timeout_ms=3_000,
        broker_heartbeat_interval_ms=300,
        segment_bytes=1 << 20,
        metadata_log_max_record_bytes_between_snapshots=16_777_216,
    )
    return replace(
        plan,
        configs=shipped,
        other_configs={},
        voters=3,
        topics=1,
        partitions=PARTITIONS,
        silent_partitions=SILENT_PARTITIONS,
        replication_factor=3,
        producers=4,
        consumers=2,
        writers=0,
        queries=(),
        write_pause_s=0.01,
        latency_s=(0.00005, 0.0005),
        between_brokers_s=0.0,
        read_bytes_per_s=1e9,
        look_s=LOOK_S,
        quiet_s=5.0,
        safety_s=20.0,
        fault_pause_s=1.0,
        faults=weights(
            chance,
            kill=2.0,
            power=1.0,
            restart=1.0,
            stand_still=1.0,
            cut=1.0,
            isolate=1.0,
            isolate_leader=1.0,
            split=0.5,
            slow_disk=0.5,
            hanging_disk=0.5,
            elect=0.5,
        ),
    )
