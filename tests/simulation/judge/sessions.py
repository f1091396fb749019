"""Who joins an ISR has a session: what is proposed, against what the joiner said to that leader.

A leader proposes a joiner by the word of its current life, told to this life of the leader in this leader epoch, under
the very partition epoch that the proposal is made from, or a later one: what it told before something put it out, or
took its copy offline, is no ground (replication/rules/in_sync.py). What is committed of joiners: registrations.py.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

_REPLICATE = "/minilog.v1.PeerService/Replicate"
_PROPOSE = "/minilog.v1.PeerService/ProposeInSyncReplicas"
_Told = tuple[tuple[int, int], int, PartitionKey, int]  # the leader and its life, the follower's broker epoch, epoch


class Sessions:
    """Looks at each proposal and at each word of a follower to its leader, when they are sent."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._broker_epochs: weakref.WeakKeyDictionary[Said, int] = weakref.WeakKeyDictionary()
        self._told: dict[_Told, int] = {}  # the latest partition epoch that was seen

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        if answers:
            return
        if call.method == _REPLICATE:
            self._progress(call, message)
        elif call.method == _PROPOSE and self._truth.speaker(call.client)[0] == message.broker_id:
            for proposal in message.proposals:
                self._propose(self._truth.speaker(call.client), proposal)

    def _progress(self, call: Said, message: Any) -> None:
        broker_epoch = self._broker_epochs.setdefault(call, message.broker_epoch)
        if not message.progress:
            return
        leader = self._truth.speaker(call.host)
        for each in message.progress:
            key = PartitionKey(each.partition_id.topic_id, each.partition_id.partition)
            told = leader, broker_epoch, key, each.leader_epoch
            self._told[told] = max(self._told.get(told, -1), each.partition_epoch)

    def _propose(self, leader: tuple[int, int], proposal: Any) -> None:
        key = PartitionKey(proposal.partition_id.topic_id, proposal.partition_id.partition)
        members = self._members(key, proposal.partition_epoch)
        if members is None:
            return  # another state is known by now
        for each in proposal.in_sync_replicas:
            if each.broker_id in members:
                continue
            told = self._told.get((leader, each.broker_epoch, key, proposal.leader_epoch), -1)
            if told < proposal.partition_epoch:
                text = f"b{leader[0]} proposes that b{each.broker_id} joins in partition epoch "
                text += f"{proposal.partition_epoch} of partition {key.partition}, and its life {each.broker_epoch} "
                text += "has told it nothing" if told < 0 else f"told it something under {told} last"
                raise Violation("session", text)

    def _members(self, key: PartitionKey, partition_epoch: int) -> set[int] | None:
        """The ISR of that partition epoch; None where that is not the newest state."""
        known = self._truth.metadata.states.get(key)
        if known is None or known.partition_epoch > partition_epoch:
            return None
        states = [known] if known.partition_epoch == partition_epoch else self._truth.metadata.later(key)
        for state in states:
            if state.partition_epoch == partition_epoch:
                return set(state.in_sync_replicas)
        return None
