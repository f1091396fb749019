"""The reads of consumers from a replica that follows (KIP-392): below its high watermark, while it hears its leader.

    state    entered when                                              consumers get
    SILENT   it is new; the session to the leader is lost; the logs    NOT_LEADER_OR_FOLLOWER: read from the leader
             diverge; the committed metadata takes it out of the ISR
    READING  the leader has accepted a position of this leader epoch   records below the high watermark, and its moves
             and this replica is in the ISR

The high watermark is the leader's, clamped to our durable end. So all records below it are on every member of the ISR
(V5, V9), and consumers see none above it. The last stable offset follows from it and from our own log, which has the
markers.

There are answers that only the leader can give:

- An offset above its high watermark waits, because the follower may only be late.
- For an offset below its log start, or behind a record of another epoch, it sends the consumer to the leader. Each
  replica deletes by itself.
- If retention passes an offset while it is read, it sends the consumer to the leader, too: a client does not accept
  OFFSET_OUT_OF_RANGE from a follower.

A new position waits until the follower is READING. If the follower stops sending for a position, it tells the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minilog.errors import (
    FencedLeaderEpoch,
    MinilogError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2
from minilog_broker.replication.follower.partition import FollowerPartition
from minilog_broker.replication.replica_log import LogOffsets
from minilog_broker.replication.sessions.session import SessionPartition, SubscriptionState
from minilog_broker.replication.sessions.source import (
    Asker,
    Audience,
    PositionAnswer,
    Refuse,
    SendRuns,
    Wait,
    readable_end,
)


class FollowerReads:
    """The reads of consumers from a replica that follows.

    A session.Source for consumers. It calls `read_failed(error)` when our copy cannot be read.
    """

    def __init__(
        self,
        follower: FollowerPartition,
        subscribers: Mapping[int, SessionPartition],
        read_failed: Callable[[Exception], None],
        schemas: Callable[[], TopicSchemas | None],
        *,
        in_sync: bool,
    ) -> None:
        self.in_sync = in_sync
        self.reading = False
        self._follower = follower
        self._log = follower.log
        self._subscribers = subscribers
        self.read_failed = read_failed
        self._schemas = schemas
        self._sent_ends = (-1, -1)

    def __str__(self) -> str:
        return f"partition {self._follower.key.partition} of topic id {self._follower.key.topic_id.hex()}"

    @property
    def leader_epoch(self) -> int:
        return self._follower.leader_epoch

    # -- events

    def look(self, now_ms: float) -> None:
        """Look for changes of the leader's answers, our durable end, the log start, and the ISR."""
        reading = self.in_sync and self._follower.accepted
        if reading != self.reading:
            self.reading = reading
            for subscription in consumers_among(self._subscribers):
                if reading:
                    subscription.session.check_positions_again(subscription, now_ms)
                elif subscription.state is SubscriptionState.SENDING:
                    subscription.session.stop(subscription, self._silent(), now_ms)
        ends = (self._log.high_watermark, self._log.log_start)
        if reading and ends != self._sent_ends:
            self._sent_ends = ends
            for subscription in consumers_among(self._subscribers):
                subscription.session.available(subscription, now_ms, news=True)

    def _silent(self) -> MinilogError:
        why = "does not hear its leader" if self.in_sync else "is not in sync"
        return NotLeaderOrFollower(
            f"{self}: this replica {why}: read from the leader, broker {self._follower.leader_id}"
        )

    # -- questions of sessions (session.Source)

    @property
    def schemas(self) -> TopicSchemas | None:
        return self._schemas()

    def check_position(self, position: data_pb2.FetchPosition, session: Asker, now_ms: float) -> PositionAnswer:
        """Check a consumer's position: leader epoch, log start, and the record before it if this log has it."""
        self._follower.reader_came()
        epoch = self.leader_epoch
        if position.leader_epoch > epoch:
            return Wait(
                UnknownLeaderEpoch(
                    f"{self}: this broker knows leader epochs up to {epoch}, and not yet {position.leader_epoch}"
                )
            )
        if 0 <= position.leader_epoch < epoch:
            return Refuse(
                FencedLeaderEpoch(
                    f"{self}: leader epoch {position.leader_epoch} is over, and the current one is {epoch}"
                )
            )
        if not self.in_sync:
            return Refuse(self._silent())
        if not self.reading:
            return Wait()
        return self._check_log(position)

    def _check_log(self, position: data_pb2.FetchPosition) -> PositionAnswer:
        offset, log = position.fetch_offset, self._log
        if offset < log.log_start:
            text = f"{self}: offset {offset} is below this replica's log start {log.log_start}: ask the leader"
            return Refuse(NotLeaderOrFollower(text))
        if position.HasField("last_fetched_epoch") and log.log_start < offset <= log.high_watermark:
            epoch = log.log.epoch_before(offset)
            if epoch not in (None, position.last_fetched_epoch):
                text = f"{self}: offset {offset} follows a record of epoch {epoch} in this replica: ask the leader"
                return Refuse(NotLeaderOrFollower(text))
        return SendRuns()

    def readable_end(self, audience: Audience) -> int:
        return readable_end(self._log, audience)

    def ends(self) -> LogOffsets:
        return self._log.ends()

    def aborted_within(self, from_offset: int, to_offset: int) -> list[int]:
        return self._log.producers.transactions.aborted_within(from_offset, to_offset)

    @property
    def cuts(self) -> int:
        return self._log.cuts

    def epoch_before(self, offset: int) -> int | None:
        return self._log.log.epoch_before(offset)


def consumers_among(subscribers: Mapping[int, SessionPartition]) -> list[SessionPartition]:
    """The subscribers that are consumers, not followers."""
    return [
        subscription for subscription in subscribers.values() if subscription.session.audience is not Audience.FOLLOWER
    ]
