"""The controller's own image, which is ahead of the committed end, and the way of a decision into it and into the log.

A decision is a list of records. `write` applies each to the image at once, so that the next rule sees it. `seal`
appends them as one batch. A request is checked as a whole before its first `write`: a refused one leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minilog.errors import LevelNotReached
from minilog.partition_key import PartitionKey
from minilog.v1 import records_pb2
from minilog_broker.controller.controller_effects import ControllerEffect, UncleanElection
from minilog_broker.controller.election import ElectionOutcome, ElectionRules
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.leaderless import LeaderlessPartitions
from minilog_broker.controller.record_kinds import apply_record, check_level_of
from minilog_broker.controller.replayed import Replayed
from minilog_broker.controller.topic_records import record_of
from minilog_broker.controller.torn_tails import TornTails
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState, TopicConfig

AppendRecords = Callable[[Sequence[records_pb2.MetadataRecord]], int]


@dataclass(frozen=True, slots=True)
class Reported:
    """The reports of brokers in their last heartbeats, which the metadata log does not have: replicas that are offline,
    brokers whose disks are full or stalled, each broker's end of the replay, and the brokers that are late with it.
    `undecided`: partitions whose copies differ, by the broker that leads them. `late_cleanings`: copies whose
    compaction is late, by their broker."""

    offline: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)
    full: frozenset[int] = frozenset()
    stalled: frozenset[int] = frozenset()
    replayed: Mapping[int, int] = field(default_factory=dict)
    late: frozenset[int] = frozenset()
    undecided: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)
    late_cleanings: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)

    def offline_of(self, state: PartitionState) -> list[int]:
        return _reporting(self.offline, state)

    def late_cleanings_of(self, state: PartitionState) -> list[int]:
        return _reporting(self.late_cleanings, state)

    def is_undecided(self, state: PartitionState) -> bool:
        """Whether its leader has found copies that differ, and no majority that agrees."""
        return state.key in self.undecided.get(state.leader_id, ())


def _reporting(reports: Mapping[int, frozenset[PartitionKey]], state: PartitionState) -> list[int]:
    """The brokers that have a replica of the partition and report it."""
    return [broker_id for broker_id in state.replicas if state.key in reports.get(broker_id, ())] if reports else []


NOTHING_REPORTED = Reported()


class Ledger:
    """The image with all decisions of this controller, and the way of a decision into the log.

    `append` writes one batch and gives the log's new end offset. `has_spoken` is Liveness's.
    """

    def __init__(
        self,
        image: MetadataImage,
        end_offset: int,
        append: AppendRecords,
        effects: list[ControllerEffect],
        has_spoken: Callable[[int], bool],
    ) -> None:
        self.image = image
        self.end_offset = end_offset
        self.unclean_elections = 0
        # Replicas that an I/O error took offline in the current life of their broker.
        self.offline: dict[int, frozenset[PartitionKey]] = {}
        # Partitions whose copies differ and wait for an operator, as their leaders say with every heartbeat.
        self.undecided: dict[int, frozenset[PartitionKey]] = {}
        # Copies whose compaction is late, as their brokers say with every heartbeat.
        self.late_cleanings: dict[int, frozenset[PartitionKey]] = {}
        self.torn_tails = TornTails()
        self.full: set[int] = set()  # brokers whose disk is full, by their heartbeats
        self.stalled: set[int] = set()  # brokers whose disk does not answer, by their heartbeats
        self.slow: set[int] = set()  # brokers whose disk has not answered for half of that time
        self.replayed = Replayed()
        self._has_spoken = has_spoken
        self._append = append
        self._effects = effects
        self._records: list[records_pb2.MetadataRecord] = []
        # Of the decision in progress: an unclean election, or the key of a partition that has no leader any more.
        self._news: list[UncleanElection | PartitionKey] = []
        self.leaderless = LeaderlessPartitions(image)
        # With the ends of their decisions. Bounded as the log is.
        self._uncommitted: deque[tuple[int, UncleanElection | PartitionKey]] = deque()

    def reported(self, late_ms: float, now_ms: float) -> Reported:
        offline = {broker_id: keys for broker_id, keys in self.offline.items() if keys}
        late = frozenset(self.replayed.late(late_ms, now_ms))
        undecided = {broker_id: keys for broker_id, keys in self.undecided.items() if keys}
        late_cleanings = {broker_id: keys for broker_id, keys in self.late_cleanings.items() if keys}
        full, stalled = frozenset(self.full), frozenset(self.stalled)
        return Reported(offline, full, stalled, self.replayed.offsets(), late, undecided, late_cleanings)

    def takes_records(self, broker_id: int) -> bool:
        """Whether the broker's disk takes records."""
        return broker_id not in self.full and broker_id not in self.stalled

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self.end_offset + len(self._records)

    def write(self, record: records_pb2.MetadataRecord) -> int:
        """Make `record` part of the decision, and give its offset.

        Raises LevelNotReached where a rule did not check the level before its first write, and AssertionError where
        other records of the decision are written already.
        """
        offset = self.next_offset
        try:
            check_level_of(record, self.image.level)
        except LevelNotReached as error:
            if self._records:
                raise AssertionError(f"a decision failed after its first records: {error}") from error
            raise
        apply_record(self.image, offset, record)
        self._records.append(record)
        return offset

    def write_outcome(self, outcome: ElectionOutcome) -> None:
        """Write a partition's new state where it changed, with the news for the operator."""
        state, former = outcome.state, self.image.partitions[outcome.state.key]
        if state == former:
            return
        self.write(record_of(state))
        if outcome.unclean:
            self._news.append(UncleanElection(state.key, state.topic_name, state.leader_id))
        if state.leader_id == NO_LEADER and former.leader_id != NO_LEADER:
            self._news.append(state.key)

    def write_outcomes(
        self, states: Iterable[PartitionState], decide: Callable[[PartitionState, ElectionRules], ElectionOutcome]
    ) -> None:
        for state in states:
            self.write_outcome(decide(state, self.rules(state.key)))

    def seal(self) -> None:
        """Append the records as one batch, if there are any. Raises NotController where the decision is void."""
        if not self._records:
            return
        records, self._records = self._records, []
        expected = self.end_offset + len(records)
        self.end_offset = self._append(records)
        if self.end_offset != expected:
            raise AssertionError(
                f"the metadata log ends at {self.end_offset} after a decision, and the controller expected {expected}"
            )
        self._uncommitted.extend((expected, news) for news in self._news)
        self._news.clear()

    def committed(self, offset: int) -> None:
        """Publish the news of the decisions below this committed end. Decisions of a deposed controller may be void,
        and have no news."""
        while self._uncommitted and self._uncommitted[0][0] <= offset:
            _, news = self._uncommitted.popleft()
            if isinstance(news, UncleanElection):
                self.unclean_elections += 1
                self._effects.append(news)
            else:
                self.leaderless.note(news)

    # -- facts for the rules

    def config(self, topic_id: bytes) -> TopicConfig:
        return self.image.effective_config(topic_id)

    def rules(self, key: PartitionKey) -> ElectionRules:
        config = self.config(key.topic_id)
        return ElectionRules(
            min_in_sync_replicas=config.min_in_sync_replicas,
            unclean_election=config.unclean_leader_election,
            electable=lambda broker_id: self._electable(broker_id, key),
            is_current_incarnation=lambda broker_id, epoch: self._is_current_incarnation(broker_id, epoch, key),
            broker_epoch=lambda broker_id: self.image.brokers[broker_id].broker_epoch,
            has_spoken=self._has_spoken,
            torn_end=lambda broker_id: self.torn_tails.end_of(broker_id, key),
        )

    def _electable(self, broker_id: int, key: PartitionKey) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.stopping:
            return False
        return key not in self.offline.get(broker_id, ())

    def _is_current_incarnation(self, broker_id: int, broker_epoch: int, key: PartitionKey) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.broker_epoch != broker_epoch:
            return False
        return key not in self.offline.get(broker_id, ())
