"""What one seed is: the cluster's size and configuration, which faults come and how hard. Drawn from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from minilog_broker.replication.state import TopicConfig


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How often each fault comes, per second of virtual time in the safety phase; 0: not in this seed."""

    kill: float = 0.0  # the process dies, the machine does not
    power_loss: float = 0.0  # the machine goes off: what was not synced is lost or torn
    power_loss_of_all: float = 0.0
    crash_in_disk: float = 0.0  # power is lost in the middle of a change of the disk, some changes from now
    crash_in_effects: float = 0.0  # power is lost between two effects of a core
    clean_restart: float = 0.0  # a roll: stopped with hand-over, started again
    pause: float = 0.0
    clock_jump: float = 0.0
    cut_one_way: float = 0.0
    cut_two_ways: float = 0.0
    isolate: float = 0.0  # one node from all others
    slow_link: float = 0.0
    lossy_link: float = 0.0  # loss and doubling of calls
    reset: float = 0.0  # one stream
    reset_all: float = 0.0  # all streams of a node
    slow_disk: float = 0.0
    disk_error: float = 0.0  # the next fsync or write of a data log fails
    disk_full: float = 0.0
    bit_flip: float = 0.0  # in a data log, where another good copy remains
    wipe: float = 0.0  # a broker's disk comes back empty
    metadata_disk_error: float = 0.0  # of the metadata log or the vote: ends the process

    def active(self) -> list[tuple[str, float]]:
        """Names and rates of those that come, in a fixed order."""
        return [(name, getattr(self, name)) for name in self.__slots__ if getattr(self, name) > 0.0]


@dataclass(frozen=True, slots=True)
class OperationRates:
    """How often an operator acts, per second of virtual time, in both phases."""

    create_topic: float = 0.0
    delete_topic: float = 0.0
    grow_topic: float = 0.0
    move_leader: float = 0.0
    reassign: float = 0.0


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
    latency_ms: tuple[float, float] = (0.05, 1.0)
    sync_ms: tuple[float, float] = (0.1, 3.0)
    replica_lag_time_max_ms: float = 2_000.0
    session_keepalive_ms: float = 100.0
    broker_session_timeout_ms: float = 3_000.0
    heartbeat_interval_ms: float = 500.0
    fetch_credit_bytes: int = 64_000
    controlled_shutdown_timeout_ms: float = 5_000.0
    election_timeout_ms: float = 300.0
    fetch_timeout_ms: float = 1_000.0
    snapshot_bytes: int = 1 << 20  # of metadata log behind the last snapshot: then another is taken
    safety_ms: float = 20_000.0
    liveness_ms: float = 30_000.0  # within this V19 must have come true
    faults: FaultRates = field(default_factory=FaultRates)
    operations: OperationRates = field(default_factory=OperationRates)

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def voter_ids(self) -> range:
        return range(1, self.voters + 1)

    def topic_defaults(self) -> TopicConfig:
        """What topics have that do not set it themselves: the brokers' configuration."""
        return TopicConfig(
            min_in_sync_replicas=self.min_in_sync,
            max_message_bytes=8 << 20,
            segment_bytes=self.segment_bytes,
            segment_ms=1 << 40,
            flush_on_append=self.flush_on_append,
            retention_ms=-1,
            retention_bytes=-1,
            unclean_leader_election=self.unclean_election,
        )

    @staticmethod
    def calm(**changes: object) -> Plan:
        """A cluster that nothing befalls."""
        return Plan(**changes)  # type: ignore[arg-type]

    @staticmethod
    def draw(seed: int) -> Plan:
        """The plan of a seed."""
        rng = random.Random(f"plan {seed}")
        return Plan(voters=rng.choice((1,)))
