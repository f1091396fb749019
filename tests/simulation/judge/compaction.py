"""The compaction of partitions, on disks and wires: K1 to K6, and when a point may be what it is.

a checkpoint    is looked at when it is written. `begun` says that all below clean_to is committed, and that no
                transaction is open there. Its deletes_before is at most a clean_to that was announced long enough ago.
                `done` says that the copy has the records that the rule lets stay, and no others
a swap          a compacted segment has its name: the copy is looked at before anything else happens
a crash         what a loss of power would leave is looked at five times a second

compacted_partition.py has what the rule lets go.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import decode_header
from minilog_broker.storage.producer_state import restored
from tests.judges.compaction import NO_POINT, JudgedPoint, Wrong
from tests.judges.violation import Violation
from tests.simulation.machines.host import DATA_PATH
from tests.simulation.machines.machine import EPOCH_S
from tests.world.stored import content_of

if TYPE_CHECKING:
    from minilog.record_batch.header import BatchHeader
    from tests.judges.views import View
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.copies import Copy
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.transactions import Transactions
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

_SWAPPED = re.compile(r"\d{20}\.\d+\.log")
_SNAPSHOT = re.compile(r"\d{20}\.snapshot")
CLOCK_SHARE, SLACK_MS = 0.96, 500.0  # clocks run at rates of their own, and a point is seen somewhat after its decision
LOOK_S = 0.25
COMPACTED, FAILED = "a copy is compacted", "the cleaner met an error, and begins this copy again in its next round"
_OF_DISKS = re.compile(r"\[errno|no space|disk")


@dataclass(slots=True)
class _Seen:
    """What the checkpoint of a copy said last."""

    log_start: int = 0
    begun: JudgedPoint = NO_POINT
    done: JudgedPoint = NO_POINT


class Compaction:
    """See the module's text."""

    def __init__(self, cluster: SimulatedCluster, truth: Truth, transactions: Transactions) -> None:
        self._cluster = cluster
        self._truth = truth
        self._transactions = transactions
        self._seen: dict[tuple[int, PartitionKey], _Seen] = {}
        self._renames: dict[tuple[int, PartitionKey], int] = {}
        self._looked: dict[tuple[int, PartitionKey, bool], tuple[int, int, JudgedPoint]] = {}
        self._announced: dict[PartitionKey, list[tuple[int, float]]] = {}
        self.trimmed: Mapping[PartitionKey, int] = {}  # what is below may be deleted: somebody asked for that
        self._ahead_s = 0.0  # of the brokers' wall clocks, the most so far
        cluster.listeners.append(self._hear)

    # -- what is told

    def committed(self, partition: JudgedPartition, number: int, batches: list[BatchHeader]) -> None:
        """More is committed; the copy of host `number` has it."""
        compaction = partition.compaction
        if compaction is None:
            return
        for header in batches:
            if header.has_gaps:
                self._cluster.count("a batch was known late")
            copy = partition.sound_copy(number)
            if copy is not None:
                content = copy.live.content(header.base_offset)
                compaction.committed(decode_header(content), content)

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent: runs say what their leader has decided."""
        if not answers or call.method != "/minilog.v1.PeerService/Replicate":
            return
        for run in message.runs:
            if run.HasField("compaction"):
                partition = self._truth.partition(PartitionKey.of(run.partition_id))
                if partition is not None and partition.compaction is not None:
                    self._announce(partition, JudgedPoint(run.compaction.clean_to, run.compaction.deletes_before))

    def _announce(self, partition: JudgedPartition, point: JudgedPoint) -> None:
        """K1, of deletions: who has seen a record has delete.retention.ms to see that it is deleted."""
        now_ms, announced = self._cluster.now_s * 1e3, self._announced.setdefault(partition.key, [])
        retention_ms = self._truth.metadata.later_delete_retention_ms(partition.key.topic_id)
        if point.deletes_before > point.clean_to:
            raise partition.fail("K1", f"{point} lets deletions go above its clean_to")
        least_ms = retention_ms * CLOCK_SHARE - SLACK_MS
        since_ms = next((at_ms for clean_to, at_ms in announced if clean_to >= point.deletes_before), now_ms)
        if point.deletes_before > 0 and now_ms - since_ms < least_ms and not partition.exempt:
            text = f"{point} lets deletions go that were to stay for {retention_ms} ms, announced "
            raise partition.fail("K1", f"{text}{now_ms - since_ms:.0f} ms ago")
        if not announced or point.clean_to > announced[-1][0]:
            announced.append((point.clean_to, now_ms))

    def _hear(self, event: Mapping[str, Any]) -> None:
        """What brokers log of it. Errors of disks are faults; any other error says that the cleaner reads what it must
        not, or writes what it cannot."""
        if event.get("event") == COMPACTED:
            self._cluster.count(COMPACTED)
        if event.get("event") == FAILED:
            self._cluster.count("the cleaner met an error")
            if not _OF_DISKS.search(str(event.get("error", "")).lower()) and not self._cluster.plan.rots:
                self._cluster.fail(Violation("K2", f"a cleaner met an error: {event['error']}"))

    # -- what is written

    def written(self, number: int, path: str) -> None:
        """A file of a host took this name."""
        directory, _, name = path.removeprefix(DATA_PATH + "/").partition("/")
        is_swap = _SWAPPED.fullmatch(name) is not None
        if not is_swap and name != "checkpoint":
            return
        partition = self._partition_of(directory)
        if partition is None:
            return
        copy = self._truth.copies.of(number, partition.name)
        if is_swap:
            self._check(partition, copy, copy.live)
        else:
            self._look_at_checkpoint(partition, copy)

    def _partition_of(self, directory: str) -> JudgedPartition | None:
        """The compacted partition with that log."""
        for partition in self._truth.partitions.values():
            known = partition.key in self._truth.metadata.states
            if known and partition.compaction is not None and partition.name == directory:
                return partition
        return None

    def _look_at_checkpoint(self, partition: JudgedPartition, copy: Copy) -> None:
        compaction, number = partition.compaction, copy.host.number
        said = copy.recorded("checkpoint", durable=False)
        if said is None or compaction is None or partition.exempt or self._is_excused(number, partition):
            return
        seen = self._seen.setdefault((number, partition.key), _Seen())
        seen.log_start, former_start = int(said["log_start_offset"]), seen.log_start
        self._check_deleted(partition, number, former_start, seen.log_start)
        points = said["compaction"]
        begun, done = JudgedPoint(**points["begun"]), JudgedPoint(**points["done"])
        if begun not in (seen.begun, NO_POINT):
            self._begun(partition, copy, begun, int(said["high_watermark"]))
            compaction.point = compaction.point.joined(begun)
        if done not in (seen.done, NO_POINT):
            start = max(copy.live.start, int(said["log_start_offset"]))
            self._raise(partition, number, compaction.first_not_done(copy.live, start, done))
        seen.begun, seen.done = begun, done

    def _check_deleted(self, partition: JudgedPartition, number: int, start: int, upto: int) -> None:
        """K1, of retention: a log start passes over no record that is younger than retention.ms, and that nobody asked
        to delete."""
        ahead_us = (host.wall_offset_us for host in self._cluster.hosts.values())
        self._ahead_s = max(self._ahead_s, *(offset_us / 1e6 for offset_us in ahead_us))
        kept_ms = float(self._cluster.plan.topic_configs.get("retention.ms", math.inf))
        oldest_s = EPOCH_S + self._cluster.now_s + self._ahead_s - kept_ms / 1e3
        asked = self.trimmed.get(partition.key, 0)
        compaction = partition.compaction
        young = None if compaction is None else compaction.first_younger(max(start, asked), upto, oldest_s)
        if young is not None:
            text = f"b{number} begins its log at {upto}, and retention keeps the record at {young.offset}: {young}"
            raise partition.fail("K1", text)

    def _begun(self, partition: JudgedPartition, copy: Copy, begun: JudgedPoint, high_watermark: int) -> None:
        """K4: all below is committed, and so is the end of each transaction there."""
        number = copy.host.number
        new = partition.told(number, max(begun.clean_to, high_watermark), None)
        self._transactions.committed(partition, number, new)
        self.committed(partition, number, new)
        self._announce(partition, begun)
        if begun.clean_to > high_watermark:
            text = f"b{number} begins to compact up to {begun.clean_to}, and its own high watermark is {high_watermark}"
            raise partition.fail("K4", text)
        names = copy.host.disk.files(copy.path, durable=True)
        if not any(_SNAPSHOT.fullmatch(name) and int(name[:20]) >= begun.clean_to for name in names):
            text = f"b{number} begins to compact up to {begun.clean_to}, and no snapshot has the producers below it"
            raise partition.fail("K6", text)
        first = self._transactions.first_open(partition.key)
        if first is not None and first < begun.clean_to:
            text = f"b{number} begins to compact up to {begun.clean_to}, a transaction is open from {first} on"
            raise partition.fail("K4", text)

    def _is_excused(self, number: int, partition: JudgedPartition) -> bool:
        return self._truth.damage.excuses(number, partition.key)

    # -- what copies have

    def look(self) -> None:
        """At the copies whose files have other names, as they are and as a loss of power would leave them."""
        for copy, key, partition in self._truth.all_copies():
            place = copy.host.number, key
            if partition is None or partition.compaction is None or self._renames.get(place) == copy.host.disk.renames:
                continue
            self._renames[place] = copy.host.disk.renames
            self._check(partition, copy, copy.live)
            self._check(partition, copy, copy.durable)

    def _check(self, partition: JudgedPartition, copy: Copy, view: View) -> None:
        number, compaction = copy.host.number, partition.compaction
        said = copy.recorded("checkpoint", durable=view.durable)
        if compaction is None or said is None or partition.exempt or self._is_excused(number, partition):
            return
        start = max(view.start, int(said["log_start_offset"]))
        upto = min(int(said["compaction"]["begun"]["clean_to"]), view.end, compaction.end)
        place, looked = (number, partition.key, view.durable), (start, upto, compaction.point)
        if view.unchanged_to >= upto and self._looked.get(place) == looked:
            return
        self._looked[place], view.unchanged_to = looked, math.inf
        counts_as_aborted = lambda producer_id, offset: _is_aborted(copy, view, producer_id, offset)  # noqa: E731
        self._raise(partition, number, compaction.first_wrong(view, start, upto, counts_as_aborted))

    def _raise(self, partition: JudgedPartition, number: int, wrong: Wrong | None) -> None:
        if wrong is not None:
            raise partition.fail(wrong.rule, f"b{number}: {wrong.text}")

    # -- for readers

    def may_miss(self, key: PartitionKey, offset: int) -> bool:
        """Whether a reader may find no record at an offset."""
        partition = self._truth.partitions.get(key)
        return partition is not None and partition.compaction is not None and partition.compaction.may_miss(offset)

    def may_miss_value(self, keys: Mapping[int, PartitionKey], value: bytes) -> bool:
        """Whether a reader may not find the record with this value, in whichever of the partitions it is."""
        for key in keys.values():
            partition = self._truth.partitions.get(key)
            if partition is None or partition.compaction is None:
                continue
            if (place := partition.compaction.place_of(value)) is not None:
                return partition.compaction.may_miss(place) or self._may_be_deleted(partition, place)
        return False

    def _may_be_deleted(self, partition: JudgedPartition, offset: int) -> bool:
        """Whether retention may have deleted a record: the topic has retention, and a copy begins above the record."""
        has_retention = "retention.ms" in self._cluster.plan.topic_configs
        return has_retention and any(copy.live.start > offset for copy in self._truth.copies.all_of(partition.name))

    def clean_to(self, key: PartitionKey) -> int:
        """Below it copies may have other batches."""
        partition = self._truth.partitions.get(key)
        return 0 if partition is None or partition.compaction is None else partition.compaction.point.clean_to

    # -- the end

    async def check_over(self, faults: Faults) -> None:
        """K5: when nobody writes any more, the copies of a partition carry out one point, each of them."""
        deadline_s = self._cluster.now_s + self._cluster.plan.liveness_s
        while (late := self._late(faults)) is not None:
            if self._cluster.now_s > deadline_s:
                raise Violation("K5", late)
            await asyncio.sleep(LOOK_S)

    def _late(self, faults: Faults) -> str | None:
        for key, state in self._truth.metadata.states.items():
            partition = self._truth.partitions.get(key)
            if partition is None or partition.compaction is None or partition.exempt:
                continue
            hosts = [self._cluster.hosts[number] for number in state.in_sync_replicas]
            if any(host.name in faults.lost or "down" in host.ailments for host in hosts):
                continue
            points = {}
            for host in hosts:
                said = self._truth.copies.of(host.number, partition.name).recorded("checkpoint")
                points[host.name] = None if said is None else said["compaction"]
            if any(found is None or found["begun"] != found["done"] for found in points.values()):
                return f"{partition.name}: a copy does not carry out what it has begun: {points}"
            if len({str(found) for found in points.values()}) > 1:
                return f"{partition.name}: the copies have carried out different points: {points}"
        return None


def _is_aborted(copy: Copy, view: View, producer_id: int, offset: int) -> bool:
    """Whether the newest stored state of a copy's producers has a transaction with a record at an offset as aborted."""
    disk = copy.host.disk
    names = [name for name in disk.files(copy.path, durable=view.durable) if _SNAPSHOT.fullmatch(name)]
    path = f"{copy.path}/{max(names, default='')}"
    stored = (disk.durable_content(path) if view.durable else disk.content(path)) if names else None
    if stored is None or (snapshot := content_of(stored)) is None:
        return False
    transactions = restored(snapshot).transactions
    return not transactions.is_open(producer_id) and producer_id in transactions.aborted_within(offset, offset + 1)
