"""Clients that die or do not read on, and what users change while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground

NOT_CONTINUED_SHARE = 0.4  # of killed programs with transactions


class Programs:
    """What befalls clients, and what they ask for."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._random = ground.random
        self._workload = ground.workload
        self._transacting = ground.transacting

    def kill_client(self) -> bool:
        """A producer, a consumer or a program with transactions; another takes its place."""
        kind = self._random.choice((self._workload.producers, self._workload.consumers, self._transacting.writers))
        if not kind:
            return False
        name = kind.pop(self._random.randrange(len(kind)))
        self._ground.cluster.kill_client(name)
        if kind is self._workload.producers:
            self._workload.add_producer()
        elif kind is self._transacting.writers:
            continued = self._random.random() >= NOT_CONTINUED_SHARE
            self._transacting.add_writer(name.partition("-")[0] if continued else None)
        else:
            self._workload.add_consumer()
        return True

    def stalled_reader(self) -> bool:
        """A reader's process stands still: its connections live, and it takes nothing."""
        return self._stall([*self._workload.consumers, *self._transacting.positions], 15.0)

    def stalled_writer(self) -> bool:
        return self._stall([*self._workload.producers, *self._transacting.writers], 8.0)

    def _stall(self, names: list[str], most_s: float) -> bool:
        cluster = self._ground.cluster
        living = [name for name in names if name in cluster.clients]
        if not living:
            return False
        name = self._random.choice(living)
        process = cluster.clients[name]
        cluster.loop.stand_still(process)
        cluster.ails(name, "stands still")

        def mend() -> None:
            cluster.loop.go_on(process)
            cluster.mends(name, "stands still")

        self._ground.later(0.2, most_s, mend)
        return True

    def alter(self) -> None:
        """Another min.insync.replicas, or flush.policy, while it runs."""
        plan = self._ground.cluster.plan
        settings = {"min.insync.replicas": str(self._random.randint(plan.least_min, max(2, plan.min_in_sync)))}
        if self._random.random() < 0.5:
            settings = {"flush.policy": self._random.choice(plan.policies)}
        self._workload.alter(settings)

    def retain(self) -> None:
        """The oldest segments are deleted from now on, by size or by age; or no more."""
        kept_bytes = {"retention.bytes": self._random.choice(("-1", "5000", "20000"))}
        kept_ms = {"retention.ms": self._random.choice(("-1", "2000", "5000"))}
        self._workload.alter(self._random.choice((kept_bytes, kept_ms)))

    def alter_compaction(self) -> None:
        """How a topic is compacted: how dirty it becomes, how long deletions stay, whether retention deletes, too."""
        topic = self._ground.cluster.plan.topic_configs
        settings = [
            {"min.cleanable.dirty.ratio": self._random.choice(("0.0", "0.1", "0.5"))},
            {"delete.retention.ms": self._random.choice(("0", "1000", "4000"))},
        ]
        if "retention.ms" in topic:
            settings.append({"cleanup.policy": self._random.choice(("compact", "compact,delete"))})
        self._workload.alter(self._random.choice(settings))

    def trim(self) -> None:
        """Records are deleted, up to somewhere below what was acknowledged."""
        key = self._random.choice(list(self._workload.keys.values()))
        self._workload.trim(key, self._random.randint(0, self._workload.acknowledged_end.get(key, 0)))
