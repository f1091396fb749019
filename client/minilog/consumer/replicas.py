"""The choice of the replica that a consumer reads a partition from (KIP-392), and its way back to the leader. No I/O.

With `client.rack` set, the consumer reads from the leader if it is in that rack. Otherwise it reads from a broker of
the rack that is in the ISR, runs, and is not avoided. Without such a broker it reads from the leader. It asks only
leaders for offsets ("earliest", "latest", by time).

The client chooses, by the metadata that every broker has. In Kafka the leader chooses, and redirects. Here a session
pushes at once. A leader that redirects would first get a stream from another rack, and put a window of records on its
way. A leader that is dead or hangs could not redirect. And the leader need not keep state of the followers for this.
The follower knows itself what the leader would know better: it sends its readers away as soon as it no longer hears its
leader or is out of the ISR (broker, follower/reads.py). Given up: a policy on the brokers, and an ISR that the leader
is just about to change.

A consumer leaves a follower, for the leader or for another follower in the rack, when one of these happens:
- The follower answers with any error. The leader judges what a follower cannot. Its OFFSET_OUT_OF_RANGE is no reason
  to reset.
- Its stream breaks or is silent (five keep-alives: 5 s), or the client cannot reach it.
- It stands still: it sends nothing for half a second, although it has credit. It is below a known end (a high watermark
  that a replica named, the end of the assignment), or it has not answered the position yet.
- The metadata no longer has it in the ISR, or another leader epoch began.
The consumer does not choose it again for a while, or until the leader epoch changes. So it does not go to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.consumer.partition import Assigned
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache
from minilog.partition_key import PartitionKey

_PATIENCE_MS = 500.0  # a healthy replica sends its records in a few milliseconds
_AVOIDED_MS = 5_000.0  # by then the metadata is new


class ReplicaChoice:
    """The choice of the replica that a consumer reads each partition from. With an empty `rack` it is the leader."""

    def __init__(self, rack: str, cache: MetadataCache) -> None:
        self._rack = rack
        self._cache = cache
        self._avoided: dict[tuple[PartitionKey, int], tuple[int, float]] = {}  # leader epoch, until ms
        self._avoided_brokers: dict[int, float] = {}  # until ms
        self._near: dict[PartitionKey, list[int]] = {}
        self._near_of: Mapping[int, object] = {}  # _near comes from this metadata's brokers

    def choose(self, assigned: Assigned, leader: LeaderAndEpoch, now_ms: float) -> int:
        """The broker to read from now. The core asks this at every poll."""
        if not self._rack:
            return leader.broker_id
        assert assigned.key is not None
        assigned.look(now_ms)
        if self.due_ms(assigned) <= now_ms:
            self.avoid(assigned, now_ms)
        chosen = self._nearest(assigned, assigned.key, leader, now_ms)
        follower_id = None if chosen == leader.broker_id else chosen
        if follower_id != assigned.follower_id:
            assigned.turn_to(follower_id, now_ms)
        return chosen

    def _nearest(self, assigned: Assigned, key: PartitionKey, leader: LeaderAndEpoch, now_ms: float) -> int:
        near = self._in_rack(key)
        if not near or leader.broker_id in near:
            return leader.broker_id
        near = [broker_id for broker_id in near if not self._is_avoided(key, broker_id, leader.epoch, now_ms)]
        if not near:
            return leader.broker_id
        if assigned.follower_id in near:
            return assigned.follower_id
        return near[key.partition % len(near)]  # partitions spread over the brokers of a rack

    def _in_rack(self, key: PartitionKey) -> list[int]:
        if self._near_of is not self._cache.brokers:  # the cache makes a new table for each answer
            self._near, self._near_of = {}, self._cache.brokers
        if key not in self._near:
            self._near[key] = self._cache.in_sync_in_rack(key, self._rack)
        return self._near[key]

    def avoid(self, assigned: Assigned, now_ms: float) -> None:
        """Do not read this partition from its follower for a while. A leader is never avoided."""
        if assigned.follower_id is not None and assigned.key is not None:
            epoch = self._cache.seen_epoch(assigned.key)
            self._avoided[assigned.key, assigned.follower_id] = (epoch, now_ms + _AVOIDED_MS)

    def avoid_broker(self, broker_id: int, now_ms: float) -> None:
        """The stream to this broker was lost: read none of its partitions as a follower's for a while."""
        self._avoided_brokers[broker_id] = now_ms + _AVOIDED_MS

    def _is_avoided(self, key: PartitionKey, broker_id: int, epoch: int, now_ms: float) -> bool:
        avoided_epoch, until_ms = self._avoided.get((key, broker_id), (epoch, 0.0))
        if epoch > avoided_epoch or now_ms >= until_ms:
            self._avoided.pop((key, broker_id), None)
            until_ms = 0.0
        return now_ms < max(until_ms, self._avoided_brokers.get(broker_id, 0.0))

    @staticmethod
    def due_ms(assigned: Assigned) -> float:
        """The time when the patience with a follower ends. Infinity if it owes nothing."""
        return float("inf") if assigned.expected_since_ms is None else assigned.expected_since_ms + _PATIENCE_MS
