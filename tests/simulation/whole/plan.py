"""What one seed does: how large the cluster is, how it is configured, and which faults it meets how often."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FAULTS = (
    "kill", "kill_all", "power", "power_all", "restart", "stand_still", "late", "cut", "cut_one_way", "isolate",
    "slow_link", "reset", "slow_disk", "disk_error", "full_disk", "death_in_disk", "kill_client", "never_returns",
    "cut_to_the_end", "wall_clock", "alter", "trim", "rot", "elect", "reassign", "topics", "latest", "group",
)  # fmt: skip
_LASTING = ("never_returns", "cut_to_the_end")  # once in a run at most, and not beside each other
_LOSES_POWER = {"power", "power_all", "never_returns", "death_in_disk"}


@dataclass(frozen=True, slots=True)
class Plan:
    """Times in seconds of true time; `configs` by broker, where the configuration differs."""

    brokers: int = 3
    topics: int = 1
    partitions: int = 2
    replication_factor: int = 3
    min_in_sync: int = 2
    configs: dict[int, dict[str, str]] = field(default_factory=dict)
    topic_configs: dict[str, str] = field(default_factory=dict)
    clock_rates: dict[int, float] = field(default_factory=dict)
    latency_s: tuple[float, float] = (0.00005, 0.0005)
    sync_ms: tuple[float, float] = (0.1, 3.0)
    producers: int = 2
    consumers: int = 1
    writers: int = 0  # programs with transactions
    write_pause_s: float = 0.02
    delivery_timeout_s: float = 10.0
    quiet_s: float = 2.0
    safety_s: float = 15.0
    liveness_s: float = 40.0
    faults: dict[str, float] = field(default_factory=dict)  # weights; none: nothing happens
    fault_pause_s: float = 1.0

    @property
    def policies(self) -> tuple[str, ...]:
        """Of flush.policy: under os power may not be lost, else what is acknowledged may be, too."""
        return ("fsync",) if _LOSES_POWER & self.faults.keys() else ("fsync", "os")

    @classmethod
    def draw(cls, seed: int) -> Plan:
        draw = random.Random(f"plan {seed}")
        brokers = draw.choice((3, 3, 3, 5))
        factor = draw.choice((3, 3, 2)) if brokers == 3 else 3
        faults = {name: draw.random() ** 2 for name in FAULTS if draw.random() < 0.5 and name not in _LASTING}
        if draw.random() < 0.3:
            faults[draw.choice(_LASTING)] = 0.5
        if "cut_to_the_end" in faults:  # as few copies may be left as a write needs
            faults.pop("rot", None)
        if "never_returns" in faults:  # a copy that is alone is not to be among what is lost
            faults = {name: weight for name, weight in faults.items() if name not in ("alter", "rot", "reassign")}
        base = {
            "replica.lag.time.max.ms": str(draw.choice((500, 1_000, 3_000))),
            "broker.session.timeout.ms": str(draw.choice((1_500, 3_000))),
            "broker.heartbeat.interval.ms": str(draw.choice((150, 300))),
            "segment.bytes": str(draw.choice((4_096, 65_536, 1 << 20))),
            "auto.leader.rebalance.enable": draw.choice(("true", "false")),
        }
        configs = {number: dict(base) for number in range(1, brokers + 1)}
        for number in configs:  # half of a rolling change
            if draw.random() < 0.2:
                configs[number]["min.insync.replicas"] = draw.choice(("1", "2"))
        return cls(
            brokers=brokers,
            partitions=draw.choice((1, 2, 3)),
            replication_factor=factor,
            min_in_sync=min(2, factor),
            configs=configs,
            topic_configs={"min.insync.replicas": str(min(2, factor))},
            clock_rates={n: draw.uniform(0.98, 1.02) for n in configs} if draw.random() < 0.3 else {},
            latency_s=draw.choice(((0.00005, 0.0005), (0.0005, 0.005))),
            sync_ms=draw.choice(((0.1, 1.0), (0.5, 5.0), (2.0, 20.0))),
            producers=draw.choice((1, 2)),
            consumers=draw.choice((1, 2)),
            writers=draw.choice((0, 0, 1, 2)),
            write_pause_s=draw.choice((0.01, 0.03, 0.1)),
            delivery_timeout_s=draw.choice((2.0, 6.0, 20.0)),
            faults=faults,
            fault_pause_s=draw.choice((0.3, 1.0, 3.0)),
        )
