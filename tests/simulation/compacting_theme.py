"""The themes of compacted topics."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan

DELETED_SHARE = 0.3  # of the seeds: retention deletes, too
TYPED_SHARE = 0.6  # of the seeds: the topic has a schema, and rows delete their keys
SLOW_DISK_WAITS = 4  # a buffer of few keys makes cleaners read a log many times: the judge waits for them as often
ROTTING_SHARE = 0.3  # of the seeds: one machine's copies rot under a scrub


def compacting(plan: Plan, chance: random.Random) -> Plan:
    """Cleaners write segments anew while leaders move, copies die, and replicas come anew. Not drawn."""
    plan = of_brokers(plan, chance.choice((3, 3, 4)))
    topic = {
        "min.insync.replicas": "2",
        "cleanup.policy": "compact",
        "segment.bytes": chance.choice(("1024", "2048", "8192")),
        "min.cleanable.dirty.ratio": chance.choice(("0.0", "0.1", "0.5")),
        "delete.retention.ms": chance.choice(("0", "1000", "4000")),
        "min.compaction.lag.ms": chance.choice(("0", "0", "0", "1500")),
    }
    if chance.random() < DELETED_SHARE:
        topic |= {"cleanup.policy": "compact,delete", "retention.ms": chance.choice(("4000", "10000"))}
    return replace(
        plan,
        compacted=True,
        typed=False,
        levels={},
        voters=chance.choice((1, 3)),
        partitions=chance.choice((1, 2)),
        replication_factor=chance.choice((2, 3, 3)),
        least_min=2,
        topic_configs=topic,
        configs=configured(plan, log_cleaner_backoff_ms=chance.choice((100, 200, 500))),
        dedupe_buffer_bytes=chance.choice((0, 0, 100)),
        sync_ms=(0.1, 5.0),
        liveness_s=plan.liveness_s * (SLOW_DISK_WAITS if plan.read_bytes_per_s < 1e6 else 1),
        producers=2,
        consumers=2,
        writers=chance.choice((0, 1, 2)),
        queries=(),
        write_pause_s=chance.choice((0.01, 0.03)),
        fault_pause_s=chance.choice((0.4, 0.8)),
        faults=weights(
            chance,
            kill=(0.3, 1.0),
            power=(0.0, 0.5, 1.0),
            power_all=(0.0, 0.0, 0.1),
            power_early=(0.0, 0.5),
            restart=(0.0, 0.5),
            death_in_disk=(0.0, 1.0),
            death_in_effects=(0.0, 0.5),
            full_disk=(0.0, 0.5),
            disk_error=(0.0, 0.5),
            disk_error_at_start=(0.0, 0.2),
            cut=(0.0, 1.0),
            isolate=(0.0, 0.5),
            isolate_leader=(0.0, 0.5),
            reset_all=(0.0, 0.5),
            stand_still=(0.0, 0.3),
            kill_client=(0.0, 0.5),
            stalled_reader=(0.0, 0.3),
            trim=(0.0, 0.0, 0.3),
            elect=(0.3, 1.0),
            reassign=(0.0, 1.0, 2.0),
        ),
    )


def recompacting(plan: Plan, chance: random.Random) -> Plan:
    """The same where the topic has a schema, settings change while cleaners work, and a disk rots under a scrub. It
    writes less, for rows cost more. Not drawn."""
    drawn = compacting(plan, chance)
    drawn = replace(
        drawn,
        dedupe_buffer_bytes=20 * drawn.dedupe_buffer_bytes,  # cleaners that were off have much to do in one cleaning
        write_pause_s=chance.choice((0.02, 0.04)),
        safety_s=10.0,
        faults={**drawn.faults, **weights(chance, alter_compaction=(0.0, 1.0, 2.0), settings=(0.0, 1.0))},
    )
    if chance.random() < TYPED_SHARE:
        drawn = replace(drawn, typed=True, faults={**drawn.faults, "evolve": chance.choice((0.5, 2.0))})
    return _rotting(drawn, chance) if chance.random() < ROTTING_SHARE else drawn


def _rotting(plan: Plan, chance: random.Random) -> Plan:
    """Cleaners and a scrub read what has rotted on one machine."""
    return replace(
        plan,
        voters=3,
        configs=configured(plan, log_scrub_interval_ms=chance.choice((200, 1_000))),
        faults={**plan.faults, "rot": 1.0},
    )
