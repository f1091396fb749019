"""Themes that no seed has by itself: kinds of trouble that were added later, each asked for by name (themes.py).

The suite runs some seeds of each; whoever changes what they touch runs more: `--seeds 100 --theme rotten`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.plan import Plan


def voters(plan: Plan, rng: random.Random) -> Plan:
    """Who votes is in doubt: voters come back with empty disks, are told other voters, and leaders are not heard.

    Two brokers of five at most have what is written: the others can be spared, and their disks are."""
    return replace(
        plan,
        nodes=5,
        voters=3,
        topic_count=rng.choice((1, 2)),
        partitions=1,
        replication_factor=rng.choice((1, 2)),
        min_in_sync=1,
        flush_on_append=True,
        broker_session_timeout_ms=600.0,
        heartbeat_interval_ms=100.0,
        producer_counts=(1,),
        consumer_counts=(1,),
        write_pauses_ms=(100.0, 300.0),
        snapshot_bytes=rng.choice((2_000, 1 << 20)),
        quiet_ms=1_500.0,
        safety_ms=12_000.0,
        faults=type(plan.faults)(
            kill=rng.choice((0.5, 1.0, 2.0)),
            isolate=rng.choice((0.2, 0.6)),
            reset_all=rng.choice((0.0, 0.3)),
            slow_link=rng.choice((0.0, 1.0)),
            wipe=rng.choice((0.0, 5.0)),
            wrong_voters=rng.choice((0.0, 2.0)),
        ),
        operations=type(plan.operations)(create_topic=rng.choice((0.0, 0.5)), delete_topic=rng.choice((0.0, 0.3))),
    )


def trims(plan: Plan, rng: random.Random) -> Plan:
    """Records are deleted while followers are cut off from their leader, which little is written to: whoever comes back
    has all of them, and more."""
    return replace(
        plan,
        nodes=rng.choice((3, 4)),
        voters=1,
        topic_count=1,
        partitions=rng.choice((1, 3)),
        replication_factor=3,
        min_in_sync=1,
        replica_lag_time_max_ms=300.0,
        session_keepalive_ms=30.0,
        broker_session_timeout_ms=rng.choice((900.0, 6_000.0)),
        heartbeat_interval_ms=100.0,
        sync_ms=rng.choice(((0.1, 5.0), (1.0, 40.0), (20.0, 80.0))),
        trims_per_s=10.0,
        producer_counts=(1,),
        write_pauses_ms=(100.0, 1_000.0, 1_000.0),
        load_pause_ms=100.0,
        links_of_nodes=True,
        quiet_ms=1_500.0,
        safety_ms=10_000.0,
        faults=type(plan.faults)(
            cut_nodes=rng.choice((1.0, 3.0)),
            slow_link=rng.choice((0.0, 1.0)),
            reset=rng.choice((0.0, 1.0)),
            slow_disk=rng.choice((0.0, 0.4)),
            kill=rng.choice((0.0, 0.3)),
            bit_flip=rng.choice((0.0, 1.0)) if plan.flush_on_append else 0.0,
        ),
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.5))),
    )


def young(plan: Plan, rng: random.Random) -> Plan:
    """A cluster that was founded a moment ago: processes die as soon as they were told of topics, and come back on slow
    disks, over connections that break: they know less of the cluster than their disks have."""
    return replace(
        plan,
        nodes=rng.choice((3, 4)),
        voters=3,
        topic_count=2,
        partitions=2,
        replication_factor=rng.choice((2, 3)),
        min_in_sync=1,
        flush_on_append=True,
        sync_ms=(0.1, 3.0),
        snapshot_bytes=1 << 20,
        producer_counts=(2,),
        write_pauses_ms=(8.0, 30.0),
        quiet_ms=rng.choice((400.0, 800.0)),
        safety_ms=4_000.0,
        faults=type(plan.faults)(
            kill=rng.choice((2.0, 4.0)),
            kill_of_all=rng.choice((0.0, 0.5)),
            slow_disk=rng.choice((2.0, 4.0)),
            slow_link=rng.choice((0.0, 3.0)),
            lossy_link=rng.choice((0.0, 2.0)),
            reset=rng.choice((0.0, 5.0)),
        ),
        operations=type(plan.operations)(create_topic=rng.choice((0.5, 2.0))),
    )


def rotten(plan: Plan, rng: random.Random) -> Plan:
    """Copies rot, readers in racks find it, and they are cut and fetched again in one life, while their brokers hear
    the controller and not their leader: what a leader knows of them is not what they have."""
    return replace(
        plan,
        nodes=4,
        voters=1,
        topic_count=1,
        partitions=rng.choice((1, 2)),
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        flush_on_append=True,
        segment_bytes=1 << 20,
        sync_ms=rng.choice(((0.1, 3.0), (1.0, 40.0))),
        replica_lag_time_max_ms=rng.choice((300.0, 1_000.0, 3_000.0)),
        broker_session_timeout_ms=6_000.0,
        heartbeat_interval_ms=rng.choice((50.0, 150.0)),
        session_keepalive_ms=100.0,
        checkpoint_interval_ms=200.0,
        producer_counts=(1, 2),
        consumer_counts=(4,),
        consumer_racks=("r1", "r2"),
        write_pauses_ms=(30.0, 300.0, 1_000.0),
        links_of_nodes=True,
        quiet_ms=1_500.0,
        safety_ms=10_000.0,
        faults=type(plan.faults)(
            bit_flip=rng.choice((3.0, 6.0)),
            cut_nodes=rng.choice((2.0, 4.0)),
            cut_one_way=rng.choice((0.0, 1.0)),
            slow_link=rng.choice((0.0, 2.0)),
            reset=rng.choice((0.0, 1.0)),
            kill=rng.choice((0.0, 0.2)),
        ),
        operations=type(plan.operations)(),
    )


def unheard(plan: Plan, rng: random.Random) -> Plan:
    """The same where nothing is committed without all three: who is put out by a leader that does not hear it has all
    that is committed, and would be taken back for what it told before."""
    return replace(rotten(plan, rng), min_in_sync=3, replica_lag_time_max_ms=rng.choice((300.0, 1_000.0)))


def stalls(plan: Plan, rng: random.Random) -> Plan:
    """Processes stand still for some part of a time-out every moment, while others are cut off or dead for long."""
    return replace(
        plan,
        nodes=4,
        voters=1,
        topic_count=1,
        partitions=rng.choice((1, 2)),
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        replica_lag_time_max_ms=1_000.0,
        broker_session_timeout_ms=1_000.0,
        heartbeat_interval_ms=100.0,
        write_pauses_ms=(30.0, 100.0),
        quiet_ms=1_500.0,
        safety_ms=12_000.0,
        longest_cut_ms=8_000.0,
        links_of_nodes=True,
        faults=type(plan.faults)(
            stall=rng.choice((6.0, 12.0)),
            cut_two_ways=rng.choice((0.3, 0.8)),
            isolate=rng.choice((0.2, 0.5)),
            kill=rng.choice((0.0, 0.2)),
        ),
        operations=type(plan.operations)(),
    )
