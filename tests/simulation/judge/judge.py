"""All watchers of one run, on its wires and disks. What one finds ends the run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from tests.judges.images import Images
from tests.judges.violation import Violation
from tests.simulation.clients.queue_settings import QUEUE, drawn
from tests.simulation.judge import levels
from tests.simulation.judge.answers import Answers
from tests.simulation.judge.backlog import Backlog
from tests.simulation.judge.compaction import Compaction
from tests.simulation.judge.coordinators import JudgeOfCoordinators
from tests.simulation.judge.fencing import Fencing
from tests.simulation.judge.hearing import Hearing, Lead
from tests.simulation.judge.lag import Lag
from tests.simulation.judge.leader_epochs import LeaderEpochs
from tests.simulation.judge.levels import Levels
from tests.simulation.judge.positions import Positions
from tests.simulation.judge.producers import Producers
from tests.simulation.judge.queue_records import QueueRecords
from tests.simulation.judge.quorum import Quorum
from tests.simulation.judge.recorded_ends import RecordedEnds
from tests.simulation.judge.replication import Replication
from tests.simulation.judge.retirement import Retirement
from tests.simulation.judge.rights import Rights
from tests.simulation.judge.schemas import Schemas
from tests.simulation.judge.sessions import Sessions
from tests.simulation.judge.settings import Settings
from tests.simulation.judge.transactions import Transactions, is_marked
from tests.simulation.judge.truth import Truth

if TYPE_CHECKING:
    from minilog_broker.quorum.records import CommittedBatch
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.wire import Said


class Judge:
    """All watchers, and when they look."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._fencing = Fencing(cluster)
        self.retirement = Retirement(cluster)
        self._images, self._schemas, self._levels = Images(), Schemas(), Levels()
        self.settings = Settings()
        self.truth = Truth(cluster, self._fencing.fenced, self._replayed, self._schemas.version)
        self._leader_epochs, self._recorded_ends = LeaderEpochs(self.truth), RecordedEnds(self.truth)
        self._hearing = Hearing(cluster, self.truth)
        self.rights = Rights(cluster, self.truth) if cluster.plan.users else None
        self.lag = Lag(cluster, self.truth)
        self.answers = Answers(lambda: self.truth.metadata.end)
        coordinators = JudgeOfCoordinators(self.truth)
        transactions = Transactions(coordinators.may_write, self.truth.fates)
        self.compaction = Compaction(cluster, self.truth, transactions)
        self.queues = self._judge_of_queues(transactions) if cluster.plan.queuing else None
        self._replication = Replication(self.truth, transactions, self.compaction)
        self._backlog = Backlog(cluster)
        self._positions = Positions()
        self._watchers = [
            self.truth.saw,
            Quorum(self.truth, self._hearing).saw,
            Producers(self.truth).saw,
            coordinators.saw,
            self._hearing.saw,
            self._fencing.saw,
            self.lag.saw,
            Sessions(self.truth).saw,
            self._schemas.saw,
            self.answers.saw,
            *(() if self.rights is None else (self.rights.saw,)),
            *(() if self.queues is None else (self.queues.saw,)),
        ]
        for number, host in cluster.hosts.items():
            host.disk.replaced = functools.partial(self._written, number)
        cluster.wire.watch(self._saw)
        cluster.wire.listen(self._hearing.heard)
        cluster.wire.listen(self._fencing.heard)
        cluster.wire.listen(self.lag.heard)
        cluster.wire.listen(self._backlog.heard)
        cluster.wire.listen(self.truth.calm.heard)

    def _judge_of_queues(self, transactions: Transactions) -> QueueRecords:
        settings = drawn(self._cluster.seed, has_letters=self._cluster.plan.redriving)
        return QueueRecords(
            self._cluster, self.truth, transactions, self.is_marked, QUEUE, settings.lock_s, settings.limit
        )

    def _saw(self, call: Said, message: Any, answers: bool) -> None:
        """Of whoever speaks it is not the fault."""
        payloads: Sequence[Buffer] = ()
        if isinstance(message, StreamMessage):
            message, payloads = message.message, message.payloads
        try:
            for watcher in self._watchers:
                watcher(call, message, answers)
            self._replication.saw(call, message, payloads, answers)
            self.compaction.saw(call, message, answers)
            self._backlog.saw(call, message, payloads, answers)
            self._positions.saw(call, message, payloads, answers)
        except Exception as error:
            self._cluster.fail(error)

    def _replayed(self, batch: CommittedBatch) -> None:
        self._images.committed(batch)
        self._schemas.committed(batch)
        self.answers.committed(batch)
        self._levels.committed(batch)
        self.settings.committed(batch)
        self.retirement.committed(batch)
        if self.rights is not None:
            self.rights.committed(batch)

    @property
    def lead(self) -> Lead | None:
        """Who leads the quorum, by what was heard last."""
        return self._hearing.lead

    def is_marked(self, key: PartitionKey, producer_id: int) -> bool:
        """Whether the end of that producer stands in some copy of the partition."""
        name = self.truth.log_name(key)
        return name is not None and any(is_marked(copy, producer_id) for copy in self.truth.copies.all_of(name))

    def check_all_led(self) -> None:
        """V19, of each partition that is known to be committed, whether anybody writes to it or not."""
        states = self.truth.metadata.states
        leaderless = [key for key, state in states.items() if state.leader_id < 0]
        if leaderless:
            text = f"{len(leaderless)} of {len(states)} partitions have no leader"
            raise Violation("V19", text)

    def _written(self, number: int, path: str) -> None:
        """A file of a host took this name."""
        try:
            self._recorded_ends.written(number, path)
            self._images.written(number, path, self._cluster.hosts[number].disk)
            self.compaction.written(number, path)
        except Exception as error:
            self._cluster.fail(error)

    async def watch(self) -> None:
        """Until cancelled: at all disks, whether anybody speaks or not."""
        while True:
            await asyncio.sleep(self._cluster.plan.look_s)
            try:
                self._hearing.look()
                self.truth.look()
                self._leader_epochs.look()
                self._recorded_ends.look()
                self.compaction.look()
                self._backlog.look()
                self._images.look()
                levels.look(self.truth)
                self._fencing.look(self._hearing.lead, self.truth.metadata)
                self.lag.look(self._hearing.lead)
                if self.rights is not None:
                    self.rights.look()
                if self.queues is not None:
                    self.queues.look()
            except Exception as error:
                self._cluster.fail(error)
