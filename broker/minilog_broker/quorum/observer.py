"""An observer of the metadata quorum: fetches the log from the leader, adopts its epoch, learns what is committed.

It follows as a replica of data follows its leader (replication.follower, replication.leader_session), with two
differences. Nothing tells it the epoch beforehand: it asks in the one it knows and adopts a higher one from the
answer. And what it has replayed is never cut: a leader whose log leaves ours below that is of another cluster.
"""

from __future__ import annotations

import random

from minilog.errors import InconsistentClusterId
from minilog.v1 import peer_pb2
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.effects import Effect, StartLogAt, TruncateLog
from minilog_broker.replication.follower import FollowerPartition
from minilog_broker.replication.host import Host
from minilog_broker.replication.leader_session import LeaderSession
from minilog_broker.replication.replica_log import QueuedAppend, ReplicaLog
from minilog_broker.replication.state import BrokerLife, PartitionKey


class Observer:
    """See the module's text."""

    def __init__(
        self, host: Host, log: ReplicaLog, epoch: int, leader: peer_pb2.VoterAddress, rng: random.Random
    ) -> None:
        self.leader_id = leader.broker_id
        self.leader_epoch = epoch
        self.replayed_end_offset = 0
        self._host = host
        self._log = log
        # The metadata session is before and beside all lives: no broker epoch is asked for, or told.
        host.broker_epoch = -1
        host.lives[self.leader_id] = BrokerLife(self.leader_id, -1, leader.host, leader.port, False, False)
        self.session = LeaderSession(self.leader_id, host, rng)
        self._follower = self._follow()

    def _follow(self) -> FollowerPartition:
        return FollowerPartition(
            METADATA_KEY,
            self.leader_id,
            self.leader_epoch,
            self._log,
            self.session,
            self._emit,
            self._host.settings,
        )

    def start(self, now_ms: float) -> None:
        self.session.follow(self._follower, now_ms)

    def _emit(self, effect: Effect) -> None:
        cut = effect.end_offset if isinstance(effect, TruncateLog) else None
        if isinstance(effect, StartLogAt):
            cut = 0
        if cut is not None and cut < self.replayed_end_offset:
            raise InconsistentClusterId(
                f"the metadata log of broker {self.leader_id} leaves ours at offset {cut}, of which "
                f"{self.replayed_end_offset} are committed and replayed: it is another cluster's, or has lost its disk"
            )
        self._host.emit(effect)

    # -- what the leader says

    def leader_message(self, response: peer_pb2.ReplicateResponse, now_ms: float) -> None:
        epochs = [run.leader_epoch for run in response.runs if _is_metadata(run.partition_id)]
        if epochs and max(epochs) > self.leader_epoch:
            self._adopt_epoch(max(epochs), now_ms)
        self.session.receive(response, now_ms)

    def _adopt_epoch(self, epoch: int, now_ms: float) -> None:
        self.session.unfollow(METADATA_KEY)
        self.leader_epoch = epoch
        self._follower = self._follow()
        self.session.follow(self._follower, now_ms)

    def next_request(self, now_ms: float) -> peer_pb2.ReplicateRequest | None:
        request = self.session.next_request(now_ms)
        if request is not None and request.broker_epoch == self._host.broker_epoch:  # the first of a stream
            request.cluster_metadata = True
        return request

    def resume(self) -> None:
        self._follower.resume()

    # -- what the disk says

    def appended(self, done: list[QueuedAppend], now_ms: float) -> None:
        for append in done:
            if append.credit is not None:
                self.session.give_back(append.credit[1], append.size_bytes)
        self._follower.settled(now_ms)

    def flushed(self) -> None:
        self._follower.flushed()

    def truncated(self) -> None:
        self._follower.truncated()


def _is_metadata(partition_id: object) -> bool:
    return PartitionKey(partition_id.topic_id, partition_id.partition) == METADATA_KEY  # type: ignore[attr-defined]
