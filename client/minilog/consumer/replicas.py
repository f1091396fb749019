"""Which replica a consumer reads a partition from (KIP-392), and when it goes back to the leader. No I/O.

With `client.rack` set: a broker of that rack that is in the ISR, running, and not avoided; the leader itself where it
is in the rack; else the leader. Offsets ("earliest", "latest", by time) are asked of leaders only.

The client chooses, by the metadata that every broker tells; in Kafka the leader does, and redirects. Here a session
pushes at once, so that a leader asked first would have a stream opened to it from another rack, and a window of records
on its way, before it could say "not here"; a leader that is dead or hangs could say nothing at all; and no state of the
followers has to be kept there for it. What the leader would know better the follower knows as well, and says itself: it
sends its readers away as soon as it no longer hears its leader or is out of the ISR (broker, follower/reads.py). Given
up: a policy that lives on the brokers, and an ISR that is seen as the leader is about to change it.

A follower is left, for the leader or another one in the rack, when
- it says any error: what it cannot judge, the leader judges; its OFFSET_OUT_OF_RANGE is no reason to reset;
- its stream breaks or is silent (five keep-alives: 5 s), or it cannot be reached;
- it stands still: nothing came for half a second, though credit is left, below an end that is known (a high watermark
  that was told, the end of what is assigned), or since the position was sent;
- metadata no longer has it in the ISR, or another leader epoch began.
It is not chosen again for a while, or until the leader epoch changes; so nobody goes to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.consumer.partition import Assigned
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache
from minilog.partition_key import PartitionKey

_PATIENCE_MS = 500.0  # a replica that is well and has records sends them in a few milliseconds
_AVOIDED_MS = 5_000.0  # what metadata tells later than this is news


class ReplicaChoice:
    """The choice of the replica that a consumer reads each partition from. `rack` empty: always the leader."""

    def __init__(self, rack: str, cache: MetadataCache) -> None:
        self._rack = rack
        self._cache = cache
        self._avoided: dict[tuple[PartitionKey, int], tuple[int, float]] = {}  # leader epoch, until ms
        self._avoided_brokers: dict[int, float] = {}  # until ms
        self._near: dict[PartitionKey, list[int]] = {}
        self._near_of: Mapping[int, object] = {}  # the brokers of the metadata that _near was made from

    def choose(self, assigned: Assigned, leader: LeaderAndEpoch, now_ms: float) -> int:
        """The broker to read from now; to be asked at every poll."""
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
        if self._near_of is not self._cache.brokers:  # replaced with every answer
            self._near, self._near_of = {}, self._cache.brokers
        if key not in self._near:
            self._near[key] = self._cache.in_sync_in_rack(key, self._rack)
        return self._near[key]

    def avoid(self, assigned: Assigned, now_ms: float) -> None:
        """Do not read this partition from its follower for a while; nothing keeps us from a leader."""
        if assigned.follower_id is not None and assigned.key is not None:
            epoch = self._cache.seen_epoch(assigned.key)
            self._avoided[assigned.key, assigned.follower_id] = (epoch, now_ms + _AVOIDED_MS)

    def avoid_broker(self, broker_id: int, now_ms: float) -> None:
        """Its stream was lost: follow none of its partitions for a while."""
        self._avoided_brokers[broker_id] = now_ms + _AVOIDED_MS

    def _is_avoided(self, key: PartitionKey, broker_id: int, epoch: int, now_ms: float) -> bool:
        avoided_epoch, until_ms = self._avoided.get((key, broker_id), (epoch, 0.0))
        if epoch > avoided_epoch or now_ms >= until_ms:
            self._avoided.pop((key, broker_id), None)
            until_ms = 0.0
        return now_ms < max(until_ms, self._avoided_brokers.get(broker_id, 0.0))

    @staticmethod
    def due_ms(assigned: Assigned) -> float:
        """When patience with a follower ends; infinity where nothing is expected of one."""
        return float("inf") if assigned.expected_since_ms is None else assigned.expected_since_ms + _PATIENCE_MS
