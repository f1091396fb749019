"""The truth about one partition, from wires and disks: what is committed, who led when, and who has it. V4 to V10, V17.

Committed is what anybody was told to lie below a high watermark. The first time that more is told, it is read from the
disk of whoever tells it; from then on

    V5 V6 V7  every member of the committed ISR, and every eligible leader, has all of it on its disk, at any time
    V18       when it is told first, as many copies as min.insync.replicas have it
    V9        nobody tells a high watermark above a log that is something else
    V8        a leader's high watermark never goes back in its epoch; "latest" is not below that of earlier epochs
    V14       in it no batch stands twice

Under flush.policy=os what processes see counts as "on the disk". What invariants.md exempts is not asked: `exempt`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog.v1 import records_pb2
from tests.judges.compaction import CompactedPartition
from tests.judges.partition import (
    Sequences,
    check_agrees,
    check_has,
    check_latest,
    check_lead,
    check_min,
    check_not_back,
    check_start,
)
from tests.judges.states import check_elected, electable
from tests.judges.views import View, first_from, is_same
from tests.judges.violation import Violation
from tests.simulation.judge.copies import Copies, Copy
from tests.simulation.judge.damage import KnownDamage
from tests.simulation.judge.metadata import JudgedChange, Metadata
from tests.simulation.judge.registrations import HEARD_S


@dataclass(slots=True)
class JudgedLead:
    """Who leads in one leader epoch, by what it says on wires."""

    number: int
    life: int
    high_watermark: int = -1
    log_start: int = -1


@dataclass(slots=True)
class JudgedPartition:
    """See the module's text. `deletable`: nothing above may be missing at the beginning of a copy; `deleted`: nothing
    below is left on any copy that could be elected; `min_floor`: what is below may be committed by a former
    min.insync.replicas."""

    key: PartitionKey
    copies: Copies
    metadata: Metadata
    damage: KnownDamage
    batches: list[BatchHeader] = field(default_factory=list)
    leads: dict[int, JudgedLead] = field(default_factory=dict)
    exempt: bool = False
    unsynced_since_s: float | None = None  # since when it may have been under flush.policy=os
    deletable: float = 0
    deleted: int = 0
    min_floor: int = 0
    compaction: CompactedPartition | None = None  # of a compacted topic
    _sequences: Sequences = field(default_factory=Sequences)

    @property
    def name(self) -> str:
        return self.metadata.log_name(self.key) or ""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def fail(self, rule: str, text: str) -> Violation:
        return Violation(rule, f"{self.name}: {text}")

    def who(self, number: int) -> str:
        """Whose copy it is."""
        return f"b{number} ({self.name})"

    def view(self, copy: Copy) -> View:
        return copy.live if self.unsynced_since_s is not None else copy.durable

    def sound_copy(self, number: int) -> Copy | None:
        """The copy of that host; where it is damaged, that of an in-sync member, if one is sound."""
        state = self.metadata.states.get(self.key)
        members = () if state is None else state.in_sync_replicas
        sound = (each for each in (number, *members) if not self.damage.excuses(each, self.key))
        found = next(sound, None)
        return None if found is None else self.copies.of(found, self.name)

    # -- what is told

    def leads_now(self, number: int, life: int, epoch: int) -> JudgedLead:
        """Somebody speaks as the leader of an epoch."""
        lead = self.leads.get(epoch)
        if lead is None:
            lead = self.leads[epoch] = JudgedLead(number, life)
        check_lead(self.who(number), epoch, (number, life), (lead.number, lead.life))
        return lead

    def told(self, number: int, high_watermark: int, lead: JudgedLead | None) -> list[BatchHeader]:
        """A replica, or its leader, says what is committed; what of it is new."""
        if lead is not None:
            check_not_back(self.who(number), high_watermark, lead.high_watermark)
            lead.high_watermark = high_watermark
        if self.exempt or high_watermark <= 0:
            return []
        copy = self.copies.of(number, self.name)
        view = self.view(copy)
        self._look_at_later_policy(copy, high_watermark)
        view = self.view(copy)
        if not self.damage.excuses(number, self.key):
            self._check_own(number, copy, view, high_watermark)
        if high_watermark <= self.end:
            return []
        state = self.metadata.states.get(self.key)
        if state is not None:
            self._check_cuts(state)  # what was cut before was not committed before
        known = len(self.batches)
        self.batches.extend(self._next(copy.live, high_watermark))
        if self.end < high_watermark and state is not None and not self._can_teach(copy):
            self._learn_from(state.in_sync_replicas, high_watermark)
        if self.end < high_watermark:
            if self.damage.excuses(number, self.key):
                return self.batches[known:]
            text = f"b{number} tells the high watermark {high_watermark}, and has a log up to {copy.live.end}"
            raise self.fail("V1", text)
        for header in self.batches[known:]:
            self._committed(header)
        self._check_holders(number)
        self.check_members()
        return self.batches[known:]

    def _look_at_later_policy(self, copy: Copy, high_watermark: int) -> None:
        """A leader that is the controller, too, applies flush.policy=os before any wire has it."""
        view, topic_id = self.view(copy), self.key.topic_id
        if view.end < high_watermark and self.unsynced_since_s is None and self.metadata.later_unsynced(topic_id):
            self.unsynced_since_s = copy.host.loop.now_s - HEARD_S

    def _can_teach(self, copy: Copy) -> bool:
        """Whether the copy itself has what is committed next. It has not if it is damaged, or if its log begins above:
        retention may remove what was committed in the same moment, before anybody was told."""
        if self.damage.excuses(copy.host.number, self.key):
            return False
        return not self.end < self._start(copy, copy.live) <= self.deletable

    def _learn_from(self, members: Iterable[int], high_watermark: int) -> None:
        """The other members of the ISR have what is committed, until they hear of the deletion."""
        for member in members:
            if not self.damage.excuses(member, self.key):
                self.batches.extend(self._next(self.copies.of(member, self.name).live, high_watermark))

    def _next(self, view: View, upto: int) -> Iterable[BatchHeader]:
        """What follows the truth in a copy."""
        at = self.end if self.batches else view.start
        for header in view.from_offset(at):
            if header.base_offset != at or header.next_offset > upto:
                return
            at = header.next_offset
            yield header

    def _check_own(self, number: int, copy: Copy, view: View, high_watermark: int) -> None:
        if view.end < high_watermark and self._start(copy, view) < high_watermark:
            text = f"b{number} tells the high watermark {high_watermark}, its log is durable up to {view.end}"
            raise self.fail("V1", text)
        check_agrees(self.who(number), self.first_lack(copy, view, min(high_watermark, self.end)))

    def _committed(self, header: BatchHeader) -> None:
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        place = header.producer_id, header.producer_epoch, header.base_sequence
        self._sequences.committed(place, header.base_offset)

    # -- who has it

    def _start(self, copy: Copy, view: View) -> int:
        """Where a copy begins, by its files."""
        if view.batches:
            return view.start
        recorded = copy.recorded("checkpoint")
        return max(view.start, 0 if recorded is None else int(recorded["log_start_offset"]))

    def first_lack(self, copy: Copy, view: View, upto: int) -> int | None:
        """The first offset of what is committed that the copy lacks, or has otherwise; None where it has all below
        `upto`, but what may be deleted."""
        if view.agreed >= upto:
            return None
        start = self._start(copy, view)
        if start > self.deletable and self.metadata.later_deletes(self.key.topic_id):
            self.deletable = math.inf  # the controller applies a setting before any wire has it, to its followers, too
        if view.agreed < start <= self.deletable:
            view.agreed = start
        if self.compaction is not None:
            return self.compaction.first_lack(self.batches, view, upto)
        own = view.from_offset(view.agreed)
        for header in self._from_offset(view.agreed):
            if header.next_offset > upto:
                break
            if not is_same(header, next(own, None)):
                return header.base_offset
            view.agreed = header.next_offset
        return None

    def committed_at(self, offset: int) -> BatchHeader | None:
        """The committed batch with this offset."""
        return next(iter(self._from_offset(offset)), None)

    def _from_offset(self, offset: int) -> list[BatchHeader]:
        return self.batches[first_from(self.batches, offset) :]

    def _lacking(self, state: records_pb2.PartitionRecord) -> tuple[int, int] | None:
        """Of who counts in that state, one who lacks something, and what."""
        for number in (*state.in_sync_replicas, *state.eligible_leaders):
            if not self._counts(number, state):
                continue
            copy = self.copies.of(number, self.name)
            lacks = self.first_lack(copy, self.view(copy), self.end)
            if lacks is not None:
                return number, lacks
        return None

    def _check_cuts(self, state: records_pb2.PartitionRecord) -> None:
        """Nobody who counts cuts away what is committed, not even to fetch it again."""
        for copy in self.copies.all_of(self.name):
            number, cut = copy.host.number, copy.live.take_cut(__name__)
            if cut is None or cut >= self.end or not self._counts(number, state):
                continue
            if all(self._counts(number, later) for later in self.metadata.later(self.key)):
                check_has(f"{self.who(number)}, which cuts its log to {cut},", cut)

    def _counts(self, number: int, state: records_pb2.PartitionRecord) -> bool:
        return (
            number in (*state.in_sync_replicas, *state.eligible_leaders)
            and number not in state.damaged_replicas
            and not self.damage.excuses(number, self.key)
        )

    def check_members(self, before: records_pb2.PartitionRecord | None = None) -> None:
        """Whoever counts has all of it. The controller may know a later state than wires have told; `before`: the state
        that was known until now, where there is another."""
        state = self.metadata.states.get(self.key)
        if state is None or self.exempt:
            return
        self._check_cuts(before or state)
        found = self._lacking(state)
        if found is None or any(self._lacking(later) is None for later in self.metadata.later(self.key)):
            return
        number, lacks = found
        check_has(f"{self.who(number)} (partition epoch {state.partition_epoch})", lacks)

    def is_held(self, number: int, upto: int) -> bool:
        """Whether all that the log of host `number` has below `upto` is on the disks of whoever counts: so it may be
        committed, though nobody was told."""
        if self.exempt or upto <= self.end:
            return True
        state = self.metadata.states.get(self.key)
        states = [*([] if state is None else [state]), *self.metadata.later(self.key)]
        mine = [
            each for each in self.copies.of(number, self.name).live.from_offset(self.end) if each.next_offset <= upto
        ]
        return any(all(self._has(each, state, mine) for each in state.in_sync_replicas) for state in states)

    def _has(self, number: int, state: records_pb2.PartitionRecord, batches: list[BatchHeader]) -> bool:
        if not self._counts(number, state):
            return True
        own = self.view(self.copies.of(number, self.name)).from_offset(self.end)
        return all(is_same(header, next(own, None)) for header in batches)

    def _check_holders(self, number: int) -> None:
        state = self.metadata.states.get(self.key)
        if state is None or self.end <= self.min_floor:
            return
        least_min = self.metadata.topics[self.key.topic_id].least_min(number)
        needed = min(least_min, len(state.replicas) - len(state.adding_replicas))
        holders = [
            copy.host.number
            for copy in self.copies.all_of(self.name)
            if self.damage.excuses(copy.host.number, self.key)
            or self.first_lack(copy, self.view(copy), self.end) is None
        ]
        if len(holders) < needed:  # else nobody need ask what is on its way
            check_min(self.who(number), self.end, holders, min(needed, self.metadata.later_min(self.key.topic_id)))

    def check_deleted(self) -> None:
        """KIP-107: below what was answered nothing is left on whoever could be elected. The controller may know a later
        state than wires have told."""
        state = self.metadata.states.get(self.key)
        if state is None or self.exempt or not self.deleted:
            return
        found = self._keeping(state)
        if found is None or any(self._keeping(later) is None for later in self.metadata.later(self.key)):
            return
        number, start = found
        text = f"b{number} is in the ISR {list(state.in_sync_replicas)} or eligible, and its log starts at "
        text += f"{start}; it was answered that all below {self.deleted} is deleted"
        raise self.fail("KIP-107", text)

    def _keeping(self, state: records_pb2.PartitionRecord) -> tuple[int, int] | None:
        """Of who could be elected in that state, one whose log begins below what is deleted, and where."""
        for number in (*state.in_sync_replicas, *state.eligible_leaders):
            if self._counts(number, state):
                recorded = self.copies.of(number, self.name).recorded("checkpoint")
                start = -1 if recorded is None else int(recorded["log_start_offset"])
                if start < self.deleted:
                    return number, start
        return None

    def check_start(self, number: int, log_start: int, lead: JudgedLead) -> None:
        """V1: what a leader tells of its log start never goes back in its epoch."""
        check_start(self.who(number), log_start, lead.log_start)
        lead.log_start = log_start

    # -- answers

    def check_latest(self, number: int, epoch: int, answered: int) -> None:
        """V8, of an answer to "latest" in a leader epoch."""
        if not self.exempt:
            told = ((before, lead.high_watermark) for before, lead in self.leads.items())
            check_latest(self.who(number), epoch, answered, told)

    def changed(self, change: JudgedChange) -> None:
        """A state of it was committed."""
        before, state = change.before, change.state
        if before is not None and state.leader_epoch > before.leader_epoch:
            self._look_at_election(before, state)
        self.check_members(before)

    def _look_at_election(self, before: records_pb2.PartitionRecord, state: records_pb2.PartitionRecord) -> None:
        if self.metadata.topics[self.key.topic_id].config.unclean_leader_election:
            self.exempt |= state.leader_id not in electable(state, before) | {-1}
        else:
            check_elected(self.name, state, before)
