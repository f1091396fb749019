"""Partitions without a leader, for the operator: one that stays without for LASTS_MS is told once.

    noted     its last replica that could lead is gone, by a committed decision
    told      it has had no leader for LASTS_MS
    forgotten it has a leader again, or its topic is deleted

When a controller changes, brokers that run come back within a moment. An error about them, with the advice to accept a
loss, would be false a second later. A controller that begins its term notes what has no leader then.
"""

from __future__ import annotations

from minilog.partition_key import PartitionKey
from minilog_broker.controller.controller_effects import PartitionWaits
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState

LASTS_MS = 10_000.0  # longer than a restart of a broker, and three of its sessions


class LeaderlessPartitions:
    """Those of one term of a controller."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        # The time since which each has no leader, None until the next tick. What was told stays, with infinity.
        self._since_ms: dict[PartitionKey, float | None] = {
            key: None for key, state in image.partitions.items() if state.leader_id == NO_LEADER
        }

    def note(self, key: PartitionKey) -> None:
        """It has no leader, by a committed decision."""
        self._since_ms.setdefault(key, None)

    def tick(self, now_ms: float) -> list[PartitionWaits]:
        """What is to be told now."""
        told = []
        for key, since_ms in list(self._since_ms.items()):
            state = self._image.partitions.get(key)
            if state is None or state.leader_id != NO_LEADER:
                del self._since_ms[key]
            elif since_ms is None:
                self._since_ms[key] = now_ms
            elif now_ms - since_ms >= LASTS_MS:
                self._since_ms[key] = float("inf")
                told.append(PartitionWaits(key, state.topic_name, waiting_reason(state)))
        return told


def waiting_reason(state: PartitionState) -> str:
    """Why the partition has no leader, and the remedy."""
    candidates = sorted({*state.in_sync_replicas, *state.eligible_leaders})
    damaged = sorted(set(candidates) & set(state.damaged_replicas))
    harm = f". The copies on brokers {damaged} are damaged" if damaged else ""
    return (
        f"partition {state.key.partition} of {state.topic_name} has had no leader for {LASTS_MS / 1000:.0f} s: only "
        f"brokers {candidates} have all acknowledged records, and none of them can lead now{harm}. Start them, or "
        "accept the loss by unclean.leader.election.enable. A copy with a torn tail waits for another copy, to compare "
        "the two"
    )
