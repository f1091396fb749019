"""A simulated streaming query that writes with the Spark sink: one driver, tasks on executors, and how Spark fails.

    the query      a checkpoint: which micro-batch is next, and what it holds; it survives everything
    a driver       one run of the query: plans attempts, starts tasks, names the winners (commit_decision), writes
                   the checkpoint. Killed at any time, in the midst of a commit with preference; or it stands
                   still, is given up for dead while another one runs, and wakes up
    a task         one attempt at some rows, in a process of its own: enlists, writes, reports. Killed; or it stands
                   still, is given up, and wakes up as a zombie; speculation runs two of the same
    a failed query starts again as another run, with the same micro-batch; or as another attempt of the same run
    a checkpoint   may be set back by one batch, whose input has grown; it is put back after one run, which fails

In the liveness phase nobody is killed any more, and the query ends when it has committed what it had begun.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.config import ClientConfig
from minilog.errors import MinilogError
from minilog.transactions.messages import AlreadyCommitted, Attempt, TransactionOutcome
from pyspark_minilog.errors import InconsistentWrite, NotAReplay
from pyspark_minilog.sink_protocol import (
    Abort,
    End,
    TaskReport,
    abort_decision,
    commit_decision,
    stream_attempt,
)
from tests.simulation.clients import ClientProcess
from tests.simulation.coordinators_of_clients import CoordinatorsAsked
from tests.simulation.coroutines import Promise, first_of, sleep, spawn
from tests.simulation.history import History
from tests.simulation.transaction_history import Generation
from tests.simulation.transactional_writing import TransactionalWriter

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

MAX_FAILURES = 4  # of a task: spark.task.maxFailures
LOST_AFTER_MS = 300.0  # an executor that is not heard of is given up
LONGEST_SLEEP_MS = 6_000.0  # of a zombie
RESTART_MS = 200.0
GROWN_ROWS = 2  # of a batch that is planned anew, from a checkpoint that was set back


@dataclass(frozen=True, slots=True)
class Troubles:
    """How often what befalls a query, each a probability."""

    task_killed: float
    task_sleeps: float
    speculation: float
    driver_killed: float  # at some time in its run
    commit_killed: float  # around one commit
    driver_sleeps: float

    @staticmethod
    def draw(rng: random.Random) -> Troubles:
        return Troubles(
            task_killed=rng.choice((0.0, 0.1, 0.2)),
            task_sleeps=rng.choice((0.0, 0.1, 0.2)),
            speculation=rng.choice((0.0, 0.2)),
            driver_killed=rng.choice((0.0, 0.3)),
            commit_killed=rng.choice((0.0, 0.2, 0.4)),
            driver_sleeps=rng.choice((0.0, 0.2)),
        )


class SparkSink:
    """See the module's text. `topics`: where rows go; `writing`: whether another micro-batch may begin."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        name: str,
        config: Callable[[str], ClientConfig],
        topics: list[str],
        rng: random.Random,
    ) -> None:
        self.cluster, self.history, self.name, self.topics, self.rng = cluster, history, name, topics, rng
        self.writing = True
        self.idle = False
        self.troubles = Troubles.draw(rng)
        self.transactional_id = f"spark-{name}"  # as stream_attempt has it
        self.config = config(self.transactional_id)
        self.batch_id = 0
        self._plans: dict[int, list[str]] = {}  # of each micro-batch the topic of every row: what the checkpoint holds
        self._runs = 0
        self._writers = 0
        self._driver: Driver | None = None
        self._set_back: list[str] | None = None  # the input of the last batch as it was committed
        # Chance of its own: what else befalls a query is drawn as before.
        self._mishaps = random.Random(f"checkpoint of {name} {cluster.seed}")
        self._set_back_rate = self._mishaps.choice((0.0, 0.15))
        cluster.scheduler.after(rng.uniform(200.0, 1_500.0), self.start_driver)

    # -- the checkpoint

    def rows(self, batch_id: int) -> list[str]:
        """The input of a micro-batch: fixed when it is asked for first."""
        if batch_id not in self._plans:
            self._plans[batch_id] = [self.rng.choice(self.topics) for _ in range(self.rng.randint(1, 8))]
            self.history.transactions.planned(self.generation(batch_id), len(self._plans[batch_id]))
        return self._plans[batch_id]

    def generation(self, batch_id: int) -> Generation:
        return Generation(self.transactional_id, batch_id)

    def finished(self, driver: Driver, batch_id: int) -> None:
        """A driver writes its commit log; one that was given up for dead may come too late."""
        if driver is self._driver and batch_id == self.batch_id:
            self.batch_id += 1

    def set_back(self) -> None:
        """Somebody restores the checkpoint of one batch before, and there is more to read by now."""
        self.cluster.count("spark: checkpoint set back")
        self.batch_id -= 1
        self._set_back = self._plans[self.batch_id]
        self._plans[self.batch_id] = self._set_back + self._mishaps.choices(self.topics, k=GROWN_ROWS)

    def _put_back(self) -> None:
        if self._set_back is not None:
            self._plans[self.batch_id], self._set_back = self._set_back, None
            self.batch_id += 1

    # -- processes

    @property
    def troubled(self) -> bool:
        return self.cluster.is_safety_phase

    def happens(self, probability: float) -> bool:
        return self.troubled and self.rng.random() < probability

    def end_process(self, client: ClientProcess) -> None:
        """It is killed."""
        if client.process.alive:
            client.process.end()
            self.cluster.network.process_ended(client.process, silently=False)

    def next_writer(self) -> str:
        self._writers += 1
        return f"{self.name}-w{self._writers}"

    def start_driver(self, _: object = None) -> None:
        """Another run of the query."""
        self._put_back()
        if not self.writing and self.batch_id not in self._plans:
            self.idle = True
            return
        if self.troubled and self.batch_id and self._mishaps.random() < self._set_back_rate:
            self.set_back()
        self._runs += 1
        self._driver = driver = Driver(self, f"run-{self._runs}")
        if self.happens(self.troubles.driver_killed):
            self.cluster.scheduler.after(self.rng.expovariate(1.0 / 1_500.0), driver.kill)
        if self.happens(self.troubles.driver_sleeps):
            self.cluster.scheduler.after(self.rng.expovariate(1.0 / 1_500.0), driver.fall_asleep)

    def driver_is_gone(self, driver: Driver) -> None:
        if driver is self._driver:
            self._driver = None
            self.cluster.scheduler.after(RESTART_MS * (0.5 + self.rng.random()), self.start_driver)


class Driver:
    """One run of the query."""

    def __init__(self, sink: SparkSink, run_id: str) -> None:
        self.sink, self.run_id = sink, run_id
        self.client = sink.cluster.add_client()
        self._tasks: list[ClientProcess] = []
        self._asked = CoordinatorsAsked(self.client, sink.config, sink.cluster.plan.node_ids, sink.rng)
        spawn(self.client.process, self._run())

    # -- its end

    def kill(self, _: object = None) -> None:
        """SIGKILL; executors end with it, or later."""
        if not self.sink.troubled or not self.client.process.alive:
            return
        self.sink.cluster.count("spark: driver killed")
        self.sink.end_process(self.client)
        for each in self._tasks:
            if self.sink.rng.random() < 0.5:
                self.sink.end_process(each)
        self.sink.driver_is_gone(self)

    def fall_asleep(self, _: object) -> None:
        """It stands still; somebody starts the query anew, and then it goes on."""
        if not self.sink.troubled or not self.client.process.alive:
            return
        self.sink.cluster.count("spark: driver stands still")
        self.client.process.pause()
        self.sink.driver_is_gone(self)
        self.sink.cluster.scheduler.after(self.sink.rng.uniform(300.0, LONGEST_SLEEP_MS), self._wake)

    def _wake(self, _: object) -> None:
        if self.client.process.alive:
            self.client.process.resume()

    # -- micro-batches

    async def _run(self) -> None:
        sink, process = self.sink, self.client.process
        while sink.writing or sink.batch_id in sink._plans:
            batch_id = sink.batch_id
            done = await self._attempt(batch_id)
            if not done and sink.rng.random() < 0.3:
                done = await self._attempt(batch_id)  # another attempt of the same run
            if not done:
                break  # the query fails
            if sink._driver is not self:
                return
            sink.finished(self, batch_id)
            await sleep(process, sink.rng.expovariate(1.0 / 200.0))
        sink.driver_is_gone(self)

    async def _attempt(self, batch_id: int) -> bool:
        """One try at a micro-batch; whether it is committed."""
        sink = self.sink
        generation, rows = sink.generation(batch_id), sink.rows(batch_id)
        attempt = stream_attempt(sink.name, batch_id, self.run_id, sink.rng.randbytes(16))
        tasks: list[list[int]] = [[] for _ in range(sink.rng.randint(1, 3))]
        for row in range(len(rows)):
            sink.rng.choice(tasks).append(row)
        reports: list[TaskReport | None] = [None] * len(tasks)

        async def run_task(number: int) -> None:
            reports[number] = await self._task(attempt, number, tasks[number])

        running = [spawn(self.client.process, run_task(number)) for number in range(len(tasks))]
        for each in running:
            await each
        try:
            return await self._commit(generation, reports, len(rows))
        except (MinilogError, InconsistentWrite, NotAReplay) as error:
            sink.cluster.note(f"{sink.name} {self.run_id} batch {batch_id} fails: {type(error).__name__}: {error}")
            sink.cluster.count(f"spark: commit refused, {type(error).__name__}")
            await self._give_up(generation, abort_decision(reports))
            return False

    async def _commit(self, generation: Generation, reports: list[TaskReport | None], rows: int) -> bool:
        sink, transactions = self.sink, self.sink.history.transactions
        decision = commit_decision(reports, batch_id=generation.number)
        if decision is None:
            transactions.replayed(generation, rows)
            transactions.committed(generation, None)
            return True
        assert isinstance(decision, End)
        if sink.happens(sink.troubles.commit_killed):
            sink.cluster.scheduler.after(sink.rng.expovariate(1.0 / 20.0), self.kill)
        winners = [winner.producer_id for winner in decision.winners]
        transactions.asked(generation, winners)
        outcome = await self._asked.commit(
            decision.attempt, decision.winners, decision.contents, decision.coordinator_epoch
        )
        # A run that was taken for dead is told that the generation is committed, whoever did it: not of whom.
        transactions.committed(generation, winners if sink._driver is self else None)
        sink.cluster.note(f"{sink.name} {self.run_id} {generation} is {outcome.value}, of {winners}")
        sink.cluster.count(f"spark: {outcome.value}")
        if outcome is TransactionOutcome.COMMITTED and sink._driver is self:
            transactions.visible(generation, decision.winners)
        return True

    async def _give_up(self, generation: Generation, decision: Abort | None) -> None:
        if decision is None:
            return
        try:
            outcome = await self._asked.abort(decision.attempt, (), decision.coordinator_epoch)
        except MinilogError:
            return
        if outcome is TransactionOutcome.COMMITTED:
            self.sink.history.transactions.committed(generation, None)

    # -- tasks

    async def _task(self, attempt: Attempt, number: int, rows: list[int]) -> TaskReport | None:
        """The first report of any attempt at a task; None where all have failed."""
        sink = self.sink
        for _ in range(MAX_FAILURES):
            racing = [self._begin_task(attempt, number, rows)]
            if sink.happens(sink.troubles.speculation):
                await first_of(racing[0], sleep(self.client.process, sink.rng.uniform(0.0, 100.0)))
                racing.append(self._begin_task(attempt, number, rows))
            while racing:
                await first_of(*racing)
                for each in [each for each in racing if each.kept]:
                    racing.remove(each)
                    if (report := await each) is not None:
                        return report
        return None

    def _begin_task(self, attempt: Attempt, number: int, rows: list[int]) -> Promise[TaskReport | None]:
        """In a process of its own, with its fate."""
        sink, scheduler = self.sink, self.sink.cluster.scheduler
        client = sink.cluster.add_client()
        self._tasks.append(client)
        reported = spawn(client.process, TaskAttempt(sink, client).run(attempt, number, rows))
        after_ms = sink.rng.expovariate(1.0 / 50.0)
        if sink.happens(sink.troubles.task_killed):
            sink.cluster.count("spark: task killed")
            scheduler.after(after_ms, lambda _: sink.end_process(client))
            self.client.after(after_ms + LOST_AFTER_MS, lambda _: reported.keep(None))
        elif sink.happens(sink.troubles.task_sleeps):
            sink.cluster.count("spark: task stands still")
            scheduler.after(after_ms, lambda _: client.process.pause())
            self.client.after(after_ms + LOST_AFTER_MS, lambda _: reported.keep(None))
            awake_ms = after_ms + sink.rng.uniform(LOST_AFTER_MS, LONGEST_SLEEP_MS)
            scheduler.after(awake_ms, lambda _: client.process.resume() if client.process.alive else None)
        return reported


class TaskAttempt:
    """What write_task.write_part does."""

    def __init__(self, sink: SparkSink, client: ClientProcess) -> None:
        node_ids = sink.cluster.plan.node_ids
        self._sink, self._client = sink, client
        self._asked = CoordinatorsAsked(client, sink.config, node_ids, sink.rng)
        self._rng = random.Random(sink.rng.random())

    async def run(self, attempt: Attempt, number: int, rows: list[int]) -> TaskReport | None:
        """Its report; None where it failed."""
        if not rows:
            return TaskReport(0)
        sink = self._sink
        assert attempt.generation is not None
        generation = sink.generation(attempt.generation)
        try:
            part = await self._asked.enlist(attempt, task=number)
        except MinilogError as error:
            sink.cluster.count(f"spark: enlisting refused, {type(error).__name__}")
            return None
        if isinstance(part, AlreadyCommitted):
            return TaskReport(len(rows), part)
        sink.history.transactions.enlisted(generation, part.producer_id)
        node_ids, name = sink.cluster.plan.node_ids, sink.next_writer()
        writer = TransactionalWriter(name, self._client, sink.config, node_ids, sink.history, self._rng, self._asked)
        writer.begin(part)
        try:
            for row in rows:
                await writer.put(row, sink.rows(attempt.generation)[row], generation)
                await sleep(self._client.process, self._rng.expovariate(1.0 / 10.0))
            return TaskReport(len(rows), part, await writer.finish())
        except MinilogError as error:
            sink.cluster.count(f"spark: task failed, {type(error).__name__}")
            writer.drop()
            await self._abort(generation, part.attempt, part.producer_id, part.coordinator_epoch)
            return None

    async def _abort(self, generation: Generation, attempt: Attempt, producer_id: int, epoch: int) -> None:
        try:
            outcome = await self._asked.abort(attempt, [producer_id], epoch)
        except MinilogError:
            return  # a commit that does not name it, a take-over or the time-out will
        if outcome is TransactionOutcome.ABORTED:
            self._sink.history.transactions.aborted(generation, [producer_id], "aborted by its task")
