"""The verbs of transactions: what writers, drivers, leaders of partitions and people ask of a coordinator.

A producer has the name that its `enlist` gives it. All that a command decides is committed and answered, unless the
coordinator is on `hold`, and all markers are written, unless `markers no`.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import MarkersRefused, WriteMarkers
from tests.scenarios.partitions import error_named, partition, partition_name
from tests.scenarios.world import CommandError, World
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.transacting import T, TransactionCalls, winner

NEXT = "next"
"""The generation of a program that names none."""


class TransactionWorld(World):
    """Writers of transactions, their coordinator and its log."""

    def __init__(self) -> None:
        super().__init__()
        self._world = TransactionCalls()
        self._asked: dict[int, str] = {}  # calls without an answer, by their tickets
        self._producers: dict[str, int] = {"stranger": 999}
        self._ids = {T}
        self._holds = False
        self._writes_markers = True
        self._under_way: list[WriteMarkers] = []
        self._told = 0  # of the markers that were written

    # -- writers

    def enlist(
        self,
        name: str,
        generation: str = "0",
        *,
        attempt: str = "a",
        run: str = "r",
        id: str = T,
        task: int | None = None,
        timeout: int = 0,
        expires: bool = False,
        epoch: int = 0,
    ) -> None:
        """`generation next`: as a program that names none. `epoch`: of the coordinator that the writer has heard of."""
        ticket = self._world.ask_to_enlist(
            None if generation == NEXT else int(generation),
            attempt,
            run,
            name=id,
            task=task,
            timeout_ms=timeout,
            expires=expires,
            coordinator_epoch=epoch,
        )
        self._asked[ticket] = name
        self._producers[name] = self._world.last_producer_id
        self._ids.add(id)

    def register(self, name: str, *partitions: str, id: str = T) -> None:
        keys = [partition(each) for each in partitions]
        self._asked[self._world.ask_to_register(self._producer(name), *keys, name=id)] = name

    def writer(self, name: str, partitions: tuple[str, ...], generation: str = "0", *, attempt: str = "a") -> None:
        """Enlists in an attempt, and registers in partitions."""
        self.enlist(name, generation, attempt=attempt)
        self._world.commit()
        self._world.collect()
        self.register(name, *partitions)

    def keep_alive(self, name: str, *, id: str = T) -> None:
        error = error_of(self._world.keep_alive(self._producer(name), id))
        self.outcome(f"{name} is alive", error)

    # -- the end

    def end(
        self,
        winners: tuple[str, ...],
        generation: int = 0,
        *,
        attempt: str = "a",
        run: str = "r",
        id: str = T,
        rows: int | None = None,
        digest: int = 0,
    ) -> None:
        """`winners`: names, each with the last sequence of a partition where one is named (`w1:orders-0=41`).
        `rows`, `digest`: the contents of the generation, with a digest of so many bytes."""
        contents = None
        if rows is not None:
            contents = coordinator_pb2.GenerationContents(rows=rows, offsets_digest=bytes(digest))
        found = [self._winner(each) for each in winners]
        self._asked[self._world.ask_to_end(found, generation, attempt, run, name=id, contents=contents)] = "end"

    def _winner(self, word: str) -> coordinator_pb2.Winner:
        name, _, written = word.partition(":")
        place, _, sequence = written.partition("=")
        return winner(self._producer(name), {partition(place): int(sequence)} if written else None)

    def abort(self, *names: str, generation: int = 0, attempt: str = "a", id: str = T) -> None:
        """An attempt, or some of its producers."""
        request = coordinator_pb2.AbortAttemptRequest(
            transactional_id=id,
            generation=generation,
            attempt_id=attempt.encode(),
            producer_ids=[self._producer(name) for name in names],
        )
        self._world.coordinator.abort(self._ask("abort"), request, self._world.now)

    def _producer(self, name: str) -> int:
        if name not in self._producers:
            raise CommandError(f"nobody has enlisted as {name!r}")
        return self._producers[name]

    def _ask(self, name: str) -> int:
        ticket = self._world.ticket()
        self._asked[ticket] = name
        return ticket

    # -- markers

    def markers(self, says: bool) -> None:
        """Whether markers that are asked for are written at once."""
        self._writes_markers = says

    def write(self, place: str, *, again: bool = False) -> None:
        """The leader of a partition has written the marker that is under way. `again`: and says so twice."""
        effect = self._marker(place)
        for _ in range(2 if again else 1):
            self._world.write(effect)

    def fail(self, place: str, error: str = "NotLeaderOrFollower") -> None:
        """The leader of a partition did not write the marker."""
        self._world.coordinator.markers_failed(self._marker(place), error_named(error), self._world.now)

    def _marker(self, place: str) -> WriteMarkers:
        found = [effect for effect in self._under_way if effect.target == partition(place)]
        if not found:
            raise CommandError(f"no marker is under way to {place}")
        self._under_way.remove(found[0])
        return found[0]

    # -- the coordinator

    def wait(self, ms: float) -> None:
        """Time goes by, and the timers ring."""
        self._world.wait(ms)

    def stand_still(self, ms: float) -> None:
        """The process of the coordinator stands still, and has one tick then."""
        self._world.now_ms += ms
        self._world.coordinator.tick(self._world.now)

    def expire(self, *, days: float) -> None:
        """So many days after the start."""
        self._world.coordinator.expire(self._world.wall_us + int(days * 86_400_000_000) - 1)
        self._world.coordinator.expire(self._world.wall_us + int(days * 86_400_000_000))

    def pass_days(self, days: float) -> None:
        """On the clock of the wall."""
        self._world.wall_us += int(days * 86_400_000_000)

    def hold(self) -> None:
        """Nothing is committed until `resume`."""
        self._holds = True

    def resume(self) -> None:
        self._holds = False

    def fail_over(self, *, kept: int | None = None) -> None:
        """Another coordinator, with what was committed, and so many batches of the rest (all, where it is not said)."""
        self._under_way.clear()
        self._world.fail_over(kept_batches=kept)

    def new_term(self) -> None:
        """The same coordinator leads again, in a new term."""
        self._world.lead()

    def depose(self) -> None:
        """Its term ends."""
        self._world.coordinator.deposed()

    def log_refuses(self, error: str = "") -> None:
        """What appending to the log fails with from now on; nothing: it works again."""
        self._world.refusal = error_named(error) if error else None

    def delete_topic(self, topic: str) -> None:
        self._world.topics.discard(partition(f"{topic}-0").topic_id)

    def create_topic(self, topic: str) -> None:
        self._world.topics.add(partition(f"{topic}-0").topic_id)

    # -- people

    def abort_by_command(self, *, id: str = T) -> None:
        request = coordinator_pb2.AbortTransactionRequest(transactional_id=id)
        self._world.coordinator.abort_by_command(self._ask("abort by command"), request, self._world.now)

    def forget(self, *, id: str = T) -> None:
        request = coordinator_pb2.ForgetTransactionRequest(transactional_id=id)
        self._world.coordinator.forget(self._ask("forget"), request)

    def list(self) -> None:
        self._world.coordinator.list(self._ask("list"), coordinator_pb2.ListTransactionsRequest())

    # -- what follows, and what is seen

    def settle_down(self) -> None:
        world = self._world
        if not self._holds:
            world.commit()
        self._take_markers()
        while self._writes_markers and self._under_way:
            world.write(self._under_way.pop(0))
            self._take_markers()
        if not self._holds:
            world.commit()
        world.collect()
        for target, producer_id, committed, sequence in world.marked[self._told :]:
            last = f" up to {sequence}" if sequence >= 0 else ""
            says = "committed" if committed else "aborted"
            self.note(f"marker of {partition_name(target)}: {self._name(producer_id)} {says}{last}")
        self._told = len(world.marked)
        for each in world.take(MarkersRefused):
            self.note(f"refused for good by {partition_name(each.target)}: {type(each.error).__name__}")
        for ticket in [each for each in self._asked if each in world.answers]:
            self._answered(self._asked.pop(ticket), world.answers.pop(ticket))

    def _take_markers(self) -> None:
        asked = self._world.asked_markers()
        self._under_way += asked
        for each in asked if not self._writes_markers else ():
            producers = ", ".join(self._name(marker.producer_id) for marker in each.markers)
            self.note(f"asks {partition_name(each.target)} for the marker of {producers}")

    def _answered(self, name: str, answer: object) -> None:
        match answer:
            case coordinator_pb2.EnlistResponse():
                self._producers[name] = answer.producer_id or self._producers[name]
                done = coordinator_pb2.EnlistOutcome.Name(answer.outcome).removeprefix("ENLIST_OUTCOME_").lower()
                held = f" with {answer.contents.rows} rows" if answer.HasField("contents") else ""
                self.outcome(name, error_of(answer), f"{done.replace('_', ' ')} in {answer.generation}{held}")
            case coordinator_pb2.EndTransactionResponse() | coordinator_pb2.AbortAttemptResponse():
                done = coordinator_pb2.TransactionOutcome.Name(answer.outcome).removeprefix("TRANSACTION_OUTCOME_")
                self.outcome(name, error_of(answer), done.lower().replace("_", " "))
            case coordinator_pb2.AbortTransactionResponse():
                self.outcome(name, error_of(answer), f"{answer.aborted_producers} producers")
            case coordinator_pb2.RegisterPartitionsResponse() | coordinator_pb2.ForgetTransactionResponse():
                self.outcome(name, error_of(answer))
            case coordinator_pb2.ListTransactionsResponse():
                found = [f"{each.transactional_id} {_state(each.state)}" for each in answer.transactions]
                self.note(f"{name}: {', '.join(found) or 'nothing'}")

    def _name(self, producer_id: int) -> str:
        return next((name for name, known in self._producers.items() if known == producer_id), str(producer_id))

    def observed(self) -> Mapping[str, str]:
        if self._holds or self._world.coordinator.state is not CoordinatorState.ACTIVE:
            return self._seen
        found = {}
        for name in sorted(self._ids):
            described = self._world.describe(name)
            if error_of(described) is None:
                found[name] = self._described(described)
        return found

    def _described(self, answer: coordinator_pb2.DescribeTransactionResponse) -> str:
        words = [f"{_state(answer.listing.state)} in {answer.listing.generation}"]
        if answer.listing.HasField("last_committed_generation"):
            words.append(f"{answer.listing.last_committed_generation} committed")
        for each in answer.producers:
            fate = coordinator_pb2.ProducerFate.Name(each.fate).removeprefix("PRODUCER_FATE_").lower()
            places = [partition_name(PartitionKey.of(key)) for key in each.partitions]
            words.append(" ".join([self._name(each.producer_id), fate, *places]))
        return ", ".join(words)


def _state(state: coordinator_pb2.TransactionState.ValueType) -> str:
    return coordinator_pb2.TransactionState.Name(state).removeprefix("TRANSACTION_STATE_").lower()
