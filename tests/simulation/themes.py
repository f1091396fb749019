"""Half of the seeds have a theme: the plan as drawn, narrowed to the faults that meet in one kind of trouble.

What needs three rare things in a row is seldom met where twenty kinds of fault are drawn alike. A theme knows kinds of
trouble (disks, elections, memberships), never a wrong rule. "transactions" is of half of the seeds that
have them, which are drawn apart, as those of "outages" are (plan.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.themes_asked_for import rotten, stalls, trims, unheard, voters, young

if TYPE_CHECKING:
    from tests.simulation.plan import FaultRates, Plan


def disks(plan: Plan, rng: random.Random) -> Plan:
    """Few copies on slow disks, where either bits rot or crashes come in a row: a disk has less than was said of it."""
    rot = rng.random() < 0.4
    return replace(
        plan,
        nodes=3,
        voters=rng.choice((1, 3)),
        topic_count=1,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=rng.choice((2, 2, 3) if rot else (1, 2)),
        min_in_sync=rng.choice((1, 1, 2)),
        flush_on_append=True,
        segment_bytes=rng.choice((4_096, 1 << 20, 1 << 20)),
        sync_ms=rng.choice(((1.0, 40.0), (20.0, 200.0), (50.0, 300.0))),
        fetch_credit_bytes=64_000,  # less does not keep up with the load of the liveness phase on such a disk
        replica_lag_time_max_ms=2_000.0,
        checkpoint_interval_ms=rng.choice((200.0, 1_000.0)),
        quiet_ms=1_000.0,
        safety_ms=12_000.0,
        operations=replace(plan.operations, create_topic=0.0, delete_topic=0.0, reassign=0.0),
        faults=type(plan.faults)(
            kill=rng.choice((0.3, 1.0) if rot else (1.0, 2.0)),
            kill_of_all=rng.choice((0.1, 0.3)),
            power_loss=rng.choice((0.0, 0.3)) if rot else 0.0,
            power_loss_early=0.0 if rot else 1.0,
            power_loss_of_all=rng.choice((0.1, 0.3)),
            crash_in_disk=rng.choice((0.0, 0.3)),
            bit_flip=3.0 if rot else 0.0,
        ),
    )


def forks(plan: Plan, rng: random.Random) -> Plan:
    """Leaders move on every moment, between replicas that do not hear each other: each log gets a tail of its own.

    The controller is heard by all, mostly, and a member that lags is kept for long: whoever leads next is behind.
    """
    lag_ms = rng.choice((300.0, 2_000.0, 6_000.0))
    faults = type(plan.faults)(
        cut_nodes=rng.choice((1.0, 3.0)),
        split=rng.choice((0.0, 0.5, 1.0)),
        slow_link=rng.choice((0.0, 4.0)),
        slow_disk=rng.choice((0.0, 0.5, 1.5)),
        reset_all=rng.choice((0.0, 0.5)),
        pause=rng.choice((0.0, 0.3)),
        kill=rng.choice((0.0, 0.2)),
        power_loss=rng.choice((0.0, 0.2)),
    )
    return replace(
        plan,
        nodes=3,
        voters=1,
        topic_count=1,
        partitions=rng.choice((1, 2)),
        replication_factor=rng.choice((2, 3, 3, 3)),
        min_in_sync=rng.choice((1, 1, 2)),
        flush_on_append=True,
        broker_session_timeout_ms=900.0,
        heartbeat_interval_ms=150.0,
        replica_lag_time_max_ms=lag_ms,
        producer_counts=(2, 3),
        acks=("all", "1", "0"),
        write_pauses_ms=(8.0, 30.0),
        # With a lag time of a few syncs nobody could ever be called caught up.
        sync_ms=rng.choice(((0.1, 5.0), (1.0, 40.0), (20.0, 100.0) if lag_ms > 1_000.0 else (0.1, 5.0))),
        fetch_credit_bytes=64_000,  # what slow disks are given in the time of a sync
        quiet_ms=500.0,
        faults=faults,
        operations=type(plan.operations)(lead_elsewhere=rng.choice((2.0, 4.0, 8.0))),
    )


def emptied(plan: Plan, rng: random.Random) -> Plan:
    """Brokers come back with empty disks, where little is written meanwhile, and hear the controller before others."""
    faults = type(plan.faults)(
        kill=rng.choice((0.6, 1.0)),
        power_loss=rng.choice((0.0, 0.3)),
        wipe=5.0,
        cut_nodes=rng.choice((2.0, 4.0)),
        bit_flip=rng.choice((0.0, 0.5)),
    )
    return replace(
        plan,
        nodes=4,
        voters=1,
        topic_count=2,
        partitions=3,
        replication_factor=rng.choice((2, 3)),
        min_in_sync=rng.choice((1, 2)),
        flush_on_append=True,
        broker_session_timeout_ms=3_000.0,
        heartbeat_interval_ms=rng.choice((50.0, 150.0)),
        producer_counts=(1, 2),
        write_pauses_ms=(100.0, 300.0),
        quiet_ms=1_000.0,
        safety_ms=12_000.0,
        faults=faults,
        operations=type(plan.operations)(),
    )


def clients(plan: Plan, rng: random.Random) -> Plan:
    """Users are cut off for seconds while leaders come and go, and take up then what they had begun before."""
    faults = type(plan.faults)(
        isolate=rng.choice((0.0, 0.2)),
        isolate_leader=rng.choice((0.6, 0.9)),
        isolate_client=rng.choice((1.5, 2.5)),
        slow_link=rng.choice((0.0, 2.0)),
        reset=rng.choice((0.0, 1.0)),
        disk_full=rng.choice((0.2, 0.6)),
        kill=rng.choice((0.0, 0.1)),
    )
    return replace(
        _one_partition(plan, rng, faults=faults),
        replication_factor=rng.choice((1, 3, 3, 3)),
        broker_session_timeout_ms=600.0,
        heartbeat_interval_ms=150.0,
        longest_cut_ms=2_500.0,
        producer_counts=(2, 3),
        delivery_timeouts_ms=(12_000, 20_000),
        safety_ms=15_000.0,
    )


def readers(plan: Plan, rng: random.Random) -> Plan:
    """Readers in racks, each at the replica that is near; some replicas are told late what is committed."""
    faults = type(plan.faults)(
        isolate_leader=rng.choice((0.0, 0.2)),
        isolate_client=rng.choice((0.0, 0.3)),
        slow_link=rng.choice((2.0, 4.0)),
        reset=rng.choice((0.5, 2.0)),
        power_loss=rng.choice((0.0, 0.2)) if plan.flush_on_append else 0.0,
    )
    return replace(
        _one_partition(plan, rng, faults=faults),
        consumer_counts=(3, 4),
        consumer_racks=("r1", "r2"),
        take_over_share=0.3,
    )


def _one_partition(plan: Plan, rng: random.Random, faults: FaultRates) -> Plan:
    """Three nodes, one partition on all of them that is written much, and leaders that go home soon."""
    return replace(
        plan,
        nodes=3,
        voters=3,
        topic_count=1,
        partitions=1,
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        replica_lag_time_max_ms=600.0,
        session_keepalive_ms=100.0,
        write_pauses_ms=(8.0, 30.0, 100.0),
        faults=faults,
        operations=type(plan.operations)(move_leader=rng.choice((0.5, 1.0, 2.0))),
    )


def members(plan: Plan, rng: random.Random) -> Plan:
    """Who is in sync changes all the time: followers fall behind and catch up, replicas are taken away and given back.

    Leaders mostly stay: a session with the controller outlasts most cuts, a lag does not.
    """
    return replace(
        plan,
        nodes=rng.choice((3, 4)),
        voters=rng.choice((1, 1, 3)),
        topic_count=1,
        partitions=1,
        replication_factor=3,
        min_in_sync=rng.choice((1, 2)),
        replica_lag_time_max_ms=rng.choice((300.0, 600.0, 1_200.0)),
        broker_session_timeout_ms=6_000.0,
        quiet_ms=1_500.0,
        safety_ms=12_000.0,
        write_pauses_ms=(30.0, 300.0, 1_000.0),
        load_pause_ms=100.0,
        links_of_nodes=True,
        faults=type(plan.faults)(
            kill=rng.choice((0.0, 0.2)),
            clean_restart=rng.choice((0.0, 0.4)),
            cut_one_way=rng.choice((0.3, 0.8)),
            cut_two_ways=rng.choice((0.3, 0.8)),
            isolate=rng.choice((0.0, 0.5)),
            slow_link=rng.choice((0.0, 1.0)),
            lossy_link=rng.choice((0.0, 0.5)),
            reset=rng.choice((0.0, 0.5)),
            slow_disk=rng.choice((0.4, 1.2)),
            disk_full=rng.choice((0.0, 0.5)),
        ),
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.2)), reassign=rng.choice((0.0, 1.0, 4.0))),
    )


def stretched(plan: Plan, rng: random.Random) -> Plan:
    """Brokers are far from each other, clients are near, and write without a pause: a follower is always behind."""
    return replace(
        plan,
        nodes=3,
        voters=rng.choice((1, 3)),
        topic_count=1,
        partitions=1,
        replication_factor=rng.choice((2, 2, 3)),
        min_in_sync=1,
        latency_ms=(0.05, 0.5),
        between_nodes_ms=rng.choice((20.0, 40.0)),
        sync_ms=(0.05, 0.5),
        fetch_credit_bytes=1 << 20,  # what is under way on long lines
        quiet_ms=1_500.0,
        safety_ms=4_000.0,
        liveness_ms=15_000.0,  # no less than a delivery time-out takes
        producer_counts=(2, 3),
        write_pauses_ms=(8.0, 30.0),
        load_pause_ms=10.0,
        faults=type(plan.faults)(kill=0.4, clean_restart=0.3, pause=0.2, cut_two_ways=0.3, isolate=0.3, reset_all=0.3),
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.3)), reassign=rng.choice((0.0, 0.3))),
    )


def transactions(plan: Plan, rng: random.Random) -> Plan:
    """Spark sinks over a few partitions, whose leaders and coordinators come and go; little else is in the way."""
    faults = type(plan.faults)(
        kill=rng.choice((0.2, 0.5)),
        kill_of_all=rng.choice((0.0, 0.1)),
        power_loss=rng.choice((0.0, 0.2)),
        clean_restart=rng.choice((0.0, 0.2)),
        crash_in_effects=rng.choice((0.0, 0.3)),
        pause=rng.choice((0.0, 0.3)),
        cut_nodes=rng.choice((0.0, 1.0)),
        isolate=rng.choice((0.0, 0.2)),
        isolate_client=rng.choice((0.0, 0.5)),
        slow_link=rng.choice((0.0, 1.0)),
        lossy_link=rng.choice((0.5, 2.0)),
        reset=rng.choice((0.5, 2.0)),
        disk_full=rng.choice((0.0, 0.2)),
    )
    return replace(
        plan,
        nodes=3,
        voters=3,
        topic_count=1,
        partitions=rng.choice((1, 2, 3)),
        replication_factor=rng.choice((2, 3)),
        flush_on_append=True,
        segment_bytes=rng.choice((1_024, 4_096)),
        broker_session_timeout_ms=900.0,
        heartbeat_interval_ms=150.0,
        replica_lag_time_max_ms=2_000.0,
        sync_ms=rng.choice(((0.05, 0.5), (0.1, 5.0), (1.0, 40.0))),
        producer_counts=(1,),
        consumer_counts=(2,),
        write_pauses_ms=(100.0, 300.0),
        load_pause_ms=30.0,
        quiet_ms=1_500.0,
        safety_ms=8_000.0,
        transactions=True,
        faults=faults,
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.5)), lead_elsewhere=rng.choice((0.0, 1.0))),
    )


def epochs(plan: Plan, rng: random.Random) -> Plan:
    """A sick peer tells voters of epochs to come while they are restarted and cut off; some come back far ahead."""
    return replace(
        plan,
        nodes=3,
        voters=3,
        topic_count=1,
        partitions=1,
        replication_factor=3,
        write_pauses_ms=(100.0, 300.0),
        quiet_ms=1_500.0,
        safety_ms=8_000.0,
        faults=type(plan.faults)(
            kill=rng.choice((0.1, 0.4)),
            kill_of_all=rng.choice((0.0, 0.1)),
            isolate=rng.choice((0.0, 0.2)),
            reset_all=rng.choice((0.0, 0.3)),
            sick_peer=rng.choice((1.0, 4.0)),
            stray_epoch=rng.choice((0.0, 1.0)),
        ),
        operations=type(plan.operations)(),
    )


def outages(plan: Plan, rng: random.Random) -> Plan:
    """Little happens until all machines lose power under load; then one of them stays away, or has a rotten disk."""
    faults = type(plan.faults)(
        kill=rng.choice((0.0, 0.3)),
        power_loss=rng.choice((0.0, 0.2)),
        clean_restart=rng.choice((0.0, 0.2)),
        slow_link=rng.choice((0.0, 1.0)),
    )
    return replace(
        plan,
        nodes=3,
        voters=3,
        topic_count=1,
        partitions=rng.choice((2, 4)),
        replication_factor=rng.choice((2, 2, 3, 3)),
        min_in_sync=rng.choice((1, 1, 2)),
        flush_on_append=True,
        segment_bytes=rng.choice((4_096, 1 << 20)),
        sync_ms=rng.choice(((1.0, 40.0), (20.0, 80.0), (20.0, 80.0))),  # something is being written everywhere
        fetch_credit_bytes=64_000,
        replica_lag_time_max_ms=2_000.0,
        broker_session_timeout_ms=rng.choice((900.0, 3_000.0)),
        heartbeat_interval_ms=150.0,
        checkpoint_interval_ms=rng.choice((500.0, 5_000.0)),
        producer_counts=(2, 3),
        write_pauses_ms=(8.0,),
        quiet_ms=1_500.0,
        safety_ms=8_000.0,
        liveness_ms=45_000.0,  # a torn copy waits for another to compare with (torn_tails.py)
        outage=rng.choice(("absent", "rotten")),
        faults=faults,
        operations=type(plan.operations)(move_leader=rng.choice((0.0, 0.5))),
    )


def settings(plan: Plan, rng: random.Random) -> Plan:
    """Half of a rolling change: brokers are configured differently, and otherwise at each start; topics are altered.

    Followers are cut off from leaders, and not from the controller: who is eligible, and what is committed, is the
    matter of two brokers."""
    power = rng.choice((0.0, 0.3))
    return replace(
        plan,
        nodes=4,
        voters=rng.choice((1, 3)),
        topic_count=1,
        partitions=rng.choice((1, 2)),
        replication_factor=rng.choice((2, 2, 3)),
        flush_on_append=True,
        configured_min=(1, 2),
        configured_flush=rng.choice(((True,), (True, True, False))),
        replica_lag_time_max_ms=rng.choice((300.0, 600.0)),
        broker_session_timeout_ms=rng.choice((900.0, 3_000.0)),
        heartbeat_interval_ms=150.0,
        quiet_ms=1_500.0,
        safety_ms=10_000.0,
        producer_counts=(1, 2),
        write_pauses_ms=(8.0, 30.0, 100.0),
        links_of_nodes=True,
        faults=type(plan.faults)(
            kill=rng.choice((0.2, 0.5)),
            clean_restart=rng.choice((0.0, 0.4)),
            power_loss=power,
            power_loss_of_all=power / 4,
            pause=rng.choice((0.0, 0.3)),
            cut_nodes=rng.choice((1.0, 3.0)),
            isolate_leader=rng.choice((0.0, 0.3)),
            slow_disk=rng.choice((0.0, 0.3)),
        ),
        operations=type(plan.operations)(
            create_topic=0.3,
            move_leader=rng.choice((0.0, 0.5)),
            alter_min=rng.choice((0.0, 0.5, 2.0)),
            alter_flush=rng.choice((0.0, 0.5, 2.0)),
        ),
    )


def unclean(plan: Plan, rng: random.Random) -> Plan:
    """Leaders that are in sync alone are cut off from all nodes, and not from clients; another is elected uncleanly."""
    return replace(
        plan,
        nodes=4,
        voters=1,
        topic_count=1,
        partitions=3,
        replication_factor=2,
        min_in_sync=1,
        unclean_election=True,
        replica_lag_time_max_ms=300.0,
        broker_session_timeout_ms=600.0,
        heartbeat_interval_ms=100.0,
        quiet_ms=1_500.0,
        safety_ms=10_000.0,
        producer_counts=(2, 3),
        acks=("all", "1"),
        write_pauses_ms=(30.0, 100.0),
        links_of_nodes=True,
        faults=type(plan.faults)(
            cut_nodes=rng.choice((1.5, 3.0)),
            isolate_leader=rng.choice((0.2, 0.4)),
            pause=rng.choice((0.0, 0.3)),
            kill=rng.choice((0.0, 0.2)),
        ),
        operations=type(plan.operations)(),
    )


def coordinators(plan: Plan, rng: random.Random) -> Plan:
    """Queries that share a coordinator, whose log holds what each of them needs; each is late at times."""
    drawn = transactions(plan, rng)
    return replace(
        drawn,
        sinks=("q0", "q15", "q19"),  # their ids belong to one partition of `__transactions`
        broker_session_timeout_ms=600.0,
        heartbeat_interval_ms=100.0,
        safety_ms=12_000.0,
        faults=type(plan.faults)(
            kill=rng.choice((0.2, 0.5)),
            clean_restart=rng.choice((0.2, 0.5)),
            pause=rng.choice((0.0, 0.3)),
            isolate_client=rng.choice((0.0, 0.5)),
        ),
        operations=type(plan.operations)(lead_elsewhere=rng.choice((0.0, 1.0))),
    )


THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {
    "disks": disks,
    "forks": forks,
    "emptied": emptied,
    "clients": clients,
    "readers": readers,
    "members": members,
    "stretched": stretched,
}
_DRAWN = tuple(THEMES)  # in this order, for good: a seed keeps its theme
THEMES["transactions"] = transactions
THEMES["epochs"] = epochs
THEMES["outages"] = outages
THEMES["settings"] = settings
THEMES["unclean"] = unclean
# No seed has these by itself: they are asked for.
THEMES["voters"] = voters
THEMES["coordinators"] = coordinators
THEMES["trims"] = trims
THEMES["young"] = young
THEMES["rotten"] = rotten
THEMES["unheard"] = unheard
THEMES["stalls"] = stalls
ASKED_FOR = ("epochs", "voters", "coordinators", "trims", "young", "rotten", "unheard", "stalls")
THEMED_SHARE = 0.5


def narrowed(plan: Plan, seed: int, name: str | None = None) -> Plan:
    """The plan of a seed under its theme, if it has one; under the theme `name` where that is asked for."""
    rng = random.Random(f"theme {seed}")
    if name is None and THEMES and rng.random() < THEMED_SHARE:
        name = rng.choice(_DRAWN)
    return plan if name is None else THEMES[name](plan, rng)
