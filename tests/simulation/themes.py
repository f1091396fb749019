"""Half of the seeds have a theme: the plan as drawn, narrowed to the faults that meet in one kind of trouble.

What needs three rare things in a row is seldom met where forty kinds of fault are drawn alike. A theme knows kinds of
trouble (disks, elections, memberships), never a wrong rule. Its weights say which fault comes how often beside the
others of the theme; how often one comes at all is `fault_pause_s`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.compacting_theme import compacting, recompacting
from tests.simulation.counting_theme import counting
from tests.simulation.damage_themes import damaged, scrubbed, unheard
from tests.simulation.large import large
from tests.simulation.narrowing import configured, of_brokers, weights
from tests.simulation.plan import Plan
from tests.simulation.proposing_theme import proposing
from tests.simulation.queuing_theme import queuing, redriving, shrinking
from tests.simulation.retiring_theme import retiring
from tests.simulation.sharing_theme import sharing
from tests.simulation.typed_theme import typed
from tests.simulation.users_theme import cut_off, quotas, users
from tests.simulation.voting_theme import voting


def calm(plan: Plan, chance: random.Random) -> Plan:
    """Nothing befalls the cluster: what is wrong at once shows at little cost. Not drawn."""
    return replace(
        plan, writers=1, queries=("q0",), producers=1, consumers=1, quiet_s=1.0, safety_s=0.5, faults={}, levels={}
    )


def disks(plan: Plan, chance: random.Random) -> Plan:
    """Few copies on slow disks, and crashes in a row: a disk has less than was said of it."""
    return replace(
        of_brokers(plan, 3),
        voters=chance.choice((1, 3)),
        partitions=chance.choice((1, 2, 3)),
        replication_factor=chance.choice((2, 2, 3)),
        sync_ms=chance.choice(((1.0, 40.0), (20.0, 200.0))),
        fault_pause_s=0.5,
        faults=weights(
            chance,
            kill=(1.0, 2.0),
            kill_all=(0.1, 0.3),
            power=(0.3, 1.0),
            power_early=1.0,
            power_all=(0.1, 0.3),
            death_in_disk=(0.0, 1.0),
            death_in_effects=(0.0, 1.0),
            disk_error=(0.0, 0.5),
            disk_error_at_start=(0.0, 0.5),
            hanging_disk=(0.0, 0.5),
        ),
    )


def emptied(plan: Plan, chance: random.Random) -> Plan:
    """A machine comes back with an empty disk, where little is written meanwhile, and hears the controller first."""
    return replace(
        of_brokers(plan, 4),
        voters=chance.choice((1, 3)),
        replication_factor=chance.choice((2, 3)),
        write_pause_s=chance.choice((0.1, 0.3)),
        fault_pause_s=0.7,
        faults=weights(
            chance,
            emptied_disk=1.0,
            kill=(0.6, 1.0),
            power=(0.0, 0.3),
            cut=(0.0, 1.0),
            wrong_voters=(0.0, 0.5),
            rot=(0.0, 0.3),
            restart=(0.0, 0.5),
        ),
    )


def forks(plan: Plan, chance: random.Random) -> Plan:
    """Leaders move on every moment between replicas that do not hear each other: each log gets a tail of its own."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        voters=1,
        partitions=chance.choice((1, 2)),
        replication_factor=chance.choice((2, 3, 3)),
        racks={1: "r0", 2: "r1", 3: "r2"},  # followers are read, and so tell what they take for committed
        consumers=3,
        consumer_racks=("r0", "r1", "r2"),
        configs=configured(
            plan,
            broker_session_timeout_ms=900,
            broker_heartbeat_interval_ms=150,
            replica_lag_time_max_ms=chance.choice((300, 2_000, 6_000)),
        ),
        fault_pause_s=0.4,
        write_pause_s=0.02,
        faults=weights(
            chance,
            cut=(1.0, 3.0),
            split=(0.0, 0.5, 1.0),
            slow_link=(0.0, 2.0),
            slow_disk=(0.0, 0.5, 1.5),
            reset_all=(0.0, 0.5),
            stand_still=(0.0, 0.3),
            kill=(0.0, 0.2),
            power=(0.0, 0.2),
            reassign=(2.0, 4.0),
            elect=(1.0, 2.0),
            isolate_leader=(0.0, 1.0),
        ),
    )


def clients(plan: Plan, chance: random.Random) -> Plan:
    """Programs are cut off, killed and stopped for seconds while leaders come and go."""
    return replace(
        of_brokers(plan, 3),
        partitions=1,
        producers=3,
        consumers=2,
        delivery_timeout_s=chance.choice((2.0, 2.0, 6.0)),
        fault_pause_s=0.7,
        faults=weights(
            chance,
            isolate_client=(1.5, 2.5),
            isolate_leader=(0.6, 0.9),
            isolate=(0.0, 0.2),
            kill_client=(0.0, 1.0),
            stalled_reader=(0.0, 1.0),
            stalled_writer=(0.0, 1.0),
            slow_link=(0.0, 1.0),
            reset=(0.0, 1.0),
            lossy_link=(0.0, 1.0),
            refuse=(0.0, 0.5),
            full_disk=(0.2, 0.6),
            kill=(0.0, 0.1),
            elect=1.0,
            group=(0.0, 1.0),
        ),
    )


def readers(plan: Plan, chance: random.Random) -> Plan:
    """Readers in racks, each at the replica that is near; some replicas are told late what is committed."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        partitions=1,
        racks={1: "r0", 2: "r1", 3: "r2"},
        consumers=4,
        consumer_racks=("r0", "r1", "r2"),
        window_bytes=chance.choice((4_096, 1 << 20)),
        fault_pause_s=0.5,
        faults=weights(
            chance,
            slow_link=(2.0, 4.0),
            reset=(0.5, 2.0),
            isolate_leader=(0.0, 0.3),
            isolate_client=(0.0, 0.3),
            stalled_reader=(0.5, 1.0),
            trim=(0.0, 1.0),
            latest=1.0,
            power=(0.0, 0.2),
            kill=(0.0, 0.3),
            elect=(0.5, 1.0),
        ),
    )


def members(plan: Plan, chance: random.Random) -> Plan:
    """Who is in sync changes all the time: followers fall behind and catch up, replicas are taken away and given back.

    Leaders mostly stay: a session with the controller outlasts most cuts, a lag does not."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    return replace(
        plan,
        voters=chance.choice((1, 3)),
        partitions=1,
        configs=configured(
            plan,
            replica_lag_time_max_ms=chance.choice((300, 600, 1_200)),
            replica_lag_max_records=chance.choice(("off", "10", "50")),
            broker_session_timeout_ms=6_000,
        ),
        write_pause_s=chance.choice((0.01, 0.1)),
        fault_pause_s=0.5,
        faults=weights(
            chance,
            cut_one_way=(0.3, 0.8),
            cut=(0.3, 0.8),
            isolate=(0.0, 0.5),
            slow_link=(0.0, 1.0),
            lossy_link=(0.0, 0.5),
            reset=(0.0, 0.5),
            slow_disk=(0.4, 1.2),
            hanging_disk=(0.0, 0.5),
            full_disk=(0.0, 0.5),
            kill=(0.0, 0.2),
            restart=(0.0, 0.4),
            reassign=(0.0, 1.0, 4.0),
            alter=(0.0, 0.5),
            elect=(0.0, 0.2),
        ),
    )


def stretched(plan: Plan, chance: random.Random) -> Plan:
    """Brokers are far from each other, clients are near, and write without a pause: a follower is always behind."""
    return replace(
        of_brokers(plan, 3),
        voters=chance.choice((1, 3)),
        partitions=1,
        replication_factor=chance.choice((2, 3)),
        latency_s=(0.00005, 0.0005),
        between_brokers_s=chance.choice((0.02, 0.05)),
        sync_ms=(0.05, 0.5),
        producers=2,
        write_pause_s=0.01,
        safety_s=8.0,
        faults=weights(
            chance, kill=0.4, restart=0.3, stand_still=0.2, cut=0.3, isolate=0.3, reset_all=0.3, elect=0.3, reassign=0.3
        ),
    )


def transactions(plan: Plan, chance: random.Random) -> Plan:
    """Programs with transactions, over a few partitions whose leaders and coordinators come and go."""
    plan = of_brokers(plan, 3)
    return replace(
        plan,
        voters=3,
        replication_factor=chance.choice((2, 3)),
        configs=configured(plan, segment_bytes=chance.choice((1_024, 4_096)), broker_session_timeout_ms=900),
        producers=1,
        consumers=1,
        writers=chance.choice((0, 2, 3)),
        queries=chance.choice(((), ("q0",), ("q0", "q1"))),
        write_pause_s=0.1,
        fault_pause_s=0.7,
        faults=weights(
            chance,
            kill=(0.2, 0.5),
            kill_all=(0.0, 0.1),
            power=(0.0, 0.2),
            restart=(0.0, 0.2),
            death_in_effects=(0.0, 0.3),
            stand_still=(0.0, 0.3),
            cut=(0.0, 1.0),
            isolate=(0.0, 0.2),
            isolate_client=(0.0, 0.5),
            kill_client=(0.5, 1.0),
            slow_link=(0.0, 1.0),
            lossy_link=(0.5, 1.0),
            reset=(0.5, 1.0),
            full_disk=(0.0, 0.2),
            elect=(0.0, 1.0),
            group=(0.0, 0.5),
        ),
    )


def coordinators(plan: Plan, chance: random.Random) -> Plan:
    """Queries that share a coordinator, whose log holds what each of them needs; each is late at times."""
    drawn = transactions(plan, chance)
    return replace(
        drawn,
        writers=0,
        queries=("q0", "q15", "q19"),  # their ids belong to one partition of `__transactions`
        configs=configured(drawn, broker_session_timeout_ms=600, broker_heartbeat_interval_ms=100),
        faults=weights(
            chance,
            kill=(0.2, 0.5),
            restart=(0.2, 0.5),
            stand_still=(0.0, 0.3),
            isolate_client=(0.0, 0.5),
            elect=(0.0, 1.0),
            group=(0.0, 1.0, 2.0),
            isolate=(0.0, 0.5, 1.0),
            cut=(0.0, 0.5),
        ),
    )


def epochs(plan: Plan, chance: random.Random) -> Plan:
    """A sick peer tells voters of epochs to come while they are restarted and cut off; some come back far ahead."""
    return replace(
        of_brokers(plan, 3),
        voters=3,
        partitions=1,
        write_pause_s=0.1,
        fault_pause_s=0.5,
        faults=weights(
            chance,
            sick_peer=(1.0, 4.0),
            stray_epoch=(0.0, 1.0),
            kill=(0.3, 1.0),
            kill_all=(0.0, 0.1),
            isolate=(0.0, 0.2),
            reset_all=(0.0, 0.3),
        ),
    )


def outages(plan: Plan, chance: random.Random) -> Plan:
    """Little happens until all machines lose power under load; then one of them stays away, or has a rotten disk."""
    return replace(
        of_brokers(plan, 3),
        voters=3,
        partitions=chance.choice((2, 4)),
        replication_factor=3,
        sync_ms=chance.choice(((1.0, 40.0), (20.0, 80.0))),  # something is being written everywhere
        write_pause_s=0.01,
        producers=2,
        outage=chance.choice(("absent", "rotten")),
        safety_s=8.0,
        fault_pause_s=2.0,
        faults=weights(chance, kill=(0.0, 0.3), power=(0.0, 0.2), restart=(0.0, 0.2), slow_link=(0.0, 1.0), elect=0.5),
    )


def settings(plan: Plan, chance: random.Random) -> Plan:
    """Half of a rolling change: brokers are configured differently, and otherwise at each start; topics are altered."""
    plan = replace(
        of_brokers(plan, 4),
        voters=chance.choice((1, 3)),
        replication_factor=chance.choice((2, 3)),
        fault_pause_s=0.6,
        faults=weights(
            chance,
            reconfigure=(1.0, 2.0),
            alter=(0.5, 2.0),
            retain=(0.0, 0.5),
            kill=(0.2, 0.5),
            restart=(0.0, 0.4),
            power=(0.0, 0.3),
            stand_still=(0.0, 0.3),
            cut=(0.5, 1.0),
            isolate_leader=(0.0, 0.3),
            slow_disk=(0.0, 0.3),
            topics=0.3,
        ),
    )
    return _saying_nothing(plan, chance) if chance.random() < 0.5 else plan


def _saying_nothing(plan: Plan, chance: random.Random) -> Plan:
    """The topic sets nothing, and is seldom altered: it has what the controller that makes it is configured with, and
    the brokers differ in just that. Where no machine loses power, in flush.policy, too."""
    own: dict[str, tuple[str, ...]] = {"min.insync.replicas": ("1", "2", "2")}
    if "power" not in plan.faults:
        own["flush.policy"] = ("fsync", "os")
    configs = {
        number: {**dict(configs), **{name: chance.choice(values) for name, values in own.items()}}
        for number, configs in plan.configs.items()
    }
    return replace(
        plan,
        topic_configs={},
        configs=configs,
        other_configs={**plan.other_configs, **own},
        faults={**plan.faults, "alter": 0.2},
    )


def voters(plan: Plan, chance: random.Random) -> Plan:
    """Who votes is in doubt: a voter comes back with an empty disk, some are told other voters, few are heard."""
    return replace(
        of_brokers(plan, 5),
        voters=3,
        partitions=1,
        replication_factor=2,
        producers=1,
        consumers=1,
        write_pause_s=0.1,
        fault_pause_s=0.5,
        faults=weights(
            chance,
            kill=(0.5, 1.0),
            isolate=(0.2, 0.6),
            reset_all=(0.0, 0.3),
            slow_link=(0.0, 1.0),
            emptied_disk=(0.0, 0.5),
            wrong_voters=(0.0, 2.0),
            topics=(0.0, 0.5),
        ),
    )


def trims(plan: Plan, chance: random.Random) -> Plan:
    """Records are deleted while followers are cut off from their leader: whoever comes back has them all, and more."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    return replace(
        plan,
        voters=chance.choice((1, 3)),
        partitions=chance.choice((1, 3)),
        configs=configured(plan, segment_bytes=chance.choice((1_024, 65_536)), replica_lag_time_max_ms=300),
        fault_pause_s=0.3,
        faults=weights(
            chance,
            trim=3.0,
            retain=(0.0, 1.0),
            cut=(1.0, 2.0),
            slow_link=(0.0, 1.0),
            reset=(0.0, 1.0),
            slow_disk=(0.0, 0.4),
            kill=(0.0, 0.3),
            power=(0.0, 0.3),
            elect=(0.0, 0.5),
            stalled_reader=(0.0, 0.5),
        ),
    )


def young(plan: Plan, chance: random.Random) -> Plan:
    """A cluster that was founded a moment ago: processes die as soon as they were told of topics, and come back on slow
    disks, over connections that break: they know less of the cluster than their disks have."""
    return replace(
        of_brokers(plan, chance.choice((3, 4))),
        voters=3,
        replication_factor=chance.choice((2, 3)),
        quiet_s=0.0,
        safety_s=6.0,
        fault_pause_s=0.2,
        faults=weights(
            chance,
            kill=(1.0, 2.0),
            kill_all=(0.0, 0.3),
            power_early=(0.0, 1.0),
            slow_disk=(1.0, 2.0),
            slow_link=(0.0, 2.0),
            lossy_link=(0.0, 1.0),
            reset=(0.0, 2.0),
            refuse=(0.0, 1.0),
            topics=(0.5, 1.0),
        ),
    )


def stalls(plan: Plan, chance: random.Random) -> Plan:
    """Processes stand still for some part of a time-out every moment, while others are cut off or dead for long."""
    plan = of_brokers(plan, 4)
    return replace(
        plan,
        voters=chance.choice((1, 3)),
        partitions=chance.choice((1, 2)),
        configs=configured(
            plan, replica_lag_time_max_ms=1_000, broker_session_timeout_ms=1_000, broker_heartbeat_interval_ms=100
        ),
        fault_pause_s=0.5,
        lasting=3.0,
        faults=weights(
            chance, late=(4.0, 8.0), stand_still=(0.0, 1.0), cut=(0.3, 0.8), isolate=(0.2, 0.5), kill=(0.0, 0.2)
        ),
    )


def sick_machine(plan: Plan, chance: random.Random) -> Plan:
    """One machine is sick for long in one way after the other, all others are well: all goes on without it."""
    plan = of_brokers(plan, chance.choice((3, 4)))
    return replace(
        plan,
        voters=3,
        partitions=3,
        replication_factor=3,
        sick=chance.choice((1, 2, 3)),
        lasting=4.0,
        safety_s=30.0,
        fault_pause_s=6.0,
        producers=1,
        write_pause_s=0.1,
        configs=configured(plan, replica_lag_time_max_ms=1_000, broker_session_timeout_ms=1_500),
        faults=weights(
            chance,
            cut=(0.0, 1.0),
            cut_one_way=(0.0, 1.0),
            isolate=(0.0, 0.5),
            hanging_disk=(0.0, 1.0),
            disk_error=(0.0, 1.0),
            disk_error_at_start=(0.0, 0.5),
            full_disk=(0.0, 1.0),
            kill=(0.0, 0.5),
            late=(0.0, 0.5),
            stand_still=(0.0, 1.0),
            refuse=(0.0, 0.5),
            restart=0.2,
        ),
    )


def unsynced(plan: Plan, chance: random.Random) -> Plan:
    """flush.policy goes to and fro while machines lose power."""
    return replace(
        of_brokers(plan, chance.choice((3, 4))),
        policies=("fsync", "os", "os"),
        least_min=2,
        topic_configs={"min.insync.replicas": "2", "flush.policy": chance.choice(("fsync", "os"))},
        fault_pause_s=1.0,
        faults=weights(
            chance,
            alter=(1.0, 2.0),
            power=(0.5, 1.0),
            power_all=(0.0, 0.1),
            power_early=(0.0, 0.3),
            kill=(0.3, 1.0),
            kill_all=(0.0, 0.2),
            cut=(0.0, 0.5),
            restart=(0.0, 0.5),
            elect=(0.0, 0.5),
        ),
    )


def unclean(plan: Plan, chance: random.Random) -> Plan:
    """Leaders that are in sync alone are cut off from all brokers, and not from clients; another leads uncleanly."""
    plan = of_brokers(plan, 4)
    return replace(
        plan,
        voters=1,
        partitions=3,
        replication_factor=2,
        min_in_sync=1,
        writers=0,
        topic_configs={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
        configs=configured(
            plan, replica_lag_time_max_ms=300, broker_session_timeout_ms=600, broker_heartbeat_interval_ms=100
        ),
        write_pause_s=0.03,
        fault_pause_s=0.5,
        faults=weights(
            chance, cut=(1.5, 3.0), isolate_leader=(0.5, 1.0), stand_still=(0.0, 0.3), kill=(0.0, 0.3), power=(0.0, 0.2)
        ),
    )


THEMES: dict[str, Callable[[Plan, random.Random], Plan]] = {
    each.__name__: each
    for each in (
        calm, disks, damaged, unheard, emptied, forks, clients, readers, members, stretched, transactions, coordinators,
        epochs, outages, settings, voters, trims, young, stalls, sick_machine, unsynced, unclean,
        typed, users, quotas, cut_off, large, retiring, scrubbed, voting, sharing, counting,
        compacting, recompacting, queuing, redriving, shrinking, proposing,
    )
}  # fmt: skip
_UNDRAWN = (
    calm, cut_off, large, scrubbed, voting, sharing, counting, compacting, recompacting, queuing, redriving, shrinking,
    proposing,
)  # fmt: skip
DRAWN = tuple(name for name, theme in THEMES.items() if theme not in _UNDRAWN)
