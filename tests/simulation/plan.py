"""What one seed does: how large the cluster is, how it is configured, and which faults it meets how often."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from minilog.versions import VersionRange

FAULTS = (
    # faults/processes.py
    "kill", "kill_all", "power", "power_all", "power_early", "restart", "reconfigure", "wrong_voters", "stand_still",
    "late", "wall_clock", "death_in_disk", "death_in_effects", "never_returns",
    # faults/disks.py
    "slow_disk", "hanging_disk", "hanging_reads", "disk_error", "disk_error_at_start", "full_disk",
    # faults/damage.py
    "rot", "rot_of_header", "rot_of_index", "rot_of_small_file", "rot_of_metadata", "emptied_disk",
    # of plans in which a scrub never rests: faults/forgery.py
    "forge",
    # faults/links.py
    "cut", "cut_one_way", "isolate", "isolate_leader", "isolate_client", "split", "slow_link", "lossy_link", "reset",
    "reset_all", "refuse", "cut_to_the_end",
    # faults/peers.py
    "sick_peer", "stray_epoch",
    # faults/programs.py
    "kill_client", "stalled_reader", "stalled_writer", "alter", "retain", "trim",
    # of plans with compacted topics: faults/programs.py
    "alter_compaction",
    # operations.py
    "elect", "reassign", "topics", "latest", "group",
    # of plans with two versions: faults/processes.py, operations.py
    "other_version", "upgrade",
    # of plans with a typed topic: operations.py
    "evolve", "lie",
    # of plans in which somebody alters users, access rules and quotas: operations.py
    "secure",
    # of plans in which settings of brokers change while they run: operations.py
    "settings",
    # of plans in which users are known: operations.py, faults/links.py
    "access", "quota", "cut_from_rules",
    # of plans in which brokers go: operations.py
    "cordon", "decommission", "forget",
    # of plans in which the voters change: operations.py
    "change_voters",
    # of plans with members of a group, or with workers of a queue: faults/links.py, faults/processes.py
    "depose", "death_of_coordinator",
)  # fmt: skip
_OF_VERSIONS = ("other_version", "upgrade")
_OF_TYPED = ("evolve", "lie")
_OF_RETIRING = ("cordon", "decommission", "forget")
_OF_COMPACTED = ("alter_compaction",)
_OF_SCRUBBED = ("forge",)
_OF_SHARING = ("depose", "death_of_coordinator")
_IN_TURN = ("settings", "change_voters")  # drawn where a plan asks for them
_OF_SECURED = ("secure", "access", "quota", "cut_from_rules")
OLDEST, OLDER, LATER = VersionRange(1, 1), VersionRange(1, 2), VersionRange(1, 6)  # the levels of brokers of versions
_LASTING = ("never_returns", "cut_to_the_end")  # once in a run at most, and not beside each other
DAMAGES = frozenset(
    ("rot", "rot_of_header", "rot_of_index", "rot_of_small_file", "rot_of_metadata", "emptied_disk")
)  # fmt: skip
LOSES_POWER = frozenset(
    ("power", "power_all", "power_early", "never_returns", "death_in_disk", "death_in_effects", "emptied_disk",
     "death_of_coordinator",
     "rot_of_small_file", "rot_of_metadata")
)  # fmt: skip
THEMED_SHARE = 0.5
MIXED_SHARE = 0.5  # of the plans without a theme
ANY_LOG = ("t", "s", "x", "__transactions", "__groups")  # of whose copies anything may rot
TWO_VERSIONS_SHARE = 0.5  # of the plans without a theme
OLDEST_SHARE = 0.3  # of the plans of two versions
TYPED_SHARE = 0.2  # of the plans without a theme
SECURED_SHARE = 0.2  # of the plans without a theme
SETTINGS_SHARE = 0.2  # of the plans without a theme
USERS_SHARE = 0.2  # of the plans without a theme, and of brokers of one version
LABELLED_SHARE = 0.5  # of the plans without a theme, and without brokers of an older version
FAULT_SHARE = 0.4  # of the seeds without a theme that have it
LASTING_SHARE = 0.3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plan:
    """Times in seconds of true time. `configs` by broker, where the configuration differs, and `other_configs` are what
    it may be changed to. `topic_configs` are those of the topic that is written to."""

    theme: str = ""
    brokers: int = 3
    voters: int = 3
    topics: int = 1
    partitions: int = 2
    silent_partitions: int = 0  # of a topic that nobody writes to
    look_s: float = 0.2  # between the judge's looks at all disks
    replication_factor: int = 3
    min_in_sync: int = 2
    least_min: int = 1  # to which it may be altered
    configs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    other_configs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    clock_rates: Mapping[int, float] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    host_labels: Mapping[int, str] = field(default_factory=dict)
    levels: Mapping[int, VersionRange] = field(default_factory=dict)  # that brokers support; none: all the same
    older: VersionRange = OLDER  # of a broker that comes back as another version
    latency_s: tuple[float, float] = (0.00005, 0.0005)
    between_brokers_s: float = 0.0  # beside the latency
    window_bytes: int = 1 << 20
    sync_ms: tuple[float, float] = (0.1, 3.0)
    read_bytes_per_s: float = 1e9
    read_ms: tuple[float, float] = (0.1, 1.0)  # of what is not in memory, besides
    cold_share: float = 0.0  # of the reads for followers and consumers: they are not in memory
    read_seed: int = 0
    out_of_order: bool = False  # what was not synced reaches a disk in any order
    policies: tuple[str, ...] = ("fsync",)  # of flush.policy
    producers: int = 2
    acks: tuple[str, ...] = ("all",)  # of producers; one at least waits for all
    consumers: int = 1
    consumer_racks: tuple[str, ...] = ("",)
    writers: int = 0  # programs with transactions
    queries: tuple[str, ...] = ()  # with Spark's sink
    sharing: int = 0  # members of a group
    queuing: int = 0  # workers of a queue
    redriving: bool = False  # its dead letters are redriven, again and again
    proposing: int = 0  # programs whose writes bring new columns
    compacted: bool = False  # the topics that are written to are compacted, and so is that of transactions
    dedupe_buffer_bytes: int = 0  # of the cleaners, where it is smaller than a broker's setting allows
    counting: bool = False  # a program counts records by the headers of batches
    typed: bool = False  # the topics that are written to have a schema
    filtered: int = 0  # readers of a typed topic that want some rows
    users: bool = False  # everybody is known, and what no rule allows is refused
    glutton: bool = False  # one of them does as much as he can, under quotas
    write_pause_s: float = 0.02
    delivery_timeout_s: float = 10.0
    quiet_s: float = 2.0
    safety_s: float = 15.0
    liveness_s: float = 40.0
    faults: Mapping[str, float] = field(default_factory=dict)  # weights; none: nothing happens
    fault_pause_s: float = 1.0
    lasting: float = 1.0  # so many times as long as else a fault lasts
    sick: int = 0  # the broker whose machine all of it befalls; 0: any
    rotting: tuple[str, ...] = ("t0-",)  # logs of which the weak machine's copies may rot
    outage: str = ""  # in the end all lose power, and one stays away ("absent") or comes back "rotten"

    @property
    def voter_ids(self) -> range:
        return range(1, self.voters + 1)

    @property
    def moves(self) -> bool:
        """Replicas move to other brokers."""
        return "reassign" in self.faults or "decommission" in self.faults

    @property
    def rots(self) -> bool:
        """What lies on a disk may be what nobody wrote there."""
        return bool(DAMAGES & self.faults.keys()) or bool(self.outage)

    @property
    def unclean(self) -> bool:
        return self.topic_configs.get("unclean.leader.election.enable") == "true"

    @classmethod
    def draw(cls, seed: int, theme: str | None = None) -> Plan:
        """The plan of a seed: with its own theme or none, or with `theme`."""
        from tests.simulation.themes import DRAWN, THEMES  # a theme is a function of plans

        chance = random.Random(f"theme {seed}")
        if theme is None and chance.random() < THEMED_SHARE:
            theme = max(DRAWN, key=lambda name: _own(seed, name).random())
        queries = _own(seed, "queries").choice(((), (), ("q0",), ("q0", "q1")))
        plan = cls._draw(random.Random(f"plan {seed}"), _draw_faults(seed), queries)
        if theme is not None:
            plan = replace(THEMES[theme](plan, chance), theme=theme)
        else:
            plan = _mixed(plan, _own(seed, "mixed"))
        if theme is None and (typed := random.Random(f"typed plan {seed}")).random() < TYPED_SHARE:
            faults = {**plan.faults, "evolve": typed.choice((0.5, 2.0)), "lie": typed.choice((0.0, 0.2))}
            plan = replace(plan, typed=True, filtered=typed.choice((1, 2)), faults=faults)
        if theme is None and (versions := random.Random(f"versions {seed}")).random() < TWO_VERSIONS_SHARE:
            is_oldest = not plan.typed and random.Random(f"oldest {seed}").random() < OLDEST_SHARE
            plan = _of_two_versions(plan, versions, OLDEST if is_oldest else OLDER)
        if theme is None and (secured := random.Random(f"secured plan {seed}")).random() < SECURED_SHARE:
            plan = replace(plan, faults={**plan.faults, "secure": secured.choice((0.5, 2.0))})
        if theme is None and (settings := random.Random(f"settings plan {seed}")).random() < SETTINGS_SHARE:
            plan = replace(plan, faults={**plan.faults, "settings": settings.choice((0.5, 2.0))})
        if theme is None and not plan.levels and (users := random.Random(f"users {seed}")).random() < USERS_SHARE:
            plan = with_users(plan, users)
        if theme is None and not plan.levels and random.Random(f"labelled plan {seed}").random() < LABELLED_SHARE:
            plan = replace(plan, host_labels={number: f"m{number % 4}" for number in plan.configs})
        plan = _cold(plan, _own(seed, "cold"), seed)
        return _sound(plan, random.Random(f"policy {seed}"))

    @classmethod
    def _draw(cls, draw: random.Random, faults: Mapping[str, float], queries: tuple[str, ...]) -> Plan:
        brokers = draw.choice((3, 3, 3, 4, 5))
        factor = draw.choice((3, 3, 2))
        base = {
            "replica.lag.time.max.ms": str(draw.choice((500, 1_000, 3_000))),
            "replica.lag.max.records": draw.choice(("off", "off", "20", "200")),
            "broker.session.timeout.ms": str(draw.choice((1_500, 3_000))),
            "broker.heartbeat.interval.ms": str(draw.choice((150, 300))),
            "segment.bytes": str(draw.choice((4_096, 65_536, 1 << 20))),
            "log.retention.check.interval.ms": "1000",
            "follower.replication.throttled.rate.bytes": draw.choice(("off", "off", "200000")),
            "delete.delay.ms": draw.choice(("500", "60000")),
            "controlled.shutdown.timeout.ms": draw.choice(("500", "5000")),
            "metadata.log.max.record.bytes.between.snapshots": draw.choice(("2000", "16777216")),
            "leader.imbalance.check.interval.ms": "2000",
            "auto.leader.rebalance.enable": draw.choice(("true", "false")),
        }
        configs = {number: dict(base) for number in range(1, brokers + 1)}
        for number in configs:  # half of a rolling change
            if draw.random() < 0.2:
                configs[number]["min.insync.replicas"] = draw.choice(("1", "2"))
        near = draw.choice(((0.00005, 0.0005), (0.0005, 0.005)))
        return cls(
            brokers=brokers,
            voters=draw.choice((1, 3, 3, 5 if brokers == 5 else 3)),
            partitions=draw.choice((1, 2, 3)),
            replication_factor=factor,
            configs=configs,
            other_configs={
                "replica.lag.time.max.ms": ("500", "1000", "3000"),
                "replica.lag.max.records": ("off", "20", "200"),
                "broker.session.timeout.ms": ("1500", "3000"),
                "broker.heartbeat.interval.ms": ("150", "300"),
                "min.insync.replicas": ("1", "2"),
                "segment.bytes": ("4096", "65536"),
                "session.keepalive.ms": ("50", "100"),
                "quorum.election.timeout.ms": ("150", "300"),
                "quorum.fetch.timeout.ms": ("600", "1000"),
                "metadata.log.max.record.bytes.between.snapshots": ("2000", "16777216"),
                "replica.fetch.max.bytes": ("20000", "16777216"),
            },
            topic_configs={"min.insync.replicas": "2"},
            clock_rates={n: draw.uniform(0.98, 1.02) for n in configs} if draw.random() < 0.3 else {},
            racks={n: f"r{n % 2}" for n in configs} if draw.random() < 0.4 else {},
            latency_s=near,
            between_brokers_s=draw.choice((0.0, 0.0, 0.0, 0.02)),
            window_bytes=draw.choice((1 << 20, 1 << 20, 4_096)),
            sync_ms=draw.choice(((0.1, 1.0), (0.5, 5.0), (2.0, 20.0))),
            read_bytes_per_s=draw.choice((1e9, 1e6, 1e5)),
            out_of_order=draw.random() < 0.4,
            producers=draw.choice((1, 2)),
            acks=("all", "all", "1", "0"),
            consumers=draw.choice((1, 2)),
            consumer_racks=draw.choice((("",), ("", "r0", "r1"))),
            writers=draw.choice((0, 0, 1, 2)),
            queries=queries,
            write_pause_s=draw.choice((0.01, 0.03, 0.1)),
            delivery_timeout_s=draw.choice((2.0, 6.0, 20.0)),
            faults=faults,
            fault_pause_s=draw.choice((0.3, 1.0, 3.0)),
        )


def _cold(plan: Plan, draw: random.Random, seed: int) -> Plan:
    """In half of the seeds some of what is read, or all, has to be waited for. Compacted topics have small segments,
    and each is a read of its own: if all reads were slow, a follower that is behind would stay behind for ever."""
    share, read_ms = draw.choice((0.0, 0.0, 0.1, 1.0)), draw.choice(((0.1, 1.0), (1.0, 10.0), (10.0, 50.0)))
    if plan.compacted:
        read_ms = min(read_ms, (1.0, 10.0))
    return replace(plan, cold_share=share, read_ms=read_ms, read_seed=seed)


def _mixed(plan: Plan, draw: random.Random) -> Plan:
    """Any log may rot; and in half of the seeds each broker is configured by itself."""
    plan = replace(plan, rotting=ANY_LOG)
    if draw.random() >= MIXED_SHARE:
        return plan
    configs = {}
    for number, before in plan.configs.items():
        own = {name: draw.choice(values) for name, values in plan.other_configs.items() if draw.random() < 0.5}
        configs[number] = {**before, **_without_min(own)}
    return replace(plan, configs=configs)


def _of_two_versions(plan: Plan, draw: random.Random, older: VersionRange) -> Plan:
    """The brokers come back as another version now and then, and an operator raises the level."""
    faults = {**plan.faults, "other_version": draw.choice((1.0, 2.0)), "upgrade": draw.choice((0.3, 1.0))}
    levels = {number: draw.choice((older, LATER, LATER)) for number in plan.configs}
    return replace(plan, levels=levels, older=older, faults=faults)


def with_users(plan: Plan, draw: random.Random) -> Plan:
    """Everybody is known. Sessions end soon, or never; a guest tries what he may not, and may now and then."""
    sessions = {"connections.max.reauth.ms": draw.choice(("3000", "10000", "3600000"))}
    configs = {number: {**before, **sessions} for number, before in plan.configs.items()}
    faults = {name: weight for name, weight in plan.faults.items() if name not in _LASTING}
    faults |= {"access": draw.choice((0.5, 2.0)), "quota": draw.choice((0.0, 0.5))}
    faults["cut_from_rules"] = draw.choice((0.5, 2.0))
    return replace(plan, users=True, configs=configs, faults=faults)


def _own(seed: int, name: str) -> random.Random:
    """Of one theme or fault in one seed: another one that is added later moves few plans."""
    return random.Random(f"{seed} {name}")


def _draw_faults(seed: int) -> dict[str, float]:
    faults = {}
    for name in FAULTS:
        chance = _own(seed, name)
        if (
            name
            not in (
                *_LASTING,
                *_OF_VERSIONS,
                *_OF_TYPED,
                *_OF_SECURED,
                *_OF_RETIRING,
                *_OF_COMPACTED,
                *_OF_SCRUBBED,
                *_OF_SHARING,
                *_IN_TURN,
            )
            and chance.random() < FAULT_SHARE
        ):
            faults[name] = chance.random() ** 2
    chance = _own(seed, "lasting")
    if chance.random() < LASTING_SHARE:
        faults[chance.choice(_LASTING)] = 0.5
    return faults


def _sound(plan: Plan, draw: random.Random) -> Plan:
    """The plan without what must not meet: of what is acknowledged a sound copy is left, which comes back."""
    faults = dict(plan.faults)
    if plan.voters == 1:  # nothing is decided without it
        for name in ("stray_epoch", "sick_peer"):
            faults.pop(name, None)
    spared = "cut_to_the_end" in faults or "never_returns" in faults or plan.outage
    if spared:  # a copy that is alone is not to be among what is lost, or as few are left as a write needs
        for name in (*DAMAGES, "alter", "reassign"):
            faults.pop(name, None)
    damages = DAMAGES & faults.keys() or plan.outage
    policies = plan.policies
    if len(policies) == 1 and not LOSES_POWER & faults.keys() and not plan.outage and draw.random() < 0.6:
        policies = ("fsync", "os")
    writers, queries = plan.writers, plan.queries
    if plan.voters == 1 and (damages or spared):  # what coordinators decide has one copy then
        faults.pop("group", None)
        writers, queries = 0, ()
    plan = replace(plan, faults=faults, policies=policies, writers=writers, queries=queries)
    if not damages and not spared:
        return plan
    configs = {number: _without_min(each) for number, each in plan.configs.items()}  # of internal topics
    return replace(plan, least_min=plan.min_in_sync, configs=configs, other_configs=_without_min(plan.other_configs))


def _without_min(configs: Mapping[str, _T]) -> dict[str, _T]:
    return {name: value for name, value in configs.items() if name != "min.insync.replicas"}
