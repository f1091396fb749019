"""What one seed is: the cluster's size and configuration, which faults come and how hard. Drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minilog_broker.replication.partition_state import TopicConfig
from tests.simulation.themes import narrowed


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often each fault comes, per second of virtual time in the safety phase; 0: not in this seed."""

    kill: float = 0.0  # the process dies, the machine does not
    power_loss: float = 0.0  # the machine goes off: what was not synced is lost or torn
    power_loss_of_all: float = 0.0
    kill_of_all: float = 0.0
    power_loss_early: float = (
        0.0  # the machine goes off, of a process that has only just begun: the second crash in a row
    )
    crash_in_disk: float = 0.0  # killed, or power is lost, in the middle of a change of the disk, some changes from now
    crash_in_effects: float = 0.0  # the same between two effects of a core
    clean_restart: float = 0.0  # a roll: stopped with hand-over, started again
    pause: float = 0.0
    stall: float = 0.0  # the same for less than a second
    clock_jump: float = 0.0
    cut_one_way: float = 0.0
    cut_two_ways: float = 0.0
    cut_nodes: float = 0.0  # two nodes from each other, for a short while; all others hear both
    isolate: float = 0.0  # one node from all others
    split: float = 0.0  # the nodes into two sides
    isolate_leader: float = 0.0  # from the other nodes alone
    isolate_client: float = 0.0  # one client from all nodes
    slow_link: float = 0.0
    lossy_link: float = 0.0  # loss and doubling of calls
    reset: float = 0.0  # one stream
    reset_all: float = 0.0  # all streams of a node
    slow_disk: float = 0.0
    disk_error: float = 0.0  # the next fsync or write of a data log fails
    disk_full: float = 0.0
    bit_flip: float = 0.0  # in a data log, where another good copy remains
    wipe: float = 0.0  # a broker's disk comes back empty
    wrong_voters: float = 0.0  # a process is started with other voters than the recorded ones; then with the right ones
    metadata_disk_error: float = 0.0  # of the metadata log or the vote: ends the process
    sick_peer: float = 0.0  # votes and new epochs in the name of others, as far ahead as might be believed
    stray_epoch: float = 0.0  # a voter's stored epoch is leaps above all others

    def active(self) -> list[tuple[str, float]]:
        """Names and rates of those that come, in a fixed order."""
        return [(name, getattr(self, name)) for name in self.__slots__ if getattr(self, name) > 0.0]


@dataclass(frozen=True, slots=True)
class OperationRates:
    """How often an operator acts, per second of virtual time, in the safety phase."""

    create_topic: float = 0.0
    delete_topic: float = 0.0
    grow_topic: float = 0.0
    move_leader: float = 0.0
    lead_elsewhere: float = 0.0  # another replica is made the preferred one, and elected
    reassign: float = 0.0
    alter_min: float = 0.0  # min.insync.replicas of a topic
    alter_flush: float = 0.0  # flush.policy of a topic

    def active(self) -> list[tuple[str, float]]:
        """Names and rates of those that come, in a fixed order."""
        return [(name, getattr(self, name)) for name in self.__slots__ if getattr(self, name) > 0.0]


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module's text. Nodes are 1..nodes, the first `voters` of them vote."""

    nodes: int = 3
    voters: int = 1
    topic_count: int = 1
    partitions: int = 2
    replication_factor: int = 3
    min_in_sync: int = 2
    flush_on_append: bool = True
    segment_bytes: int = 4_096
    unclean_election: bool = False
    # What brokers are configured with, each life anew, as half of a rolling change leaves them; empty: with the above.
    configured_min: tuple[int, ...] = ()
    configured_flush: tuple[bool, ...] = ()
    configured_min_of: Mapping[int, int] = field(default_factory=dict)  # by node: always so
    latency_ms: tuple[float, float] = (0.05, 1.0)
    between_nodes_ms: float = 0.0  # beside the latency: nodes far from each other, each client near to all of them
    sync_ms: tuple[float, float] = (0.1, 3.0)
    replica_lag_time_max_ms: float = 2_000.0
    session_keepalive_ms: float = 100.0
    broker_session_timeout_ms: float = 3_000.0
    heartbeat_interval_ms: float = 500.0
    fetch_credit_bytes: int = 64_000
    controlled_shutdown_timeout_ms: float = 5_000.0
    election_timeout_ms: float = 300.0
    fetch_timeout_ms: float = 1_000.0
    checkpoint_interval_ms: float = 5_000.0
    snapshot_bytes: int = 1 << 20  # of metadata log behind the last snapshot: then another is taken
    quiet_ms: float = 0.0  # before the first fault: a new cluster is founded by all of its voters or not at all
    safety_ms: float = 20_000.0
    liveness_ms: float = 30_000.0  # within this V19 must have come true
    longest_cut_ms: float = 8_000.0  # of one link, and of all links of a node
    # What the users are drawn from: numbers of them, racks of readers, and their configuration.
    producer_counts: tuple[int, ...] = (1, 2, 3)
    acks: tuple[str, ...] = ("all", "all", "all", "1", "0")  # of all producers but the first, which has acks=all
    consumer_counts: tuple[int, ...] = (1, 2)
    consumer_racks: tuple[str, ...] = ("", "r1", "r2", "r1", "r2")
    take_over_share: float = 0.0  # how often a reader goes on where another one is
    delivery_timeouts_ms: tuple[int, ...] = (2_000, 6_000, 12_000)
    write_pauses_ms: tuple[float, ...] = (8.0, 30.0, 100.0, 300.0)
    load_pause_ms: float = 5.0  # at most so long in the liveness phase: a joiner has to get in under load
    transactions: bool = False  # Spark sinks write, too
    sinks: tuple[str, ...] = ("q0", "q1")  # the names of their queries
    trims_per_s: float = 0.0  # how often records are deleted; in both phases
    out_of_order: bool = False  # what was not synced reaches a disk in any order
    outage: str = ""  # all lose power in the end, and one stays away ("absent") or comes back "rotten"
    links_of_nodes: bool = False  # cuts, slow and lossy links are between nodes only
    faults: FaultRates = field(default_factory=FaultRates)
    operations: OperationRates = field(default_factory=OperationRates)

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def voter_ids(self) -> range:
        return range(1, self.voters + 1)

    def configured(self, node_id: int, rng: random.Random) -> TopicConfig:
        """The configuration of one life of a broker: what it makes topics with, where it is the controller."""
        least = self.configured_min_of.get(node_id)
        return TopicConfig(
            min_in_sync_replicas=least or rng.choice(self.configured_min or (self.min_in_sync,)),
            max_message_bytes=8 << 20,
            segment_bytes=self.segment_bytes,
            segment_ms=1 << 40,
            flush_on_append=rng.choice(self.configured_flush or (self.flush_on_append,)),
            retention_ms=-1,
            retention_bytes=-1,
            unclean_leader_election=self.unclean_election,
        )

    @staticmethod
    def calm(**changes: object) -> Plan:
        """A cluster that nothing befalls."""
        return Plan(**changes)  # type: ignore[arg-type]

    @staticmethod
    def draw(seed: int, theme: str | None = None) -> Plan:
        """The plan of a seed: with its own theme or none, or with `theme`."""
        rng = random.Random(f"spark {seed}")  # its own: the plans of all other seeds are as they would be without
        transactions = rng.random() < TRANSACTIONS_SHARE
        if transactions and theme is None and rng.random() < TRANSACTIONS_THEMED_SHARE:
            theme = "transactions"
        rng = random.Random(f"outage {seed}")  # its own, too
        if theme is None and rng.random() < OUTAGES_SHARE:
            theme = "outages"
        out_of_order = rng.random() < OUT_OF_ORDER_SHARE
        if theme is None and (rng := random.Random(f"settings {seed}")).random() < LATER_THEMES_SHARE:
            theme = rng.choice(LATER_THEMES)
        plan = narrowed(Plan._draw(seed), seed, theme)
        rng = random.Random(f"trims {seed}")  # its own, too
        trims_per_s = rng.choice(TRIM_RATES) if rng.random() < TRIMS_SHARE else 0.0
        return replace(
            plan,
            transactions=plan.transactions or transactions,
            trims_per_s=plan.trims_per_s or trims_per_s,
            out_of_order=out_of_order,
            faults=_with_sick_peers(plan.faults, seed),
        )

    @staticmethod
    def _draw(seed: int) -> Plan:
        rng = random.Random(f"plan {seed}")
        nodes = rng.choice((3, 3, 3, 4, 5))
        voters = rng.choice([count for count in VOTER_COUNTS if count <= nodes])
        replication_factor = rng.choice((3, 3, 3, 2, min(nodes, 4)))
        flush_on_append = rng.random() < 0.8
        pace = rng.choice((0.3, 1.0))  # short time-outs make more of the same virtual time
        return Plan(
            nodes=nodes,
            voters=voters,
            topic_count=rng.choice((1, 1, 2)),
            partitions=rng.choice((1, 2, 3)),
            replication_factor=replication_factor,
            min_in_sync=rng.choice((1, 2, 2, 2)),
            flush_on_append=flush_on_append,
            segment_bytes=rng.choice((1_024, 4_096, 1 << 20)),
            latency_ms=rng.choice(((0.05, 0.5), (0.05, 2.0), (0.5, 20.0))),
            sync_ms=rng.choice(((0.05, 0.5), (0.1, 5.0), (1.0, 40.0))),
            replica_lag_time_max_ms=2_000.0 * pace,
            session_keepalive_ms=100.0 * pace,
            broker_session_timeout_ms=3_000.0 * pace,
            heartbeat_interval_ms=500.0 * pace,
            fetch_credit_bytes=rng.choice((8_000, 64_000)),
            controlled_shutdown_timeout_ms=rng.choice((500.0, 5_000.0)),
            snapshot_bytes=rng.choice((2_000, 1 << 20)),
            quiet_ms=rng.choice((0.0, 1_000.0, 1_500.0, 1_500.0)),
            safety_ms=rng.choice((4_000.0, 8_000.0, 12_000.0)),
            faults=_draw_faults(rng, flush_on_append=flush_on_append),
            operations=_draw_operations(rng),
        )


TRANSACTIONS_SHARE = 0.3
TRANSACTIONS_THEMED_SHARE = 0.5  # of those; the others meet with all kinds of trouble
LATER_THEMES = ("settings", "settings", "unclean")
LATER_THEMES_SHARE = 0.12
TRIMS_SHARE = 0.3
OUTAGES_SHARE = 0.06
OUT_OF_ORDER_SHARE = 0.4
TRIM_RATES = (1.0, 3.0, 10.0)
VOTER_COUNTS = (1, 3, 3, 5)

# How often each fault comes at its usual rate, per second; a seed draws some of them, and how hard.
_USUAL: dict[str, float] = {
    "kill": 0.4,
    "power_loss": 0.3,
    "power_loss_of_all": 0.08,
    "crash_in_disk": 0.3,
    "crash_in_effects": 0.3,
    "clean_restart": 0.25,
    "pause": 0.4,
    "clock_jump": 0.2,
    "cut_one_way": 0.4,
    "cut_two_ways": 0.4,
    "isolate": 0.25,
    "slow_link": 0.4,
    "lossy_link": 0.5,
    "reset": 1.0,
    "reset_all": 0.3,
    "slow_disk": 0.3,
    "disk_error": 0.15,
    "disk_full": 0.2,
    "metadata_disk_error": 0.1,
    "bit_flip": 0.2,
    "wrong_voters": 0.2,
    "wipe": 0.5,
}
SICK_PEERS_SHARE = 0.2
_NEED_FSYNC = ("power_loss", "power_loss_of_all", "disk_error")


def _draw_faults(rng: random.Random, *, flush_on_append: bool) -> FaultRates:
    hard = rng.choice((0.3, 1.0, 3.0))
    some = rng.choice((0.15, 0.35, 0.7))
    rates = {name: usual * hard * rng.choice((0.5, 1.0, 2.0)) for name, usual in _USUAL.items() if rng.random() < some}
    if not flush_on_append:  # a loss of power would be allowed to lose what was acknowledged
        for name in _NEED_FSYNC:
            rates.pop(name, None)
    return FaultRates(**rates)


def _with_sick_peers(faults: FaultRates, seed: int) -> FaultRates:
    rng = random.Random(f"sick peers {seed}")  # its own
    if faults.sick_peer or rng.random() >= SICK_PEERS_SHARE:
        return faults
    return replace(faults, sick_peer=rng.choice((0.3, 2.0)), stray_epoch=rng.choice((0.0, 0.3)))


def _draw_operations(rng: random.Random) -> OperationRates:
    return OperationRates(
        create_topic=rng.choice((0.0, 0.2)),
        delete_topic=rng.choice((0.0, 0.15)),
        grow_topic=rng.choice((0.0, 0.15)),
        move_leader=rng.choice((0.0, 0.5)),
        reassign=rng.choice((0.0, 0.2)),
    )
