"""Preferred leaders: the first replica leads again where it can, by command and from time to time by itself.

After restarts leaders pile up on the brokers that stayed, for an election only replaces a leader that is gone. A
preferred replica takes over where it is in the ISR and its broker is alive, so that no record is lost (Kafka's
preferred leader election; auto.leader.rebalance.enable).
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import MinilogError, PreferredLeaderNotAvailable, UnknownTopicOrPartition, wire_error
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2
from minilog_broker.controller.election import can_lead, led_by_preferred
from minilog_broker.controller.ledger import Ledger
from minilog_broker.printable import shortened
from minilog_broker.replication.partition_state import PartitionState

MAX_ELECTIONS = 1_000  # at one check, as in Kafka: one decision is one batch; the next check does the rest soon
SOON_MS = 1_000.0


class PreferredLeaders:
    """The controller's part that gives leadership back to preferred leaders.

    `interval_ms`: the time between two checks, infinity where only a command moves leaders.
    """

    def __init__(self, ledger: Ledger, interval_ms: float, now_ms: float) -> None:
        self._ledger = ledger
        self._interval_ms = interval_ms
        self.next_tick_ms = now_ms + interval_ms

    def reconfigured(self, interval_ms: float, now_ms: float) -> None:
        """Check at this interval from now on."""
        if interval_ms != self._interval_ms:
            self._interval_ms = interval_ms
            self.next_tick_ms = now_ms + interval_ms

    # -- by itself

    def tick(self, now_ms: float) -> None:
        """Give leadership back where it is time, for a bounded number of partitions at once."""
        if now_ms < self.next_tick_ms:
            return
        moved = 0
        for state in list(self._ledger.image.partitions.values()):
            if self._is_led_by_another(state):
                self._ledger.write_outcome(led_by_preferred(state, self._ledger.rules(state.key)))
                moved += 1
                if moved == MAX_ELECTIONS:
                    break
        self.next_tick_ms = now_ms + (SOON_MS if moved == MAX_ELECTIONS else self._interval_ms)

    def _is_led_by_another(self, state: PartitionState) -> bool:
        return state.leader_id != state.preferred_leader and self._is_available(state)

    def _is_available(self, state: PartitionState) -> bool:
        preferred = state.preferred_leader
        return preferred in state.in_sync_replicas and can_lead(state, preferred, self._ledger.rules(state.key))

    # -- by command

    def elect(self, request: admin_pb2.ElectLeadersRequest) -> admin_pb2.ElectLeadersResponse:
        """Elect the preferred leader of each partition. All moves are one decision. One that leads already is no
        error."""
        partitions = self._partitions(request)
        return admin_pb2.ElectLeadersResponse(results=[self._result(name, number) for name, number in partitions])

    def _partitions(self, request: admin_pb2.ElectLeadersRequest) -> Iterable[tuple[str, int]]:
        image = self._ledger.image
        everything = (admin_pb2.TopicPartitions(name=topic.name) for topic in image.topics.values())
        for entry in request.topics or everything:
            topic = image.topic(entry.name)
            count = 1 if topic is None else topic.partition_count  # one result has the error for a missing topic
            for number in entry.partitions or range(count):
                yield entry.name, number

    def _result(self, name: str, number: int) -> admin_pb2.PartitionResult:
        try:
            return admin_pb2.PartitionResult(name=name, partition=number, leader_id=self._elect(name, number))
        except MinilogError as error:
            return admin_pb2.PartitionResult(error=wire_error(error), name=name, partition=number, leader_id=-1)

    def _elect(self, name: str, number: int) -> int:
        state = partition_state(self._ledger, name, number)
        if state.leader_id != state.preferred_leader:
            if not self._is_available(state):
                raise PreferredLeaderNotAvailable(
                    f"the preferred leader of partition {number} of {name}, broker {state.preferred_leader}, cannot "
                    f"lead now: it must be running and in the ISR, which is {list(state.in_sync_replicas)}"
                )
            self._ledger.write_outcome(led_by_preferred(state, self._ledger.rules(state.key)))
        return state.preferred_leader


def partition_state(ledger: Ledger, name: str, number: int) -> PartitionState:
    """A partition by name. Raises UnknownTopicOrPartition."""
    topic = ledger.image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {shortened(name)} does not exist: see `minilog topic list`")
    state = ledger.image.partitions.get(PartitionKey(topic.topic_id, number))
    if state is None:
        raise UnknownTopicOrPartition(
            f"topic {name} has no partition {number}: its partitions are 0 to {topic.partition_count - 1}"
        )
    return state
