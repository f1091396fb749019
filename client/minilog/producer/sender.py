"""What a producer sends, when, and what becomes of it. Events and the time go in, effects come out; no I/O.

The rules (docs/spec/replication.md § Producing; V14, V16):
- at most five unanswered batches per partition, in sequence order, sent again in that order (see lane.py);
- acks=0: a batch is done when it has left this process, but the first for each leader: that one is sent under acks=1;
- retries with pauses until delivery.timeout.ms. Then: TimedOut if every attempt was surely refused or none was made,
  UnknownOutcome if any attempt may have been written (gathering.py: what that says of a whole `send_batch`);
- an unknown outcome makes the later batches of its partition that may have been written unknown as well, and a new
  producer id is asked for once nothing is out anywhere. Batches never sent go on under the new id; a batch whose fate
  is unknown is never sent under another id;
- inside a transaction nothing of that is mended: what fails there fails the transaction (identity.py);
- a topic that is deleted, or created again, ends its batches at once: another topic id is not the same topic;
- a leader that does not let this client in (AuthenticationFailed) ends the batches of its partitions at once, as does a
  cluster that gives no metadata for that reason. The next record tries again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from minilog.client_config import ClientConfig
from minilog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    MinilogError,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    ResourceExhausted,
    UnknownLeaderEpoch,
    UnknownOutcome,
    UnknownProducerId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_from_wire,
)
from minilog.net.backoff import moved, pause_after
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache
from minilog.partition_key import PartitionKey
from minilog.producer.accumulator import Accumulator
from minilog.producer.batch import Batch
from minilog.producer.identity import ProducerIdentity
from minilog.producer.lane import Lane, sequence_after
from minilog.producer.outcomes import (
    at_close,
    fenced,
    in_failed_transaction,
    not_encoded,
    not_let_in,
    timed_out,
    topic_gone,
    unknown,
)
from minilog.producer.producer_effects import Delivered, Effect, Failed, LostRecords, NeedProducerId, RefreshMetadata
from minilog.producer.streams import Streams
from minilog.transactions.messages import Enlistment, WrittenPartition
from minilog.v1 import data_pb2

# An answer is missing: perhaps its leader was cut off, and somebody else leads. Longer than any healthy write takes.
_PATIENCE_MS = 500.0
_LOOK_MS = 200.0  # who leads by now is asked so often while an answer is missing longer than that
_GAP_ATTEMPTS = 3  # a first batch that is out of order so often follows something the leader has lost
MOST_LANES_GONE = 1_000  # some 300 KB
_FOREVER = float("inf")
# Of the cluster: a refusal says so.
_OLD_PICTURE = (NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition)


class Sender:
    """The decisions of a producer on its batches, without I/O.

    Owned by one event loop. The shell shares the accumulator and the cache.
    """

    def __init__(
        self, config: ClientConfig, accumulator: Accumulator, cache: MetadataCache, chance: random.Random
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._cache = cache
        self._chance = chance
        self._timeout_ms = config.delivery_timeout_ms
        self._lanes: dict[PartitionKey, Lane] = {}
        self._out: dict[int, tuple[int, Lane, Batch]] = {}  # correlation id: (broker id, lane, batch); oldest first
        self._look_again_ms = 0.0
        self._expire_at_ms = 0.0  # nothing is too old before
        self._resending: dict[PartitionKey, Lane] = {}  # also some that have done so by now
        self._fillable: dict[PartitionKey, None] = {}  # that may have room, and something to go
        self._topics_seen: object = None  # of the cache, when topics that are gone were looked for
        self._correlation_id = 0
        self._streams = Streams(config, chance)
        self.identity = ProducerIdentity(config, accumulator)
        self._effects: list[Effect] = []

    # -- events

    def connection_opened(self, broker_id: int) -> None:
        self._streams.opened(broker_id)

    def connection_lost(self, broker_id: int, now_ms: float) -> None:
        """Every answer still missing from this broker will not come: those batches may have been written."""
        self._streams.lost(broker_id, now_ms)
        for correlation_id, (out_broker, lane, batch) in list(self._out.items()):
            if out_broker == broker_id:
                del self._out[correlation_id]
                batch.correlation_id = None
                batch.maybe_written = True
                self._resend_later(lane, now_ms + self._config.retry_backoff_ms)
        self._effects.append(RefreshMetadata())

    def connection_refused(self, broker_id: int, refusal: MinilogError) -> None:
        """The broker does not let this client in, after `connection_lost`."""
        self._refuse(refusal, lambda leader: leader is not None and leader.broker_id == broker_id)

    def metadata_refused(self, refusal: AuthenticationFailed) -> None:
        """No broker gives metadata to this client. What has no leader waits for nothing."""
        self._refuse(refusal, lambda leader: leader is None)

    def _refuse(self, refusal: MinilogError, concerns: Callable[[LeaderAndEpoch | None], bool]) -> None:
        for key in dict.fromkeys([*self._accumulator.keys(), *self._lanes]):
            if concerns(self._cache.leader(key)):
                for batch in self._take_all_but_out(self._lane(key), lambda batch: not_let_in(batch, refusal)):
                    self._fail(batch, not_let_in(batch, refusal))

    def metadata_changed(self, now_ms: float) -> None:
        """Where somebody else leads by now, there is no need to pause, nor to wait for the one who led before."""
        for lane in self._lanes.values():
            self._fillable[lane.key] = None
            leader = self._cache.leader(lane.key)
            if leader is None or leader == lane.tried:
                continue
            if lane.is_superseded_by(leader, now_ms - _PATIENCE_MS):
                self._take_back(lane, now_ms)
            if lane.resending and not self._is_owed(lane):
                lane.retry_at_ms = now_ms

    def _take_back(self, lane: Lane, now_ms: float) -> None:
        """What a former leader has not answered goes to the new one: a leader epoch that ended can commit nothing."""
        for batch in lane.batches:
            if batch.correlation_id is not None:
                broker_id, _, _ = self._out.pop(batch.correlation_id)
                self._streams.give_up(broker_id, batch.correlation_id, lane.key)
                batch.correlation_id = None
                batch.maybe_written = True
        self._resend_later(lane, now_ms)

    def _resend_later(self, lane: Lane, at_ms: float) -> None:
        lane.resend_later(at_ms)
        self._resending[lane.key] = lane

    def producer_id_given(self, producer_id: int, producer_epoch: int, proof: bytes) -> None:
        self.identity.given(producer_id, producer_epoch, proof)
        for key, lane in list(self._lanes.items()):
            lane.restart()
            self._fillable[key] = None
            if self._cache.is_gone(key):
                del self._lanes[key]

    def producer_id_refused(self, error: MinilogError, now_ms: float) -> None:
        """It is asked for again. Who may not have one is told: nothing that waits for it was ever sent."""
        self.identity.refused(now_ms)
        if isinstance(error, AuthorizationFailed | AuthenticationFailed):
            self._effects += [Failed(batch, error) for batch in self._take_everything()]

    def written(self, request: data_pb2.ProduceRequest) -> None:
        """The message has left this process: under acks=0 that is all there is to know of what it carries."""
        for entry in request.entries if request.acks == 0 else ():
            out = self._out.pop(entry.correlation_id, None)
            self._streams.came(entry.correlation_id)
            if out is not None:
                _, lane, batch = out
                batch.correlation_id = None
                lane.batches.remove(batch)
                self._fillable[lane.key] = None
                self._effects.append(Delivered(batch, -1))

    def answered(self, broker_id: int, response: data_pb2.ProduceResponse, now_ms: float) -> None:
        for result in response.results:
            out = self._out.pop(result.correlation_id, None)
            error = error_from_wire(result.error)
            if error is not None and _learn(self._cache, result, error):
                self._effects.append(RefreshMetadata())
            if out is None:  # given up on meanwhile, or under acks=0
                self._streams.came(result.correlation_id)
                self._effects += [LostRecords(error)] if error is not None and self._config.acks == 0 else []
                continue
            _, lane, batch = out
            batch.correlation_id = None
            self._fillable[lane.key] = None
            if error is None:
                self._acknowledged(lane, batch, result.base_offset)
            else:
                self._refused(lane, batch, error, now_ms)

    # -- answers

    def _acknowledged(self, lane: Lane, batch: Batch, base_offset: int) -> None:
        if lane.rewind_to is not None:
            # It was taken although one before it was refused for good: the sequence cannot be mended.
            lane.rewind_to = None
            self.identity.give_up(UnknownOutcome(f"{batch} were taken although batches before them were refused"))
        lane.acknowledged(batch)
        self._effects.append(Delivered(batch, base_offset if self._config.acks != 0 else -1))

    def _refused(self, lane: Lane, batch: Batch, error: MinilogError, now_ms: float) -> None:
        batch.error = error
        if isinstance(error, UnknownOutcome):
            batch.maybe_written = True
        first = lane.batches[0] is batch
        match error:
            case DuplicateSequenceNumber() | InvalidProducerEpoch() | UnknownProducerId():
                self._start_over(lane, batch, error)
            case OutOfOrderSequenceNumber() if first and batch.attempts >= _GAP_ATTEMPTS:
                self._start_over(lane, batch, error)
            case ProducerFenced() if self.identity.transaction is not None:
                self._fail_for_good(lane, batch, fenced(batch, self.identity.transaction.transactional_id, error))
            case _ if error.retriable or isinstance(error, UnknownOutcome):
                self._retry(lane, now_ms)
            case _:
                self._fail_for_good(lane, batch, error)

    def _retry(self, lane: Lane, now_ms: float) -> None:
        leader = self._cache.leader(lane.key)
        if leader is not None and leader != lane.tried:
            self._resend_later(lane, now_ms)
            return
        lane.failures += 1
        pause_ms = pause_after(lane.failures, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        self._resend_later(lane, now_ms + moved(pause_ms, self._chance))

    def _start_over(self, lane: Lane, batch: Batch, error: MinilogError) -> None:
        """The leader's state of this producer and ours have parted: a new id, and no guess about what was sent."""
        if isinstance(error, DuplicateSequenceNumber):
            batch.maybe_written = True
        self._give_up_lane(lane, error)

    def _fail_for_good(self, lane: Lane, batch: Batch, error: MinilogError) -> None:
        lane.batches.remove(batch)
        if batch.maybe_written:
            self._fail(batch, unknown(batch, error))
            self._give_up_lane(lane, error)
            return
        self._fail(batch, error)
        if self._config.enable_idempotence:
            lane.rewind_to = batch.base_sequence if lane.rewind_to is None else lane.rewind_to
            self._resend_later(lane, 0.0)

    def _give_up_lane(self, lane: Lane, error: MinilogError) -> None:
        """Rule V16: what may have been written is unknown; what surely was not waits for a new producer id."""
        for batch in lane.put_back_unwritten():
            if batch.correlation_id is not None:
                self._out.pop(batch.correlation_id, None)
                batch.correlation_id = None
            self._fail(batch, unknown(batch, error))
        self._fillable[lane.key] = None
        self.identity.give_up(error)

    # -- transactions

    def begin(self, enlistment: Enlistment) -> None:
        """From now on all is written in this transaction, under its producer id, with sequences from 0."""
        assert self._is_idle(), "a transaction begins when the one before has ended"
        self._forget_lanes()
        self.identity.begin(enlistment)

    def end(self) -> tuple[WrittenPartition, ...]:
        """Nothing more of the transaction is written; where it was, and how far. All of it is settled."""
        assert self._is_idle(), "a transaction ends when all that was sent in it is settled"
        written = [(key, lane.last_acknowledged) for key, lane in self._lanes.items() if lane.last_acknowledged >= 0]
        self._forget_lanes()
        self.identity.end()
        return tuple(WrittenPartition(key.topic_id, key.partition, last) for key, last in written)

    def _forget_lanes(self) -> None:
        self._lanes.clear()
        self._resending.clear()

    def _end_failed_transaction(self) -> None:
        failure = self.identity.failure
        if failure is None:
            return
        self._streams.drop()
        self._effects += [Failed(batch, in_failed_transaction(batch, failure)) for batch in self._take_everything()]

    # -- what to do now

    def poll(self, now_ms: float, timestamp_us: int) -> list[Effect]:
        """Everything to be done now. `timestamp_us` is the wall clock, for rows that were sent without a timestamp."""
        self._expire(now_ms)
        self._end_gone()
        if self.identity.ask(is_idle=self._is_idle, now_ms=now_ms):
            self._effects.append(NeedProducerId())
        if now_ms >= self._next_look_ms():
            self._look_again_ms = now_ms + _LOOK_MS
            self._effects.append(RefreshMetadata())
        for lane in list(self._resending.values()):
            if lane.may_resend(now_ms) and not self._end_if_gone(lane.key):
                self._resend(lane, now_ms)
            if not lane.resending:
                del self._resending[lane.key]
        if self.identity.may_write():
            self._fill_all(now_ms, timestamp_us)
        self._end_failed_transaction()
        self._effects.extend(self._streams.flush())
        effects, self._effects = self._effects, []
        return effects

    def next_wake_ms(self, now_ms: float) -> float:
        """When `poll` should be called at the latest if nothing happens before."""
        wake = min(self._expire_at_ms, self._next_look_ms())
        if self.identity.may_write():
            wake = min(wake, max(self._accumulator.next_ready_ms(), now_ms + 1))
        for lane in self._resending.values():
            if lane.resending and not lane.has_unanswered() and lane.batches:
                wake = min(wake, max(lane.retry_at_ms, now_ms + 1))
        wake = min(wake, self._streams.next_reconnect_ms(now_ms))
        return min(wake, self.identity.next_ask_ms(is_idle=self._is_idle, now_ms=now_ms))

    def _next_look_ms(self) -> float:
        """When to ask who leads, since the oldest answer is missing for a while."""
        oldest = next((batch for _, _, batch in self._out.values()), None)
        return _FOREVER if oldest is None else max(oldest.sent_ms + _PATIENCE_MS, self._look_again_ms)

    def _lane(self, key: PartitionKey) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, proven=not self._config.enable_idempotence and self._config.acks != 0)
        return lane

    def _is_idle(self) -> bool:
        return not any(lane.batches for lane in self._lanes.values())

    def _connected(self, lane: Lane, now_ms: float) -> LeaderAndEpoch | None:
        """The leader, if a stream to it is open that owes nothing of an earlier epoch; else what is missing is set in
        motion."""
        leader = self._cache.leader(lane.key)
        if leader is None:
            self._effects.append(RefreshMetadata())
            return None
        if self._streams.is_open(leader.broker_id):
            return None if self._streams.owes(leader.broker_id, lane.key) else leader
        if (connect := self._streams.open(leader.broker_id, now_ms)) is not None:
            self._effects.append(connect)
        return None

    def _is_owed(self, lane: Lane) -> bool:
        leader = self._cache.leader(lane.key)
        return leader is not None and self._streams.owes(leader.broker_id, lane.key)

    def _fill_all(self, now_ms: float, timestamp_us: int) -> None:
        """All that may go, as far as there is room. A partition is looked at when something of it became ready, or its
        lane has changed; where only its leader is missing, each time."""
        self._fillable.update(dict.fromkeys(self._accumulator.newly_ready(now_ms, lingers=self._lingers)))
        keys, self._fillable = self._fillable, {}
        for key in keys:
            if not self._has_any(key) or self._end_if_gone(key):
                continue
            if not self._fill(self._lane(key), now_ms, timestamp_us):
                self._fillable[key] = None

    @property
    def _lingers(self) -> bool:
        """Does a batch wait for more records? Only while others are on their way (Nagle's rule), unless that was asked
        for: so one record after another is not late, and many at once fill batches. Under acks=0 nothing tells how long
        one is on its way."""
        return self._config.lingers_alone or self._config.acks == 0 or bool(self._out)

    def _take(self, lane: Lane, now_ms: float) -> Batch | None:
        return self._accumulator.take(lane.key, now_ms, lingers=self._lingers)

    def _has_any(self, key: PartitionKey) -> bool:
        """Is anything to go to it? Who asked for a leader where nothing is would ask for ever."""
        lane = self._lanes.get(key)
        return self._accumulator.is_ready(key) or (lane is not None and bool(lane.waiting))

    def _fill(self, lane: Lane, now_ms: float, timestamp_us: int) -> bool:
        """Whether all that could be done is done until the lane changes."""
        identity, compression = self.identity, self._config.compression_type
        transactional = identity.transaction is not None
        while lane.room(self._config.max_in_flight):
            leader = self._connected(lane, now_ms)
            if leader is None:
                return False
            if not lane.may_go_to(leader, self._config.acks):
                return True
            batch = lane.waiting.popleft() if lane.waiting else self._take(lane, now_ms)
            if batch is None:
                return True
            sequence = lane.next_sequence if self._config.enable_idempotence else -1
            try:
                batch.encode(compression, identity.producer, sequence, timestamp_us, transactional=transactional)
            except Exception as error:  # of Arrow, or for want of memory, too: it is this batch's alone
                self._fail(batch, not_encoded(batch, error))
                continue
            if self._config.enable_idempotence:
                lane.next_sequence = sequence_after(sequence, batch.record_count)
            lane.batches.append(batch)
            self._send(lane, batch, leader, now_ms)
        return True

    def _resend(self, lane: Lane, now_ms: float) -> None:
        if lane.rewind_to is not None:
            if any(batch.maybe_written for batch in lane.batches):
                self._give_up_lane(lane, UnknownOutcome("a batch before it was refused for good"))
                return
            lane.renumber()
        if not lane.batches:
            lane.resending = False
            self._fillable[lane.key] = None
            return
        leader = self._connected(lane, now_ms)
        if leader is None:  # while a stream to it is being opened, somebody else may come to lead
            lane.retry_at_ms = now_ms + self._config.retry_backoff_ms
            if not self._is_owed(lane):  # else the answers are what is missing, and not who leads
                self._effects.append(RefreshMetadata())
            return
        lane.meets(leader, self._config.acks)
        lane.resending = not lane.proven and len(lane.batches) > 1  # the others follow when the first is answered
        self._fillable[lane.key] = None
        for batch in list(lane.batches) if lane.proven else [lane.batches[0]]:
            self._send(lane, batch, leader, now_ms)

    def _send(self, lane: Lane, batch: Batch, leader: LeaderAndEpoch, now_ms: float) -> None:
        assert batch.encoded is not None
        self._correlation_id += 1
        batch.attempts += 1
        batch.sent_ms = now_ms
        lane.tried = leader
        entry = data_pb2.ProduceEntry(
            correlation_id=self._correlation_id,
            partition_id=lane.key.to_wire(),
            leader_epoch=leader.epoch,
            transaction=self.identity.transaction,
            producer_proof=self.identity.proof,
        )
        self._streams.put(leader.broker_id, entry, batch.encoded, self._config.acks or int(not lane.proven))
        batch.correlation_id = self._correlation_id
        self._out[self._correlation_id] = (leader.broker_id, lane, batch)

    # -- the end of batches

    def _fail(self, batch: Batch, error: MinilogError) -> None:
        self._effects.append(Failed(batch, error))
        self.identity.fail(error)

    def _timed_out(self, batch: Batch) -> MinilogError:
        return timed_out(batch, self._timeout_ms, self._cache.why_no_leader(batch.key))

    def _expire(self, now_ms: float) -> None:
        if now_ms < self._expire_at_ms:
            return
        horizon = now_ms - self._timeout_ms
        for batch in self._accumulator.take_older_than(horizon):
            self._fail(batch, self._timed_out(batch))
        for lane in self._lanes.values():
            while lane.waiting and lane.waiting[0].created_ms <= horizon:
                batch = lane.waiting.popleft()
                self._fail(batch, self._timed_out(batch))
            while lane.batches and lane.batches[0].created_ms <= horizon:
                self._expire_first(lane)
        self._expire_at_ms = min(self._oldest_ms(), now_ms) + self._timeout_ms

    def _oldest_ms(self) -> float:
        """When the oldest that has no end yet was begun. Whatever begins later is not too old before that is."""
        queues = [queue for lane in self._lanes.values() for queue in (lane.batches, lane.waiting) if queue]
        return min([self._accumulator.oldest_created_ms(), *(queue[0].created_ms for queue in queues)])

    def _expire_first(self, lane: Lane) -> None:
        batch = lane.batches[0]
        self._fillable[lane.key] = None
        if batch.correlation_id is None and not batch.maybe_written:
            self._fail_for_good(lane, batch, self._timed_out(batch))
        elif self._config.enable_idempotence:
            self._give_up_lane(lane, self._timed_out(batch))
        else:
            lane.batches.popleft()
            self._out.pop(batch.correlation_id or 0, None)
            self._fail(batch, unknown(batch, self._timed_out(batch)))

    def _end_gone(self) -> None:
        if self._topics_seen is self._cache.topics:  # it is replaced whole where anything has changed
            return
        self._topics_seen = self._cache.topics
        for key in dict.fromkeys([*self._accumulator.keys(), *self._lanes]):
            self._end_if_gone(key)
        if len(self._lanes) > MOST_LANES_GONE:
            self._bound_lanes()

    def _end_if_gone(self, key: PartitionKey) -> bool:
        """Whether its topic is gone: what is not out goes to the topic that has its name by now, or fails where none
        can take it. What is out waits for its answer.

        It may be there again, under the same id: who was not allowed to see it, and is again. So its sequences go on
        where they were under this producer id, or, where one of them has failed, under another id."""
        if not self._cache.is_gone(key):
            return False
        lane = self._lane(key)
        left = self._take_all_but_out(lane, topic_gone)
        failed = [batch for batch in reversed(left) if not self._moved(batch)]
        for batch in reversed(failed):
            self._fail(batch, topic_gone(batch))
        if not lane.batches and not lane.next_sequence:
            del self._lanes[key]
        return True

    def _take_all_but_out(self, lane: Lane, error_of: Callable[[Batch], MinilogError]) -> list[Batch]:
        """All of the partition that is not out, in order. Where that leaves a gap in the sequence, another producer id
        is asked for, by the error of the first."""
        in_sequence = [batch for batch in lane.batches if batch.correlation_id is None]
        left = [*in_sequence, *lane.waiting, *self._accumulator.take_all(lane.key)]
        lane.waiting.clear()
        lane.batches = deque(batch for batch in lane.batches if batch.correlation_id is not None)
        if in_sequence:
            self.identity.give_up(error_of(in_sequence[0]))
        if not lane.batches:
            lane.resending = False
        return left

    def _moved(self, batch: Batch) -> bool:
        """Whether records without a schema, surely not written, go to the topic of the same name. A transaction
        has registered the partition of the topic that it knew."""
        topic = self._cache.topics.get(batch.topic)
        if topic is None or topic.told_schemas is not None or not batch.fits(topic.partition_count):
            return False
        if batch.maybe_written or self.identity.transaction is not None:
            return False
        self._accumulator.move_to_front(batch, PartitionKey(topic.topic_id, batch.key.partition))
        return True

    def _bound_lanes(self) -> None:
        """Those of topics that are gone are kept for their sequences; many are a reason for another producer id."""
        if sum(map(self._cache.is_gone, self._lanes)) > MOST_LANES_GONE:
            self.identity.give_up(ResourceExhausted(f"{MOST_LANES_GONE} partitions that were written to are gone"))

    def _take_everything(self) -> list[Batch]:
        """All that has no end yet; answers to it are not waited for any more."""
        left = self._accumulator.take_all()
        for lane in self._lanes.values():
            left += [*lane.batches, *lane.waiting]
            lane.batches.clear()
            lane.waiting.clear()
        self._out.clear()
        return left

    def abandon(self) -> list[Effect]:
        """The producer closes: report whatever is left, what was never written as Closed, the rest as unknown."""
        self._effects += [Failed(batch, at_close(batch)) for batch in self._take_everything()]
        effects, self._effects = self._effects, []
        return [effect for effect in effects if isinstance(effect, Delivered | Failed)]


def _learn(cache: MetadataCache, result: data_pb2.ProduceResult, error: MinilogError) -> bool:
    """Take in the leader that a refusal names; True if metadata should be asked for at once."""
    if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch) and result.leader_id >= 0:
        key = PartitionKey.of(result.partition_id)
        cache.learn_leader(key, LeaderAndEpoch(result.leader_id, result.leader_epoch))
    return isinstance(error, _OLD_PICTURE)
