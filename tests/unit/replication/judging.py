"""What a cluster of replicas shows the judges (tests/judges) after each event of a history."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.replication.replica_effects import AnswerProduce
from tests.judges.partition import Known, Led, Log, Sequences, check_copy, check_led, judge
from tests.judges.states import check_state
from tests.judges.violation import Violation, hold
from tests.unit.replication.cluster import KEY, BrokerOfCores, ReplicaCluster


class Entry(NamedTuple):
    """A batch at its place."""

    epoch: int
    base_offset: int
    next_offset: int
    crc: int
    sequence: tuple[int, int, int]  # producer, its epoch, sequence


def entry(header: BatchHeader) -> Entry:
    sequence = header.producer_id, header.producer_epoch, header.base_sequence
    return Entry(header.partition_leader_epoch, header.base_offset, header.next_offset, header.crc, sequence)


@dataclass(frozen=True, slots=True)
class CopyOfCores:
    """A broker's log; of a dead one what its disk kept."""

    entries: tuple[Entry, ...]
    epochs: tuple[tuple[int, int], ...]
    ends: tuple[int, int, int, int]

    def below(self, offset: int) -> Log:
        count = len(self.entries)
        while count and self.entries[count - 1].next_offset > offset:
            count -= 1
        return self.entries[:count]


@dataclass
class ReplicaJudges:
    """Looks at one cluster, again and again."""

    cluster: ReplicaCluster
    known: Known = field(default_factory=Known)
    _sequences: Sequences = field(default_factory=Sequences)
    _entries: dict[int, tuple[int, tuple[Entry, ...]]] = field(default_factory=dict)
    _leads: dict[int, Led] = field(default_factory=dict)
    _state: PartitionState | None = None

    @property
    def committed(self) -> list[Entry]:
        return list(cast(tuple[Entry, ...], self.known.committed))

    @property
    def committed_end(self) -> int:
        return self.committed[-1].next_offset if self.known.committed else 0

    def check(self) -> None:
        copies = {number: self._copy(broker) for number, broker in self.cluster.brokers.items()}
        for number, copy in copies.items():
            check_copy(number, copy)
        leads = {
            broker.broker_id: self._led(broker, leader)
            for broker in self.cluster.live()
            if (leader := broker.leader()) is not None and leader.leading
        }
        for number, led in leads.items():
            check_led(self._leads.get(number), led)
        state = self.cluster.controller.partitions[KEY]
        if state != self._state:
            check_state("the partition", state, self._state)
        before = len(self.known.committed)
        self.known = judge(copies, list(leads.values()), state, self.known)
        self._leads, self._state = leads, state
        for each in self.committed[before:]:
            if each.sequence[0] != NO_PRODUCER_ID:
                self._sequences.committed(each.sequence, each.base_offset)

    def _copy(self, broker: BrokerOfCores) -> CopyOfCores:
        log = broker.logs.get(KEY)
        if log is None:
            return CopyOfCores((), (), (0, 0, 0, 0))
        version, entries = self._entries.get(broker.broker_id, (-1, ()))
        if version != broker.version:
            entries = tuple(entry(header) for header in (broker.headers() if broker.alive else broker.kept[KEY]))
            self._entries[broker.broker_id] = broker.version, entries
            for before, after in itertools.pairwise(entries):
                hold(before.next_offset == after.base_offset, "V2", f"a gap at {before.next_offset}")
        end = entries[-1].next_offset if entries else log.log_start_offset
        if not broker.alive:
            return CopyOfCores(entries, (), (0, 0, end, end))
        hold(end == log.log_end_offset, "V2", f"the log of b{broker.broker_id} ends at {end}")
        high_watermark, durable_end, log_end = broker.ends()
        return CopyOfCores(
            entries, tuple(log.epochs.entries), (log.log_start_offset, high_watermark, durable_end, log_end)
        )

    def _led(self, broker: BrokerOfCores, leader: LeaderPartition) -> Led:
        assert broker.broker_epoch is not None
        proposal = leader.in_sync.proposal
        return Led(
            broker.broker_id,
            broker.broker_epoch,
            leader.state,
            leader.log.high_watermark,
            leader.min_in_sync,
            leader.in_sync.maximal,
            None if proposal is None else proposal.broker_ids,
            leader.knows_its_end,
        )

    def acknowledged(self, answer: AnswerProduce, crc: int) -> None:
        """An acks=all answer without an error: the batch is committed where it says."""
        self.check()
        found = [each for each in self.committed if each.base_offset == answer.base_offset]
        if not found or found[0].crc != crc:
            raise Violation("V7", f"offset {answer.base_offset} was acknowledged, and committed is {found}")
