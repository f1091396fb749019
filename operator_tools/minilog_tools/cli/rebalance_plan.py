"""The plan of a rebalance: moves after which brokers hold about as many bytes and lead about as many partitions. Pure.

    1. bytes     while it makes the fuller of two brokers less full, a replica goes from the fullest broker to the
                 emptiest one that may have it. The largest replica that helps goes first
    2. leaders   while it makes the numbers more even, a partition that the broker with the most leaders leads gets
                 another of its replicas as its first, which is its preferred leader

A broker that does not run, or is cordoned, gets nothing. A partition never has fewer racks than before. A partition
that is being reassigned stays as it is, and counts as what it becomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minilog.types import BrokerDescription, TopicPartition

EVEN_WITHIN = 0.1  # of the mean: a smaller difference between two brokers is not worth a copy
MOST_MOVES = 1_000  # replicas in one plan: after their moves the operator plans anew
REPLICA_BYTES = 1 << 16  # the weight of a replica beside its records, so that empty replicas are spread, too


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition before the rebalance. `size_bytes` is that of its leader's log. With `is_moving` a reassignment is
    under way."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    size_bytes: int
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Other replicas of a partition, or another order of them. `copied_bytes` is what brokers fetch for it."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    copied_bytes: int


def plan_moves(placed: Sequence[Placed], brokers: Sequence[BrokerDescription]) -> list[Move]:
    """The moves, one for each partition that changes. Empty where bytes and leaders are even."""
    balance = _Balance(placed, brokers)
    balance.spread_bytes()
    balance.spread_leaders()
    moves = []
    for before in placed:
        after = balance.replicas[before.partition]
        if after != before.replicas:
            copies = len(set(after) - set(before.replicas))
            moves.append(Move(before.partition, before.replicas, after, copies * before.size_bytes))
    return moves


def loads(
    placed: Sequence[Placed], moves: Sequence[Move], brokers: Sequence[BrokerDescription]
) -> dict[int, tuple[int, int]]:
    """The load of each broker after the moves: its bytes, and the number of partitions whose preferred leader it is."""
    after = {move.partition: move.after for move in moves}
    sizes, leaders = Counter[int](), Counter[int]()
    for entry in placed:
        replicas = after.get(entry.partition, entry.replicas)
        sizes.update(dict.fromkeys(replicas, entry.size_bytes))
        leaders.update(replicas[:1])
    return {broker.id: (sizes[broker.id], leaders[broker.id]) for broker in brokers}


class _Balance:
    """The replicas after the moves so far, and each broker's share of them."""

    def __init__(self, placed: Sequence[Placed], brokers: Sequence[BrokerDescription]) -> None:
        self.replicas = {entry.partition: entry.replicas for entry in placed}
        self._weights = {entry.partition: entry.size_bytes + REPLICA_BYTES for entry in placed}
        self._movable = [entry.partition for entry in placed if not entry.is_moving]
        self._racks: Mapping[int, str | None] = {broker.id: broker.rack for broker in brokers}
        self._takers = [broker.id for broker in brokers if broker.state == "running" and not broker.cordoned]
        self._bytes = Counter({broker.id: 0 for broker in brokers})
        self._on: dict[int, set[TopicPartition]] = {broker.id: set() for broker in brokers}
        for partition, replicas in self.replicas.items():
            for broker_id in replicas:
                self._bytes[broker_id] += self._weights[partition]
        for partition in self._movable:
            for broker_id in self.replicas[partition]:
                self._on.setdefault(broker_id, set()).add(partition)

    def spread_bytes(self) -> None:
        """Move replicas by rule 1, until the bytes are even."""
        for _ in range(MOST_MOVES):
            if not self._move_one():
                return

    def _move_one(self) -> bool:
        mean = sum(self._bytes.values()) / max(1, len(self._bytes))
        for giver, given in self._bytes.most_common():
            for taker in sorted(self._takers, key=lambda broker_id: (self._bytes[broker_id], broker_id)):
                gap = given - self._bytes[taker]
                if gap <= EVEN_WITHIN * mean:
                    break
                if (partition := self._largest_that_helps(giver, taker, gap)) is not None:
                    self._give(partition, giver, taker)
                    return True
        return False

    def _largest_that_helps(self, giver: int, taker: int, gap_bytes: int) -> TopicPartition | None:
        fits = [
            partition
            for partition in self._on[giver]
            if 2 * self._weights[partition] <= gap_bytes
            and taker not in self.replicas[partition]
            and self._keeps_racks(self.replicas[partition], giver, taker)
        ]
        return max(
            fits, key=lambda partition: (self._weights[partition], partition.topic, -partition.partition), default=None
        )

    def _keeps_racks(self, replicas: tuple[int, ...], giver: int, taker: int) -> bool:
        before = {self._racks.get(broker_id) for broker_id in replicas}
        after = {self._racks.get(taker if broker_id == giver else broker_id) for broker_id in replicas}
        return len(after) >= len(before)

    def _give(self, partition: TopicPartition, giver: int, taker: int) -> None:
        self.replicas[partition] = tuple(
            taker if broker_id == giver else broker_id for broker_id in self.replicas[partition]
        )
        self._on[giver].discard(partition)
        self._on[taker].add(partition)
        self._bytes[giver] -= self._weights[partition]
        self._bytes[taker] += self._weights[partition]

    def spread_leaders(self) -> None:
        """Change first replicas by rule 2, until the numbers of leaders are even."""
        leaders = Counter(replicas[0] for replicas in self.replicas.values() if replicas)
        takers = set(self._takers)
        moved = True
        while moved:
            moved = False
            for partition in self._movable:
                replicas = self.replicas[partition]
                others = [broker_id for broker_id in replicas[1:] if broker_id in takers]
                taker = min(others, key=lambda broker_id: (leaders[broker_id], broker_id), default=None)
                if taker is not None and leaders[replicas[0]] - leaders[taker] >= 2:  # each such step evens them out
                    self.replicas[partition] = (taker, *(broker_id for broker_id in replicas if broker_id != taker))
                    leaders[replicas[0]] -= 1
                    leaders[taker] += 1
                    moved = True
