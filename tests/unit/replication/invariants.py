"""The invariants of docs/spec/invariants.md, checked after every event of a history (the numbers are its numbers)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.replica_effects import AnswerProduce
from tests.unit.replication.cluster import KEY, BrokerOfCores, ReplicaCluster


class Entry(NamedTuple):
    """A batch at its place."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def entry(header: BatchHeader) -> Entry:
    return Entry(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)


@dataclass
class Checker:
    """`committed` is all that any leader's high watermark ever covered: it only grows, the same for all."""

    cluster: ReplicaCluster
    committed: list[Entry] = field(default_factory=list)
    _sequences: set[tuple[int, int]] = field(default_factory=set)
    _entries: dict[int, tuple[int, list[Entry]]] = field(default_factory=dict)
    _kept: dict[int, tuple[int, list[Entry]]] = field(default_factory=dict)
    _high_watermarks: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _latest: dict[int, int] = field(default_factory=dict)
    _leaders: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def committed_end(self) -> int:
        return self.committed[-1].next_offset if self.committed else 0

    def check(self) -> None:
        for broker in self.cluster.live():
            if KEY in broker.logs:
                self._check_replica(broker)
        for broker in self.cluster.live():
            leader = broker.leader()
            if leader is not None and leader.leading:
                self._check_leader(broker, leader)
        self._check_followers()
        self._check_controller()

    # -- every replica

    def entries(self, broker: BrokerOfCores) -> list[Entry]:
        """What is in its log; of a dead one what its disk kept."""
        version, found = self._entries.get(broker.broker_id, (-1, []))
        if version != broker.version:
            headers = broker.headers() if broker.alive else broker.kept[KEY]
            found = [entry(header) for header in headers]
            self._entries[broker.broker_id] = (broker.version, found)
        return found

    def _durable(self, broker: BrokerOfCores) -> list[Entry]:
        end_offset = broker.logs[KEY].durable_end_offset
        found = self.entries(broker)
        if not broker.alive or not found or found[-1].next_offset <= end_offset:
            return found
        return [each for each in found if each.next_offset <= end_offset]

    def _check_replica(self, broker: BrokerOfCores) -> None:
        log = broker.logs[KEY]
        high_watermark, durable_end, end = broker.ends()
        assert log.log_start_offset <= high_watermark <= durable_end <= end, f"V1 {log!r} {broker.ends()}"
        found = self.entries(broker)
        assert not found or found[-1].next_offset == end, "V2: the log ends elsewhere"
        for before, after in itertools.pairwise(found):
            assert before.next_offset == after.base_offset, "V2: a gap"
            assert before.epoch <= after.epoch, "V3: an epoch decreases"
        starts = log.epochs.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(starts)), "V3"

    # -- everyone who believes to lead

    def _check_leader(self, broker: BrokerOfCores, leader: LeaderPartition) -> None:
        high_watermark = leader.log.high_watermark
        named = (broker.broker_id, broker.lives, leader.leader_epoch)
        before = self._high_watermarks.get(named, -1)
        assert high_watermark >= before, "V8: HW went back"
        if high_watermark > before >= 0:
            assert len(leader.state.in_sync_replicas) >= leader.min_in_sync, "V18"
        self._high_watermarks[named] = high_watermark
        life = (broker.broker_id, broker.lives)
        assert self._leaders.setdefault(leader.leader_epoch, life) == life, "V17: a leader epoch spans two lives"
        self._commit(broker, high_watermark)
        self._check_latest(leader, high_watermark)
        assert broker.broker_id in leader.in_sync.maximal, "V4"
        if leader.in_sync.proposal is not None:
            assert broker.broker_id in leader.in_sync.proposal.broker_ids, "V4"
        controlled = self.cluster.controller.partitions[KEY]
        if (controlled.leader_id, controlled.leader_epoch) == (broker.broker_id, leader.leader_epoch):
            assert leader.in_sync.maximal >= set(controlled.in_sync_replicas), "V10"

    def _commit(self, broker: BrokerOfCores, high_watermark: int) -> None:
        """What is below the high watermark of anyone who believes to lead is committed, for good."""
        for found in self.entries(broker)[len(self.committed) :]:
            if found.next_offset > high_watermark:
                break
            self.committed.append(found)
        for header in broker.headers() if high_watermark > 0 else ():
            if header.next_offset <= high_watermark and header.producer_id != NO_PRODUCER_ID:
                self._sequences.add((header.base_sequence, header.base_offset))
        values = [sequence for sequence, _ in self._sequences]
        assert len(values) == len(set(values)), "V14: a value at two offsets"

    def _check_latest(self, leader: LeaderPartition, high_watermark: int) -> None:
        if leader.knows_its_end:
            for epoch, answered in self._latest.items():
                assert epoch > leader.leader_epoch or high_watermark >= answered or epoch == leader.leader_epoch, "V8"
            self._latest[leader.leader_epoch] = max(self._latest.get(leader.leader_epoch, 0), high_watermark)

    # -- replicas among each other

    def _check_followers(self) -> None:
        for broker in self.cluster.live():
            if KEY in broker.logs:
                high_watermark = broker.ends()[0]
                below = [found for found in self.entries(broker) if found.next_offset <= high_watermark]
                assert below == self.committed[: len(below)], f"V2, V9 at broker {broker.broker_id}"

    def _check_controller(self) -> None:
        state = self.cluster.controller.partitions[KEY]
        assert state.in_sync_replicas, "V4: an empty ISR"
        assert state.leader_id in (-1, *state.in_sync_replicas), "V4: the leader is not in the ISR"
        for broker_id in (*state.in_sync_replicas, *state.eligible_leaders):
            broker = self.cluster[broker_id]
            if self.committed:
                durable = self._durable(broker)[: len(self.committed)]
                assert durable == self.committed, f"V5, V6, V7: broker {broker_id} lacks what is committed"

    def acknowledged(self, broker: BrokerOfCores, answer: AnswerProduce, crc: int) -> None:
        """An acks=all answer without an error: the batch is committed where it says."""
        self.check()
        found = [each for each in self.committed if each.base_offset == answer.base_offset]
        assert found, f"V7: offset {answer.base_offset} was acknowledged and is not committed"
        assert found[0].crc == crc, "V7: another batch was committed where this one was acknowledged"
