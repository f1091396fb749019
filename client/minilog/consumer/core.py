"""The decisions of a consumer: it gives sessions their positions, takes runs, and asks again. No I/O.

Events and the time go in, and `poll` returns effects. The rules (docs/spec/replication.md § Reading; V8, V14):
- The consumer has one session per broker: the leader, or a follower in the client's rack (replicas.py). The session
  grants credit in absolute bytes. The consumer gives each received byte back when the user takes its run, or when it
  drops the run.
- Each position has a number. The consumer drops runs of older numbers, of older leader epochs and of other sessions.
- Offsets strictly increase, and no run skips one. The consumer drops a run that does not continue, and asks again.
- OFFSET_OUT_OF_RANGE follows auto.offset.reset. A log that lost records which the user has read is always an error.

There may be thousands of partitions, so no message walks them. The core looks at the unsettled ones: their leader has
no position of theirs yet, or they failed. When the metadata changes, it looks at all of them.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from minilog.client_config import ClientConfig
from minilog.consumer import requests, starting
from minilog.consumer.consumer_effects import Effect, RefreshTopics
from minilog.consumer.decode import Broken
from minilog.consumer.handing import give_back
from minilog.consumer.iterated import Iterated
from minilog.consumer.partition import Assigned, ConsumerSession, FetchedRun, put_back, raise_error, take_in_turns
from minilog.consumer.replicas import ReplicaChoice
from minilog.consumer.row_selection import RowReaders, RowSelection
from minilog.consumer.sessions import FetchSessions
from minilog.consumer.steering import Steering
from minilog.consumer.subscription import Subscription, Topics
from minilog.errors import (
    CorruptMessage,
    InvalidArgument,
    MinilogError,
    NarrowSchemaVersion,
    OffsetOutOfRange,
    UnknownSchemaVersion,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_from_wire,
)
from minilog.groups.messages import Committed
from minilog.net.metadata_cache import MetadataCache
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.types import TopicPartition
from minilog.v1 import data_pb2

if TYPE_CHECKING:
    from minilog.typed.rows.reader import TypedReader

_BROKEN_RUNS = 3  # so many at one offset are an error for the user
_MISSING_MS = 5_000.0  # somebody may create a topic a little after the consumer asks for it


class ConsumerCore:
    """The decisions of one consumer, without I/O. It belongs to one event loop."""

    def __init__(self, config: ClientConfig, cache: MetadataCache, chance: random.Random) -> None:
        self._config = config
        self._cache = cache
        self.received_bytes: Counter[int] = Counter()
        """The bytes of batches, by the broker that sent them. Dropped batches count too."""
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._by_key: dict[PartitionKey, Assigned] = {}  # those with the id of their topic
        self._unsettled: dict[TopicPartition, Assigned] = {}
        self.iterated = Iterated()
        self.steering = Steering(self._assigned, self.iterated, self._next_number, self._look_at)
        self._with_runs: dict[TopicPartition, Assigned] = {}  # and some that have none any more
        self._topics_seen: object = None  # the cache's topics at the last look at all partitions
        self.subscription = Subscription()
        self._metadata_error: MinilogError | None = None  # of the last question for metadata, without an answer
        self._answered_ms = -math.inf  # the time of the last answer with metadata
        self._sessions = FetchSessions(config, chance)
        self._replicas = ReplicaChoice(config.client_rack, cache)
        self._rows = RowReaders()
        self._numbers = 0
        self._wants_metadata = False
        self._turn = 0
        self.withheld: frozenset[TopicPartition] = frozenset()
        """The partitions that the consumer's member of a group must give back. The consumer hands out no record of
        them."""
        self._taken: list[FetchedRun] = []  # by the last `take`, and not given back since

    # -- calls of users

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these from now on. Raises InvalidArgument for a partition given twice, an offset below 0, and a
        text that is no topic id."""
        wanted = requests.checked_partitions(partitions)
        self._drop_all()
        self.subscription = Subscription()
        for partition in wanted:
            self._add(partition, self._config.auto_offset_reset)
        self._wants_metadata = not all(map(self._is_known, self._assigned))

    def _is_known(self, partition: TopicPartition) -> bool:
        """Whether the cache has a leader of the partition. A broker that leads no more will refuse."""
        try:
            return self._cache.leader(self._cache.key(partition)) is not None
        except (UnknownTopicId, UnknownTopicOrPartition):
            return False

    def subscribe(self, topics: Topics) -> None:
        """Read all partitions of these topics, new ones too. A member of a group reads those of `read_more` instead.
        Raises InvalidArgument."""
        wanted = Subscription.to(topics)
        self._drop_all()
        self.subscription = wanted
        self._wants_metadata = True

    def read_more(self, partitions: Iterable[TopicPartition]) -> None:
        """This member reads these from now on. The cache has their topics, and perhaps not their numbers yet."""
        for partition in partitions:
            self._add(partition, self._reset_of(partition))

    def _reset_of(self, partition: TopicPartition) -> str:
        """The auto.offset.reset of a subscribed partition."""
        later = self.subscription.came_later(self._cache.topics[partition.topic], partition.partition)
        return "earliest" if later else self._config.auto_offset_reset

    def read_less(self, partitions: Iterable[TopicPartition]) -> None:
        """This member does not read these any more."""
        gone = [partition for partition in partitions if partition in self._assigned]
        self.iterated.let_go(gone)
        self._drop(gone)

    def _drop_all(self) -> None:
        self._drop(list(self._assigned))
        self.iterated.let_go()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these."""
        for partition in partitions:
            assigned = self._assigned.pop(partition)
            assigned.drop_runs()
            assigned.detach()
            if assigned.key is not None:
                self._by_key.pop(assigned.key, None)
            self._unsettled.pop(partition, None)
            self._with_runs.pop(partition, None)

    def _look_at(self, assigned: Assigned) -> None:
        """The next poll looks at this partition, since its state has changed."""
        self._unsettled[assigned.partition] = assigned

    def _add(self, partition: TopicPartition, reset: str) -> None:
        plain = TopicPartition(partition.topic, partition.partition, topic_id=partition.topic_id)
        self._assigned[plain] = Assigned(plain, partition.end_offset, self._next_number())
        starting.begin(self._assigned[plain], partition.offset, reset, self._config)
        self._look_at(self._assigned[plain])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. Raises InvalidArgument for a partition that is not assigned."""
        self.steering.seek(partition, offset)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the user's next record. None while the client still asks for it. Raises InvalidArgument."""
        return self.steering.position(partition)

    def consumed(self) -> dict[PartitionKey, Committed]:
        """The user's positions, in the form that a group commits. Partitions without a position are left out."""
        return self.steering.consumed()

    def key(self, partition: TopicPartition) -> PartitionKey:
        """The key of the topic that the consumer reads under this name. For other topics it is the cache's key. Raises
        UnknownTopicOrPartition."""
        assigned = self._assigned.get(partition)
        return assigned.key if assigned is not None and assigned.key is not None else self._cache.key(partition)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer reads now."""
        return list(self._assigned)

    def finished(self) -> bool:
        """Whether all bounded partitions have reached their end. Without bounded ones: whether nothing is assigned."""
        if self.iterated:
            return False
        bounded = [assigned for assigned in self._assigned.values() if assigned.end_offset is not None]
        return all(assigned.is_finished() for assigned in bounded) and (bool(bounded) or not self._assigned)

    def has_ended(self) -> bool:
        """Whether each partition has an end and has reached it: then no record will ever come. Raises InvalidArgument
        without a subscription and an assignment."""
        if not self._assigned and not self.subscription.names and self.subscription.pattern is None:
            raise InvalidArgument("nothing is assigned to this consumer, and it would wait for ever: subscribe first")
        return bool(self._assigned) and all(assigned.is_finished() for assigned in self._assigned.values())

    def is_complete(self) -> bool:
        """Whether no partition needs more records. Each has its end here, or the user has paused it."""
        return all(assigned.wants_no_more() for assigned in self._assigned.values())

    def topics(self) -> list[str]:
        """The topics whose metadata the consumer needs."""
        return list(dict.fromkeys([*self.subscription.names, *(p.topic for p in self._assigned)]))

    def missing_topics(self) -> list[str]:
        """The subscribed topics that do not exist, by the last metadata."""
        return self.subscription.missing(self._cache.topics)

    def waiting_bytes(self) -> int:
        """The bytes of the batches that the consumer can hand out."""
        return sum(len(run.batches) for assigned in self._with_runs.values() for run in assigned.runs)

    def take(self, max_bytes: int) -> list[FetchedRun]:
        """Take runs for the user, from the partitions in turn, and at least one if there is any. Their positions move
        behind them.

        If there is nothing to hand out, this raises the error of a partition that cannot go on.
        """
        self._taken = []
        self._with_runs = {assigned.partition: assigned for assigned in self._with_runs.values() if assigned.runs}
        ready = [
            assigned
            for assigned in self._with_runs.values()
            if not assigned.is_held and assigned.partition not in self.withheld
        ]
        if not ready:
            raise_error(self._unsettled.values())
            return []
        self._turn += 1
        start = self._turn % len(ready)
        self._taken = take_in_turns(ready[start:] + ready[:start], max_bytes)
        return self._taken

    def give_back(self) -> None:
        """Take back the runs of the last `take`, which never came to the user (handing.py). The user gets them next."""
        taken, self._taken = self._taken, []
        self.iterated.let_go()
        for assigned in give_back(self._assigned, taken, self._next_number):
            self._look_at(assigned)
        self._have_runs(taken)

    def _have_runs(self, runs: Iterable[FetchedRun]) -> None:
        partitions = {run.partition for run in runs}
        self._with_runs |= {
            partition: self._assigned[partition] for partition in partitions if partition in self._assigned
        }

    def select(self, selection: RowSelection) -> None:
        """Read topics with a schema by this selection from now on. The consumer drops the runs of another selection,
        and tries again the partitions that refused it."""
        if not self._rows.select(selection):
            return
        for assigned in self._assigned.values():
            refused = isinstance(assigned.error, InvalidArgument)
            is_cut = assigned.reader is not None or assigned.headers_only
            if assigned.position is not None and (is_cut or selection.is_narrow or refused):
                assigned.place(assigned.position, self._next_number())
                self._look_at(assigned)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- events

    def session_opened(self, broker_id: int) -> None:
        self._sessions.opened(broker_id)

    def session_lost(self, broker_id: int, now_ms: float) -> None:
        session = self._sessions.lost(broker_id, now_ms)
        self._replicas.avoid_broker(broker_id, now_ms)
        self._wants_metadata = True
        for assigned in self._assigned.values():
            if assigned.session is session:
                assigned.session = None
                self._look_at(assigned)

    def keepalive(self, broker_id: int) -> data_pb2.FetchRequest:
        """The message for a broker to which the consumer has sent nothing for a while."""
        return self._sessions.keepalive(broker_id)

    def metadata_changed(self, now_ms: float) -> None:
        """Look at new metadata: subscribed topics may have more partitions, and assigned ones may be deleted."""
        self._metadata_error, self._answered_ms = None, now_ms
        self.subscription.look(self._cache.topics)
        if self._config.group_protocol == "none":  # else the group's coordinator assigns partitions
            for topic in self.subscription.names:
                self._grow(topic)
        for assigned in self._assigned.values():
            if assigned.error is None:
                self._look_again(assigned, now_ms)
            self._look_at(assigned)

    def topics_listed(self, names: Iterable[str]) -> None:
        """Match the pattern of the subscription with the names of all topics but internal ones. `metadata_changed`
        follows."""
        gone = self.subscription.names_listed(names)
        self._drop([partition for partition in self._assigned if partition.topic in gone])

    def metadata_failed(self, error: MinilogError) -> None:
        """No broker answered. So a topic that the cache does not have does not count as missing."""
        self._metadata_error = error

    def _look_again(self, assigned: Assigned, now_ms: float) -> None:
        """Note if the topic is deleted, or if the metadata for which the partition has paused has come."""
        if assigned.key is None:
            with contextlib.suppress(UnknownTopicId, UnknownTopicOrPartition):
                self._cache.key(assigned.partition)
                assigned.retry_at_ms = now_ms
            return
        try:
            self._cache.check_same_topic(assigned.partition.topic, assigned.key.topic_id)
        except UnknownTopicId as error:
            assigned.drop_runs()
            assigned.detach()
            assigned.error = requests.TopicGone(str(error))
            return
        leader = self._cache.leader(assigned.key)
        schemas = self._cache.topic_of(assigned.key).told_schemas
        if (leader is not None and leader.epoch > assigned.leader_epoch) or assigned.has_awaited(schemas):
            assigned.retry_at_ms = now_ms

    def _grow(self, name: str) -> None:
        topic = self._cache.topics.get(name)
        if topic is None:
            return
        for number in range(topic.partition_count):
            partition = TopicPartition(name, number)
            if partition not in self._assigned:
                self._add(partition, self._reset_of(partition))

    def offset_resolved(self, partition: TopicPartition, position_number: int, offset: int) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None and assigned.resolving and assigned.position_number == position_number:
            assigned.place(max(offset, assigned.not_below), self._next_number())
            self._look_at(assigned)

    def offset_failed(
        self, partition: TopicPartition, position_number: int, error: MinilogError, now_ms: float
    ) -> None:
        assigned = self._assigned.get(partition)
        if assigned is None or assigned.position_number != position_number:
            return
        self._wants_metadata |= starting.failed(assigned, error, now_ms + self._config.retry_backoff_ms)
        self._look_at(assigned)

    def committed_offset_came(
        self, partition: TopicPartition, position_number: int, committed: Committed | None
    ) -> None:
        """Take the group's committed offset. None: the group has committed none."""
        assigned = self._assigned.get(partition)
        if assigned is not None and assigned.resolving and assigned.position_number == position_number:
            self._wants_metadata |= starting.names_later_leader(assigned, committed, self._cache)
            starting.begin_at_committed(assigned, committed, self._next_number(), self._config)
            self._look_at(assigned)

    def received(self, broker_id: int, response: StreamMessage[data_pb2.FetchResponse], now_ms: float) -> bool:
        """Take in a message. True if it has anything new for the user."""
        session = self._sessions.get(broker_id)
        if session is None:
            return False
        news = False
        for run, batches in zip(response.message.runs, response.payloads, strict=True):
            session.received_bytes += len(batches)
            self.received_bytes[broker_id] += len(batches)
            key = PartitionKey.of(run.partition_id)
            assigned = self._by_key.get(key)
            if assigned is None or assigned.session is not session or run.position_number != assigned.position_number:
                session.given_back_bytes += len(batches)
                continue
            news |= self._take_run(assigned, key, run, batches, session, now_ms)
            if assigned.runs:
                self._with_runs[assigned.partition] = assigned
            if not self._is_settled(assigned):
                self._look_at(assigned)
        return news

    def _take_run(
        self,
        assigned: Assigned,
        key: PartitionKey,
        run: data_pb2.PartitionRun,
        batches: Buffer,
        session: ConsumerSession,
        now_ms: float,
    ) -> bool:
        error = error_from_wire(run.error)
        if error is not None or run.leader_epoch < self._cache.seen_epoch(key) or run.HasField("diverging_epoch"):
            session.given_back_bytes += len(batches)
            self._turn_away(assigned, error, run, now_ms)
            return assigned.error is not None
        if run.leader_epoch > assigned.leader_epoch:
            self._cache.see_epoch(key, run.leader_epoch)
            assigned.begin_epoch(run.leader_epoch)
        assigned.heard(requests.readable_end(run, self._config))
        if not batches:
            return False
        try:
            assigned.receive(batches, frozenset(run.aborted_producer_ids), session)
        except CorruptMessage as broken:
            session.given_back_bytes += len(batches)
            self._broken(assigned, broken, now_ms)
            return assigned.error is not None
        return True

    def _turn_away(
        self, assigned: Assigned, error: MinilogError | None, run: data_pb2.PartitionRun, now_ms: float
    ) -> None:
        key = assigned.key  # the log of an earlier leader may lack records: it cannot judge the position
        is_outdated = key is not None and run.leader_epoch < self._cache.seen_epoch(key)
        match error:
            case _ if assigned.on_follower:  # a follower may be unable to judge this: the leader does
                self._leave_follower(assigned, now_ms)
            case None | OffsetOutOfRange() if is_outdated:
                self._try_again(assigned, now_ms)
            case None if run.HasField("diverging_epoch"):
                assigned.error = OffsetOutOfRange(requests.cut_back(assigned, run))
                assigned.detach()
            case OffsetOutOfRange() if self._config.auto_offset_reset != "error":
                assigned.begin_reset(assigned.otherwise, self._next_number(), run.log_start_offset)
            case OffsetOutOfRange():
                assigned.error = OffsetOutOfRange(requests.out_of_range(assigned, run))
                assigned.detach()
            case MinilogError() if not error.retriable:
                assigned.error = error
                assigned.detach()
            case _:
                self._try_again(assigned, now_ms)

    def _try_again(self, assigned: Assigned, now_ms: float) -> None:
        """Ask for newer metadata, and for the partition after a pause."""
        self._wants_metadata = True
        assigned.pause(now_ms + self._config.retry_backoff_ms)

    def _leave_follower(self, assigned: Assigned, now_ms: float) -> None:
        """Go on at once with another replica, usually the leader."""
        self._wants_metadata = True
        self._replicas.avoid(assigned, now_ms)
        assigned.detach()

    def _broken(self, assigned: Assigned, error: Broken, now_ms: float) -> None:
        """Ask again for an unusable run after a pause. After three such runs the user gets the error.

        The consumer first asks the same replica, which checks its own copy, and then another one. A batch of a later
        version is the same on all replicas: the user gets that error at once."""
        if isinstance(error, UnsupportedVersion):
            assigned.error = UnsupportedVersion(requests.unreadable(assigned, error))
            assigned.detach()
            return
        assigned.broken_runs += 1
        if assigned.broken_runs > 1:
            self._leave_follower(assigned, now_ms)
        self._wants_metadata = True
        assigned.pause(now_ms + self._config.retry_backoff_max_ms)
        if assigned.broken_runs >= _BROKEN_RUNS:
            assigned.error = CorruptMessage(requests.unreadable(assigned, error))

    def _widen(self, assigned: Assigned, narrow: TypedReader, error: NarrowSchemaVersion) -> None:
        """Widen the types of the reader. All partitions of a topic use the same types, so the others read anew."""
        if assigned.key is None:
            return
        try:
            widened = self._rows.widen(self._cache.topic_of(assigned.key), narrow)
        except (UnknownTopicId, UnsupportedVersion):
            return  # the next position meets the same error
        if not widened:
            assigned.error = error
            return
        for other in self._assigned.values():
            is_of_topic = other.key is not None and other.key.topic_id == assigned.key.topic_id
            if other is not assigned and is_of_topic and other.position is not None and other.error is None:
                other.place(other.position, self._next_number())
                self._look_at(other)

    def runs_are_corrupt(self, corrupt: Sequence[tuple[FetchedRun, Broken]], now_ms: float) -> None:
        """Go back to the starts of these runs, unless the user has gone elsewhere. The user's side took them last, and
        could not decode them. All go back before the core acts on the first error, since that may make other
        partitions read anew from their positions."""
        broken = [(assigned, run, error) for run, error in corrupt if (assigned := self._set_back(run)) is not None]
        for assigned, run, error in broken:
            match error:
                case UnknownSchemaVersion():  # no damage: new metadata will have this version
                    assigned.unknown_beside = None if run.reader is None else run.reader.schemas
                case NarrowSchemaVersion() if run.reader is not None:
                    self._widen(assigned, run.reader, error)
                case _:
                    self._broken(assigned, error, now_ms)
            self._look_at(assigned)

    def _set_back(self, run: FetchedRun) -> Assigned | None:
        assigned = self._assigned.get(run.partition)
        if assigned is None or assigned.key != run.key or assigned.position is None:
            return None
        if run.position_number != assigned.position_number and assigned.position != run.end_offset:
            return None
        assigned.place(run.start_offset, self._next_number())
        return assigned

    def put_back(self, runs: Sequence[FetchedRun]) -> None:
        """Take back these of the runs that the user's side took last, since it did not hand them out. They come next,
        unless the user has gone elsewhere."""
        put_back(self._assigned, runs)
        self._have_runs(runs)

    def run_is_good(self, run: FetchedRun) -> None:
        """The user's side decoded this run: the count of broken runs begins anew."""
        if (assigned := self._assigned.get(run.partition)) is not None:
            assigned.broken_runs = 0

    def poll(self, now_ms: float) -> list[Effect]:
        """The effects to carry out now."""
        effects: list[Effect] = []
        positions: dict[int, list[data_pb2.FetchPosition]] = {}
        if self._topics_seen is not self._cache.topics:  # the cache makes a new table for each change
            self._topics_seen = self._cache.topics
            self._unsettled.update(self._assigned)
        for assigned in list(self._unsettled.values()):
            if assigned.error is None and now_ms >= assigned.retry_at_ms:
                effects += self._advance(assigned, positions, now_ms)
            if self._is_settled(assigned):
                del self._unsettled[assigned.partition]
        effects += starting.ask_group(self._unsettled.values(), now_ms)
        effects += self._sessions.messages(positions)
        effects += self._sessions.close_idle(now_ms)
        if self._wants_metadata:
            self._wants_metadata = False
            effects.append(RefreshTopics())
        return effects

    def next_wake_ms(self, now_ms: float) -> float:
        """The time of the next call of `poll`, if no event comes before."""
        every = self._unsettled.values()
        times = [*self._sessions.retry_times(), *(a.retry_at_ms for a in every), *map(self._replicas.due_ms, every)]
        return min((at_ms for at_ms in times if at_ms > now_ms), default=float("inf"))

    def _is_settled(self, assigned: Assigned) -> bool:
        """Whether the core may wait for the partition's next event. With client.rack it may not: replicas.py watches
        for a follower that stands still."""
        if self._config.client_rack or assigned.error is not None:
            return False
        if assigned.session is None or assigned.wants_no_more():
            return assigned.session is None and assigned.wants_no_more()
        leader = None if assigned.key is None else self._cache.leader(assigned.key)
        return leader is not None and assigned.session.is_open and assigned.leader_epoch >= leader.epoch

    def _advance(
        self, assigned: Assigned, positions: dict[int, list[data_pb2.FetchPosition]], now_ms: float
    ) -> list[Effect]:
        if assigned.key is None and not self._find(assigned, now_ms):
            return []
        if assigned.fetch_offset is None:
            return starting.ask(assigned)
        if assigned.wants_no_more():
            assigned.detach()
            return []
        assert assigned.key is not None
        leader = self._cache.leader(assigned.key)
        if leader is None:  # newer metadata ends the pause
            self._wants_metadata = True
            assigned.pause(now_ms + self._config.retry_backoff_max_ms)
            return []
        broker_id = self._replicas.choose(assigned, leader, now_ms)
        session = self._sessions.get(broker_id)
        if session is not None and assigned.session is session and assigned.leader_epoch >= leader.epoch:
            return []
        if session is None:
            return self._sessions.open(broker_id, now_ms)
        if session.is_open:
            if assigned.session is not session:
                assigned.detach()
            try:
                topic = self._cache.topic_of(assigned.key)
                if assigned.awaits_schemas(topic.schemas):
                    self._wants_metadata = True
                    assigned.pause(now_ms + self._config.retry_backoff_ms)
                    return []
                assigned.reader = self._rows.reader(topic)
                assigned.headers_only = self._rows.headers_only and assigned.reader is None
            except (InvalidArgument, UnknownTopicId, UnsupportedVersion) as error:
                assigned.error = error
                return []
            assigned.attach(session, leader.epoch, self._next_number(), now_ms)
            positions.setdefault(broker_id, []).append(requests.fetch_position(assigned, assigned.key))
        return []

    def _find(self, assigned: Assigned, now_ms: float) -> bool:
        try:
            assigned.key = self._cache.key(assigned.partition)
        except (UnknownTopicId, UnknownTopicOrPartition) as error:
            self._wants_metadata = True
            assigned.retry_at_ms = now_ms + self._config.retry_backoff_max_ms
            if assigned.missing_since_ms is None:
                assigned.missing_since_ms = now_ms
            elif now_ms - assigned.missing_since_ms >= _MISSING_MS:
                assigned.error = self._metadata_error
                if self._answered_ms - assigned.missing_since_ms >= _MISSING_MS:  # a broker has answered since
                    assigned.error = error
            return False
        assigned.missing_since_ms = None
        self._by_key[assigned.key] = assigned
        return True
