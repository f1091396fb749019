"""Which member of a group is to read which partitions. Pure: the same input gives the same answer everywhere.

    uniform    every member gets as many partitions as every other, within one, as far as the subscriptions let it. What
               a member had it keeps, as long as that holds. Among answers that are equally even, a partition goes to a
               member in a rack of one of its replicas, also where it moves for that
    range      each topic is cut into pieces, in the order of the members. Topics of equal numbers of partitions with
               the same subscribers are cut at the same places: one member has the same numbers of all of them

`uniform` ends where neither one move nor one exchange of two partitions is better. Kafka has the same two (KIP-848).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from minilog.partition_key import PartitionKey

Assignment = Mapping[str, frozenset[PartitionKey]]
"""The partitions of each member, by its id."""
Racks = Mapping[PartitionKey, frozenset[str]]
"""The racks of the replicas of a partition. A partition that is not in it has no known rack."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it. `owned`: the partitions of its target so far. `instance_id`: of a static member,
    else empty."""

    topics: frozenset[bytes]
    rack: str = ""
    instance_id: str = ""
    owned: frozenset[PartitionKey] = frozenset()


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """The input of an assignor: the members, the number of partitions of each topic, and the racks of the replicas."""

    members: Mapping[str, Subscriber]
    partition_counts: Mapping[bytes, int]
    racks: Racks = field(default_factory=lambda: MappingProxyType({}))


def range_assignor(wanted: AssignorInput) -> Assignment:
    """Cut each topic into consecutive pieces, one for each of its members in their order."""
    shares: dict[str, set[PartitionKey]] = {member: set() for member in wanted.members}
    for topic, count in sorted(wanted.partition_counts.items()):
        takers = sorted(
            (member for member, subscriber in wanted.members.items() if topic in subscriber.topics),
            key=lambda member: (wanted.members[member].instance_id, member),
        )
        start = 0
        for place, member in enumerate(takers):
            length = count // len(takers) + (place < count % len(takers))
            shares[member].update(PartitionKey(topic, number) for number in range(start, start + length))
            start += length
    return _frozen(shares)


def uniform_assignor(wanted: AssignorInput) -> Assignment:
    """Spread all partitions evenly, within one, and move as few of them as that allows."""
    shares = _Shares(wanted)
    shares.keep()
    shares.give_the_rest()
    shares.level()
    while shares.improve_racks():
        shares.level()
    return _frozen(shares.of)


class _Shares:
    """The shares of all members while they are made."""

    def __init__(self, wanted: AssignorInput) -> None:
        self._members = wanted.members
        self._counts = wanted.partition_counts
        self._racks = wanted.racks
        self.of: dict[str, set[PartitionKey]] = {member: set() for member in sorted(wanted.members)}
        subscribers: dict[bytes, list[str]] = defaultdict(list)
        for member in self.of:
            for topic in wanted.members[member].topics:
                subscribers[topic].append(member)
        self._subscribers = {topic: tuple(subscribers[topic]) for topic in wanted.partition_counts}
        # The members with the fewest partitions, for each set of members that subscribe to a topic. An entry whose load
        # is no longer that of its member is dropped when it comes up.
        self._lightest: dict[tuple[str, ...], list[tuple[int, str]]] = {
            every: [(0, member) for member in every] for every in set(self._subscribers.values()) if every
        }
        self._heaps_of: dict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        for every, heap in self._lightest.items():
            for member in every:
                self._heaps_of[member].append(heap)

    # -- the steps

    def keep(self) -> None:
        """Each member has what it had, and still subscribes to. Of two that had a partition the first keeps it."""
        taken: set[PartitionKey] = set()
        for member, share in self.of.items():
            subscriber = self._members[member]
            kept = {key for key in subscriber.owned - taken if self._exists(key) and key.topic_id in subscriber.topics}
            taken |= kept
            share |= kept
        for member in self.of:
            self._weighed(member)

    def give_the_rest(self) -> None:
        """The partitions that nobody has go to the member with the fewest, the topics with the fewest subscribers
        first."""
        taken = set().union(*self.of.values())
        for topic in sorted(self._counts, key=lambda topic: (len(self._subscribers[topic]), topic)):
            if not self._subscribers[topic]:
                continue
            for number in range(self._counts[topic]):
                key = PartitionKey(topic, number)
                if key not in taken:
                    self._give(key, self._taker(key))

    def level(self) -> None:
        """Move partitions, one at a time, from the heaviest member that may give one to a member with at least two
        fewer."""
        heaviest = [(-len(share), member) for member, share in self.of.items()]
        heapq.heapify(heaviest)
        blocked: list[str] = []
        while heaviest:
            load, member = heapq.heappop(heaviest)
            if -load != len(self.of[member]):
                continue  # an entry of before a move: a later one has the load of now
            if (move := self._best_move(member)) is None:
                blocked.append(member)
                continue
            self._move(move[0], member, move[1])
            for changed in (member, move[1], *blocked):
                heapq.heappush(heaviest, (-len(self.of[changed]), changed))
            blocked.clear()

    def improve_racks(self) -> bool:
        """Bring partitions into a rack of theirs, by a move that leaves the shares as even, or by an exchange. Whether
        there was any."""
        improved = False
        for member in list(self.of):
            for key in sorted(self.of[member]):
                if self._racks.get(key) and not self._is_near(key, member) and self._bring_near(key, member):
                    improved = True
        return improved

    # -- the parts of them

    def _exists(self, key: PartitionKey) -> bool:
        return key.partition < self._counts.get(key.topic_id, 0)

    def _is_near(self, key: PartitionKey, member: str) -> bool:
        rack = self._members[member].rack
        return bool(rack) and rack in self._racks.get(key, ())

    def _near_subscribers(self, key: PartitionKey) -> list[str]:
        if not self._racks.get(key):
            return []
        return [member for member in self._subscribers[key.topic_id] if self._is_near(key, member)]

    def _taker(self, key: PartitionKey) -> str:
        """The lightest subscriber in a rack of the partition, where it is as light as any; else the lightest."""
        lightest = self._lightest_subscriber(key)
        near = min(self._near_subscribers(key), key=lambda member: (len(self.of[member]), member), default=lightest)
        return near if len(self.of[near]) <= len(self.of[lightest]) else lightest

    def _lightest_subscriber(self, key: PartitionKey) -> str:
        heap = self._lightest[self._subscribers[key.topic_id]]
        while heap[0][0] != len(self.of[heap[0][1]]):
            heapq.heappop(heap)
        return heap[0][1]

    def _best_move(self, member: str) -> tuple[PartitionKey, str] | None:
        """A partition of a member that another with at least two fewer may have: to the lightest, and rather one that
        comes into a rack of its own than one that leaves it."""
        load, best, best_rank = len(self.of[member]), None, (0, 0)
        by_takers: dict[tuple[str, ...], bool] = {}
        for key in sorted(self.of[member]):
            takers = self._subscribers[key.topic_id]
            if takers not in by_takers:
                by_takers[takers] = load - len(self.of[self._lightest_subscriber(key)]) >= 2
            if not by_takers[takers]:
                continue
            taker = self._taker(key)
            gain = self._is_near(key, taker) - self._is_near(key, member)
            rank = (load - len(self.of[taker]), gain)
            if rank > best_rank:
                best, best_rank = (key, taker), rank
            if not self._racks:
                break
        return best

    def _bring_near(self, key: PartitionKey, member: str) -> bool:
        for other in sorted(self._near_subscribers(key), key=lambda other: (len(self.of[other]), other)):
            if len(self.of[other]) < len(self.of[member]):
                self._move(key, member, other)
                return True
            for back in sorted(self.of[other]):
                may_take = back.topic_id in self._members[member].topics
                if may_take and self._is_near(back, member) >= self._is_near(back, other):
                    self._move(key, member, other)
                    self._move(back, other, member)
                    return True
        return False

    def _move(self, key: PartitionKey, member: str, other: str) -> None:
        self.of[member].remove(key)
        self._weighed(member)
        self._give(key, other)

    def _give(self, key: PartitionKey, member: str) -> None:
        self.of[member].add(key)
        self._weighed(member)

    def _weighed(self, member: str) -> None:
        for heap in self._heaps_of[member]:
            heapq.heappush(heap, (len(self.of[member]), member))


def _frozen(shares: Mapping[str, Iterable[PartitionKey]]) -> dict[str, frozenset[PartitionKey]]:
    return {member: frozenset(share) for member, share in shares.items()}


ASSIGNORS: Mapping[str, Callable[[AssignorInput], Assignment]] = MappingProxyType(
    {"uniform": uniform_assignor, "range": range_assignor}
)
"""By the name that settings and members use."""


def moved(before: Assignment, after: Assignment) -> int:
    """The number of partitions that another member has, or nobody, of those that somebody had."""
    return sum(len(share - after.get(member, frozenset())) for member, share in before.items())


def owners_of(assignment: Mapping[str, Collection[PartitionKey]]) -> dict[PartitionKey, str]:
    """The member of each partition."""
    return {key: member for member, share in assignment.items() for key in share}
