"""What brokers and clients tell each other of records, against the disks: see partition.py for the rules.

a run, an end that was asked for    nobody tells a high watermark, or a stable offset, that is not one
an acknowledgement                  acks=all: committed, at that offset, and it is what was sent; acks=1: durable
progress                            nobody says that durable is what is not on its disk (24)
a proposal                          has the leader among its members (V4)
a deletion that is answered         nothing below is left on whoever could be elected (KIP-107)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer, decode_header, iterate_headers
from minilog.v1 import common_pb2
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_ID
from tests.judges.partition import check_order, check_proposed
from tests.judges.violation import Violation
from tests.simulation.judge.compaction import Compaction
from tests.simulation.judge.partition import JudgedLead, JudgedPartition
from tests.simulation.judge.transactions import Transactions

if TYPE_CHECKING:
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

_Look = Callable[["Said", Any, Sequence[Buffer]], None]
_OK = common_pb2.ERROR_CODE_NONE


class Replication:
    """What brokers and clients say of partitions, each message against disks."""

    def __init__(self, truth: Truth, transactions: Transactions, compaction: Compaction) -> None:
        self._truth = truth
        self._transactions = transactions
        self._compaction = compaction
        self._produced: weakref.WeakKeyDictionary[Said, dict[int, tuple[int, BatchHeader]]] = (
            weakref.WeakKeyDictionary()
        )
        self._deletions: weakref.WeakKeyDictionary[Said, Any] = weakref.WeakKeyDictionary()
        self._asked: dict[str, _Look] = {
            "/minilog.v1.DataService/Produce": self._produce,
            "/minilog.v1.DataService/DeleteRecords": self._delete,
            "/minilog.v1.PeerService/Replicate": self._progress,
            "/minilog.v1.PeerService/ProposeInSyncReplicas": self._propose,
        }
        self._answered: dict[str, _Look] = {
            "/minilog.v1.DataService/Produce": self._produced_at,
            "/minilog.v1.DataService/DeleteRecords": self._deleted,
            "/minilog.v1.DataService/Fetch": self._runs,
            "/minilog.v1.PeerService/Replicate": self._runs,
            "/minilog.v1.MetadataService/ListOffsets": self._ends,
        }

    def saw(self, call: Said, message: Any, payloads: Sequence[Buffer], answers: bool) -> None:
        """A message is sent, with its payloads."""
        look = (self._answered if answers else self._asked).get(call.method)
        if look is not None:
            look(call, message, payloads)

    # -- runs and ends

    def _runs(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        number, life = self._truth.speaker(call.host)
        leads = call.method.endswith("Replicate")
        for run, batches in zip(message.runs, payloads, strict=True):
            key = PartitionKey(run.partition_id.topic_id, run.partition_id.partition)
            if key.topic_id == CLUSTER_METADATA_TOPIC_ID:
                if run.error.code == _OK:
                    self._truth.metadata.told(number, run.leader_epoch, run.high_watermark)
                continue
            partition = self._truth.partition(key)
            if partition is None:
                continue
            if run.error.code == _OK:
                lead = self._lead(partition, number, life, run.leader_epoch, leads=leads)
                self._told(partition, number, lead, run)
                self._check_sent(partition, number, run, batches, to_follower=leads)

    def _lead(
        self, partition: JudgedPartition, number: int, life: int, epoch: int, *, leads: bool
    ) -> JudgedLead | None:
        if leads:
            return partition.leads_now(number, life, epoch)
        lead = partition.leads.get(epoch)
        return lead if lead is not None and (lead.number, lead.life) == (number, life) else None

    def _told(self, partition: JudgedPartition, number: int, lead: JudgedLead | None, told: Any) -> None:
        self._committed(partition, number, partition.told(number, told.high_watermark, lead))
        stable = told.last_stable_offset
        check_order(partition.who(number), stable, told.high_watermark)
        check_order(partition.who(number), told.log_start_offset, max(stable, 0))
        if lead is not None:
            partition.check_start(number, told.log_start_offset, lead)
        self._transactions.check_stable(partition, number, told)

    def _committed(self, partition: JudgedPartition, number: int, batches: list[BatchHeader]) -> None:
        """More is committed; the copy of host `number` has it."""
        self._transactions.committed(partition, number, batches)
        self._compaction.committed(partition, number, batches)

    def _check_sent(
        self, partition: JudgedPartition, number: int, run: Any, batches: Buffer, *, to_follower: bool
    ) -> None:
        """Nobody is handed what is not committed; only followers are."""
        if not batches or to_follower or partition.exempt:
            return
        try:
            header = [each for _, each in iterate_headers(batches)][-1]
        except CorruptMessage:
            return  # rotten on the disk, which the reader finds
        if header.base_offset >= run.high_watermark:
            text = f"b{number} hands a reader what is at {header.base_offset}, its high watermark is "
            raise partition.fail("V14", f"{text}{run.high_watermark}")

    def _ends(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        number, life = self._truth.speaker(call.host)
        for result in message.results:
            partition = self._truth.partition(PartitionKey(result.partition_id.topic_id, result.partition_id.partition))
            if partition is None or result.error.code != _OK:
                continue
            lead = partition.leads_now(number, life, result.leader_epoch)
            partition.check_latest(number, result.leader_epoch, result.high_watermark)
            self._told(partition, number, lead, result)

    # -- writes

    def _produce(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        sent = self._produced.setdefault(call, {})
        for entry, batch in zip(message.entries, payloads, strict=True):
            sent[entry.correlation_id] = message.acks, decode_header(batch)

    def _produced_at(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        number, _ = self._truth.speaker(call.host)
        sent = self._produced.get(call, {})
        for result in message.results:
            asked = sent.pop(result.correlation_id, None)
            partition = self._truth.partition(PartitionKey(result.partition_id.topic_id, result.partition_id.partition))
            if asked is None or partition is None or partition.exempt or result.error.code != _OK:
                continue
            acks, header = asked
            end = result.base_offset + header.record_count
            if acks == -1 or header.is_transactional:
                self._committed(partition, number, partition.told(number, end, None))
            self._check_stands(partition, number, header, result.base_offset)

    def _check_stands(self, partition: JudgedPartition, number: int, header: BatchHeader, offset: int) -> None:
        """What was sent is where it was said to be, on the disk of who says so."""
        copy = self._truth.copies.of(number, partition.name)
        view = partition.view(copy)
        found = next(iter(view.from_offset(offset)), None)
        if found is not None and (found.base_offset, found.crc) == (offset, header.crc):
            return
        if offset < partition.deletable or self._truth.damage.excuses(number, partition.key):
            return
        if partition.compaction is not None and offset < partition.compaction.point.clean_to:
            found = partition.committed_at(offset)  # what it was before it was compacted
            if found is not None and (found.base_offset, found.crc) == (offset, header.crc):
                return
        text = f"b{number} acknowledges {header.record_count} records at {offset}; on its disk is {found}"
        raise partition.fail("V7", text)

    # -- followers, and who is in sync

    def _progress(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        number, _ = self._truth.speaker(call.client)
        if number < 0:
            return
        for progress in message.progress:
            key = PartitionKey(progress.partition_id.topic_id, progress.partition_id.partition)
            name = self._truth.log_name(key)
            if name is None or progress.unsynced or self._truth.damage.excuses(number, key):
                continue
            view = self._truth.copies.of(number, name).durable
            if view.batches and view.end < progress.durable_end_offset:
                text = f"b{number} says that {name} is durable up to {progress.durable_end_offset}, on its disk is "
                raise Violation("V1", f"{text}{view.end}")

    def _propose(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        if self._truth.speaker(call.client)[0] < 0:
            return
        for proposal in message.proposals:
            check_proposed(message.broker_id, [each.broker_id for each in proposal.in_sync_replicas])

    # -- deletions

    def _delete(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        self._deletions[call] = message
        for entry in message.entries:
            partition = self._truth.partition(PartitionKey(entry.partition_id.topic_id, entry.partition_id.partition))
            if partition is not None:
                partition.deletable = max(partition.deletable, entry.before_offset)

    def _deleted(self, call: Said, message: Any, payloads: Sequence[Buffer]) -> None:
        number, _ = self._truth.speaker(call.host)
        for result in message.results:
            partition = self._truth.partition(PartitionKey(result.partition_id.topic_id, result.partition_id.partition))
            if partition is None or result.error.code != _OK or partition.exempt:
                continue
            if result.low_watermark > partition.deletable:
                text = f"b{number} has deleted below {result.low_watermark}, only {partition.deletable} was asked for"
                raise partition.fail("KIP-107", text)
            partition.deleted = max(partition.deleted, result.low_watermark)
            partition.check_deleted()
