"""What is judged in the small model: V1 to V10, V17 and V18, at each state and each step."""

from __future__ import annotations

import itertools

from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.in_sync import Proposal
from tests.unit.replication.small_model_state import BROKERS, ModelReplica, Partitions, ReplicationModelState


class InvariantBroken(AssertionError):
    """An invariant does not hold."""


def hold(condition: bool, what: str) -> None:
    if not condition:
        raise InvariantBroken(what)


class Judge:
    """`judged` checks a step and gives the state back with what the judges remember brought up to date."""

    def __init__(self, partitions: Partitions, min_in_sync: int) -> None:
        self._partitions = partitions
        self._min_in_sync = min_in_sync

    def judged(self, before: ReplicationModelState, after: ReplicationModelState) -> ReplicationModelState:
        for broker_id in BROKERS:
            now = after.replicas[broker_id]
            if now is not before.replicas[broker_id]:
                self._replica(now)
                self._leader(broker_id, before.replicas[broker_id], now)
        self._controller(before, after)
        after = self._committed(after)
        self._complete(after)
        self._maximal(after)
        return self._answered(after)

    def _replica(self, replica: ModelReplica) -> None:
        log = replica.log
        hold(0 <= replica.high_watermark <= replica.durable <= len(log), "V1: the ends are out of order")
        hold(all(a[0] <= b[0] for a, b in itertools.pairwise(log)), "V3: an epoch decreases along the log")
        epochs = replica.epochs
        hold(all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(epochs)), "V3: the epoch cache")

    def _leader(self, broker_id: int, before: ModelReplica, after: ModelReplica) -> None:
        if after.lead is None:
            return
        state = self._partitions[after.image]
        hold(state.leader_broker_epoch == after.life, "V17: a leader epoch spans two lives")
        same_epoch = before.lead is not None and self._partitions[before.image].leader_epoch == state.leader_epoch
        if same_epoch and after.high_watermark != before.high_watermark:
            hold(after.high_watermark > before.high_watermark, "V8: the leader's high watermark went back")
            hold(len(state.in_sync_replicas) >= self._min_in_sync, "V18: the high watermark moved below min")
        hold(broker_id in state.in_sync_replicas, "V4: a leader outside its ISR")
        if after.lead.proposal is not None:
            hold(broker_id in dict(after.lead.proposal.members), "V4: a proposal without the leader")

    def _controller(self, before: ReplicationModelState, after: ReplicationModelState) -> None:
        if before.partition == after.partition:
            return
        was, now = self._partitions[before.partition], self._partitions[after.partition]
        hold(bool(now.in_sync_replicas), "V4: the ISR is empty")
        hold(now.leader_id in (-1, *now.in_sync_replicas), "V4: the leader is not in the ISR")
        hold(now.partition_epoch > was.partition_epoch, "the state changed under the same partition epoch")
        if (now.leader_id, now.leader_broker_epoch) != (was.leader_id, was.leader_broker_epoch):
            hold(now.leader_epoch > was.leader_epoch, "V17: another leader, or another life, in the same leader epoch")
        if now.leader_id >= 0:
            hold(now.leader_id not in now.damaged_replicas, "a damaged replica is to lead")

    def _committed(self, state: ReplicationModelState) -> ReplicationModelState:
        """What is below the high watermark of one who leads is committed, for good; all agree on it (V2, V9)."""
        committed = state.committed
        for replica in state.replicas:
            below = replica.log[: replica.high_watermark]
            if replica.lead is not None and len(below) > len(committed):
                hold(below[: len(committed)] == committed, "V2: another record is committed at an offset")
                committed = below
        for replica in state.replicas:
            below = replica.log[: replica.high_watermark]
            hold(below == committed[: len(below)], "V9: logs differ below the high watermark")
        return state if committed is state.committed else state._replace(committed=committed)

    def _complete(self, state: ReplicationModelState) -> None:
        """Who is in the ISR or may be elected has, on its disk, all that was committed."""
        partition, committed = self._partitions[state.partition], state.committed
        if not committed:
            return
        for broker_id in (*partition.in_sync_replicas, *partition.eligible_leaders):
            replica = state.replicas[broker_id]
            if broker_id not in partition.damaged_replicas:
                durable = replica.log[: replica.durable]
                hold(durable[: len(committed)] == committed, f"V5, V6, V7: broker {broker_id} lacks what is committed")

    def _maximal(self, state: ReplicationModelState) -> None:
        partition = self._partitions[state.partition]
        for broker_id, replica in enumerate(state.replicas):
            lead = replica.lead
            if lead is None or self._partitions[replica.image].leader_epoch != partition.leader_epoch:
                continue
            committed = frozenset(self._partitions[replica.image].in_sync_replicas)
            proposal = None if lead.proposal is None else Proposal(*lead.proposal)
            maximal = in_sync.maximal_in_sync(committed, proposal)
            hold(maximal >= set(partition.in_sync_replicas), "V10: the leader does not count a member of the ISR")
            hold(broker_id == partition.leader_id, "V17: two lead in one leader epoch")

    def _answered(self, state: ReplicationModelState) -> ReplicationModelState:
        """Whose high watermark reached its epoch's start answers it as the latest: never below an earlier epoch's."""
        answered = state.answered
        for replica in state.replicas:
            if replica.lead is None or replica.high_watermark < replica.lead.epoch_start:
                continue
            epoch, offset = self._partitions[replica.image].leader_epoch, replica.high_watermark
            earlier = max((end for each, end in answered if each < epoch), default=0)
            hold(offset >= earlier, f"V8: the latest offset is {offset}, in an earlier epoch it was {earlier}")
            if offset > dict(answered).get(epoch, 0):
                answered = tuple(sorted({**dict(answered), epoch: offset}.items()))
        return state if answered is state.answered else state._replace(answered=answered)
