"""The truth about the metadata log: what is committed, and the one image that is its replay. V12, V13.

The log is mirrored as any other. A decision is committed when a leader of the quorum says so first: at that moment a
majority of voters must have it on disk, and one of the leader's own epoch must be among what is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from minilog_broker.controller.image import MetadataImage
from minilog_broker.quorum.records import METADATA_KEY, decode_run
from minilog_broker.replication.partition_state import PartitionKey, PartitionState
from minilog_broker.storage.log import Log
from tests.simulation.invariants.mirror import Committed, Mirror
from tests.simulation.invariants.violation import Violation

_READ_BYTES = 1 << 20


def digest(image: MetadataImage) -> int:
    """A number for the content of an image; equal contents have equal numbers within one process."""
    configs = frozenset((topic, frozenset(values.items())) for topic, values in image.configs.items() if values)
    tables = (image.brokers, image.topics, image.topic_ids, image.partitions)
    named = (image.cluster_id, image.voters, image.next_producer_id)
    return hash((*named, *(frozenset(table.items()) for table in tables), configs))


class Decided(NamedTuple):
    """What one committed record changed: partitions, as of that record, and partitions that are gone.

    `broker_epochs`: the life of each broker, as of that record."""

    states: list[PartitionState]
    removed: list[PartitionKey]
    broker_epochs: dict[int, int]


@dataclass(slots=True)
class MetadataTruth:
    """See the module's text."""

    committed: Committed = field(default_factory=Committed)
    mirrors: dict[int, Mirror] = field(default_factory=dict)
    image: MetadataImage = field(default_factory=MetadataImage)
    digests: dict[int, int] = field(default_factory=dict)  # by the end offset of a decision

    def _fail(self, rule: str, message: str, *nodes: int, epoch: int | None = None) -> Violation:
        return Violation(rule, message, nodes=nodes, key=METADATA_KEY, epoch=epoch)

    def broker_epochs(self) -> dict[int, int]:
        """The life of each broker that is recorded now."""
        return {broker.broker_id: broker.broker_epoch for broker in self.image.brokers.values()}

    def advance(self, node_id: int, log: Log, committed_end: int, leader_epoch: int | None) -> list[Decided]:
        """A node says that all below `committed_end` is committed. What follows, record by record.

        `leader_epoch`: where it leads the quorum, in this epoch.
        """
        if committed_end <= self.committed.end_offset:
            return []
        decided: list[Decided] = []
        offset = self.committed.end_offset
        self._append(self.mirrors[node_id], committed_end)
        if leader_epoch is None:
            raise self._fail("V12", f"node {node_id} commits up to {committed_end} and leads no quorum", node_id)
        newest = self.committed.entries[-1]
        if newest.epoch != leader_epoch and not self._has_majority_entered(leader_epoch):
            text = f"node {node_id} commits {newest} in its epoch {leader_epoch} by counting"
            raise self._fail("V12", text, node_id, epoch=leader_epoch)
        while offset < committed_end:
            for decision in decode_run(log.read(offset, _READ_BYTES, committed_end)):
                for index, record in enumerate(decision.records):
                    self.image.apply(decision.base_offset + index, record)
                    changes = self.image.take_changes()
                    states = [self.image.partitions[key] for key in sorted(changes.partitions)]
                    if states or changes.removed:
                        decided.append(Decided(states, sorted(changes.removed), self.broker_epochs()))
                self.image.end_offset = decision.end_offset
                self.digests[decision.end_offset] = digest(self.image)
                offset = decision.end_offset
        self._check_majority(node_id, leader_epoch)
        return decided

    def _has_majority_entered(self, epoch: int) -> bool:
        """An entry of this epoch is on a majority of disks, though the leader, behind with its own, says less."""
        voters = [voter.broker_id for voter in self.image.voters]
        mirrors = [self.mirrors[voter_id] for voter_id in voters if voter_id in self.mirrors]
        durable = [each for each in mirrors if each.durable_epoch() >= epoch]
        return len(durable) > len(voters) // 2

    def _append(self, mirror: Mirror, committed_end: int) -> None:
        mirror.agree()
        committed = self.committed.entries
        if mirror.agreed != len(committed):
            text = f"node {mirror.node_id} commits up to {committed_end}, and lacks {committed[mirror.agreed]}"
            raise self._fail("V12", text, mirror.node_id)
        while mirror.agreed - mirror.first < len(mirror.entries):
            entry = mirror.entries[mirror.agreed - mirror.first]
            if entry.next_offset > committed_end:
                break
            committed.append(entry)
            mirror.agreed += 1

    def _check_majority(self, node_id: int, epoch: int) -> None:
        voters = [voter.broker_id for voter in self.image.voters]
        missing = []
        for voter_id in voters:
            mirror = self.mirrors.get(voter_id)
            if mirror is None or mirror.lacks_durably() is not None:
                missing.append(voter_id)
        if len(voters) - len(missing) <= len(voters) // 2:
            end = self.committed.end_offset
            text = f"node {node_id} commits up to {end}, which of voters {voters} {missing} do not have on disk"
            raise self._fail("V12", text, node_id, *missing, epoch=epoch)

    def check_image(self, node_id: int, image: MetadataImage) -> None:
        """V13: a node's image is the replay of a committed prefix."""
        end = image.end_offset
        if end > self.committed.end_offset:
            text = f"node {node_id} replayed up to {end}, {self.committed.end_offset} are committed"
            raise self._fail("V13", text, node_id)
        known = self.digests.get(end)
        if known is not None and known != digest(image):
            raise self._fail("V13", f"the image of node {node_id} at {end} is not the replay of the log", node_id)
