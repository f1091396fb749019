"""The coordinator of transactions against a plain model: calls, commits, markers and crashes in any order.

the model               is asked what each call must be answered; a crash takes it back to where the log is cut
what must hold          after every step
replay                  the committed state is the committed log, replayed key by key, whoever leads
answers                 are those of the model, or NOT_COORDINATOR after a crash, and are given when it is committed
markers                 are asked for only of decisions that are committed, in exactly the registered partitions
a commit is answered    when every producer that ended in it or before has all its markers
at the end              everybody is answered, every ended producer is marked as the model says, and is gone
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minilog.errors import NotEnoughReplicas, NotLeaderOrFollower
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import decode_run
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import WriteMarkers
from minilog_broker.coordinators.transactions.records import TransactionKey, TransactionValue, transaction_codec
from tests.rules import proves
from tests.unit.coordinators.cluster import INTERNAL, error_of
from tests.unit.coordinators.transacting import (
    BECOMING_VISIBLE,
    COMMITTED,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    REQUEST_TIMEOUT_MS,
    TIMEOUT_MS,
    T,
    TransactionCalls,
    winner,
)
from tests.unit.coordinators.transaction_model import ModelAttempt, TransactionModel

pytestmark = proves("CO.4", "V15")

# Which attempt: the last one, or one of those before, as it was or with something else about it.
usual = st.tuples(st.integers(0, 3), st.sampled_from(("", "", "", "run", "generation below", "generation", "name")))
partitions = st.sampled_from((ORDERS_0, ORDERS_1, PAYMENTS_0))
picks = st.lists(st.integers(0, 20), min_size=1, max_size=3)
none: st.SearchStrategy[list[int]] = st.just([])
none_or_picks = none | none | picks
CALLS = st.sampled_from(("enlist", "enlist", "enlist", "register", "end", "end", "abort", "command", "refused"))
tasks = st.sampled_from((None, 0, 0, 1))


class ExpectedAnswer(NamedTuple):
    """What a call must be answered, and not before the log is committed up to `rests_on`."""

    code: str
    rests_on: int
    committed: int | None  # the generation that an End commits


class _ShortLog(TransactionCalls):
    """Much is carried along, and much is deleted."""

    slack_records = 3


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.cluster = _ShortLog()
        self.model = TransactionModel()
        self.history: list[tuple[int, TransactionModel]] = [(0, TransactionModel())]  # by the end of the log
        self.attempts = [ModelAttempt("r", 0, "n")]  # that enlisted
        self.asked: dict[object, ExpectedAnswer] = {}
        self.crashed: set[object] = set()
        self.replayed: dict[TransactionKey, TransactionValue] = {}
        self.replayed_batches = 0
        self.sent: list[WriteMarkers] = []  # ever, as messages that may be delivered again
        self.under_way: list[WriteMarkers] = []
        self.marked: set[tuple[int, PartitionKey]] = set()

    # -- helpers

    @property
    def durable(self) -> TransactionModel:
        """The model as of the high watermark."""
        return [model for end, model in self.history if end <= self.cluster.high_watermark][-1]

    def some_attempt(self, which: tuple[int, str]) -> ModelAttempt:
        back, other = which
        run, generation, name = self.attempts[-1 - back % len(self.attempts)]
        match other:
            case "run":
                run = f"r{self.cluster.decided_end}"
            case "generation below":
                generation = max(0, generation - 1)
            case "generation":
                generation += 1
            case "name":
                name = f"n{self.cluster.decided_end}"
        return ModelAttempt(run, generation, name)

    def pick(self, indexes: list[int]) -> list[int]:
        """Producers that were enlisted, the newest first, or one that never was."""
        known = [*sorted(self.model.producers, reverse=True), 9_999]
        return list(dict.fromkeys(known[index % len(known)] for index in indexes))

    def note(self, ticket: object, expected: str, committed: int | None = None) -> None:
        """A call was made, and the model has taken it in."""
        self.asked[ticket] = ExpectedAnswer(expected, self.cluster.decided_end, committed)
        self.settle()

    def settle(self) -> None:
        """Whatever was decided belongs to the model as it is now."""
        if self.cluster.decided_end > self.history[-1][0]:
            self.history.append((self.cluster.decided_end, copy.deepcopy(self.model)))
        self.cluster.collect()
        for effect in self.cluster.asked_markers():
            self.judge_markers(effect)
            self.sent.append(effect)
            self.under_way.append(effect)

    def judge_markers(self, effect: WriteMarkers) -> None:
        for marker in effect.markers:
            producer = self.durable.producers[marker.producer_id]
            assert producer.fate == ("committed" if marker.committed else "aborted"), "not what was decided, durably"
            assert effect.target in producer.partitions, "a marker where nobody was registered"

    # -- calls: as they should come, and any other; few rules, so that an example has all of them

    @rule(where=st.lists(partitions, max_size=2), task=tasks, new_run=st.booleans())
    def write(self, where: list[PartitionKey], task: int | None, new_run: bool) -> None:
        """A writer of the attempt that goes on, or of the next."""
        former = self.model.attempt
        if former is None or self.model.over:
            generation = 0 if self.model.committed is None else self.model.committed + 1
            run = f"r{len(self.model.old_runs) + 10}" if new_run or former is None else former.run
            self.enlist(ModelAttempt(run, generation, f"n{self.cluster.decided_end}"), task)
        else:
            self.enlist(former, task)
        for partition in where:
            self.register([0], partition)

    @rule(lost=st.sampled_from((0, 0, 1, 2)), every_task_once=st.sampled_from((True, True, False)), also=none_or_picks)
    def win(self, lost: int, every_task_once: bool, also: list[int]) -> None:
        """One producer of each task is named (or all), but for some; and perhaps one that cannot win."""
        by_task = {each if p.task is None else -1 - p.task: each for each, p in self.model.open.items()}
        named = sorted(by_task.values() if every_task_once else self.model.open)[lost:]
        named += [each for each in self.pick(also) if each not in named]
        if named:
            self.end_by(self.model.attempt or self.attempts[0], named)

    @rule(data=st.data(), kind=CALLS)
    def call_again(self, data: st.DataObject, kind: str) -> None:
        """Late, repeated and wrong calls are half of all."""
        self.call(data, kind)

    @rule(data=st.data(), kind=CALLS)
    def call(self, data: st.DataObject, kind: str) -> None:
        match kind:
            case "enlist":
                self.enlist(self.some_attempt(data.draw(usual)), data.draw(tasks))
            case "register":
                self.register(data.draw(picks), data.draw(partitions))
            case "end":
                self.end(self.some_attempt(data.draw(usual)), data.draw(picks), data.draw(st.booleans()))
            case "abort":
                self.abort(self.some_attempt(data.draw(usual)), data.draw(none_or_picks))
            case "command" if self.model.attempt is not None:
                self.abort_by_command()
            case "refused":
                self.refuse_an_append()

    def enlist(self, attempt: ModelAttempt, task: int | None) -> None:
        ticket = self.cluster.ask_to_enlist(attempt.generation, attempt.name, attempt.run, task=task)
        if attempt not in self.attempts:
            self.attempts.append(attempt)
        self.note(ticket, self.model.enlist(attempt, task, self.cluster.last_producer_id))

    def register(self, indexes: list[int], partition: PartitionKey) -> None:
        producer_id = self.pick(indexes)[0]
        ticket = self.cluster.ask_to_register(producer_id, partition)
        self.note(ticket, self.model.register(producer_id, partition))

    def end(self, attempt: ModelAttempt, indexes: list[int], everybody: bool) -> None:
        self.end_by(attempt, sorted(self.model.open) if everybody and self.model.open else self.pick(indexes))

    def end_by(self, attempt: ModelAttempt, named: list[int]) -> None:
        ticket = self.cluster.ask_to_end(map(winner, named), attempt.generation, attempt.name, attempt.run)
        expected = self.model.end(attempt, named)
        self.note(ticket, expected, attempt.generation if expected == "COMMITTED" else None)

    def abort(self, attempt: ModelAttempt, indexes: list[int]) -> None:
        named = self.pick(indexes)
        request = coordinator_pb2.AbortAttemptRequest(
            transactional_id=T,
            generation=attempt.generation,
            attempt_id=attempt.name.encode(),
            producer_ids=named,
        )
        ticket = self.cluster.ticket()
        self.cluster.coordinator.abort(ticket, request, self.cluster.now)
        self.note(ticket, self.model.abort(attempt, named))

    def abort_by_command(self) -> None:
        ticket = self.cluster.ticket()
        request = coordinator_pb2.AbortTransactionRequest(transactional_id=T)
        self.cluster.coordinator.abort_by_command(ticket, request, self.cluster.now)
        self.note(ticket, self.model.abort_by_command())

    def refuse_an_append(self) -> None:
        """Nothing of a decision that was refused is left: enlisting would have taken over."""
        self.cluster.refusal = NotEnoughReplicas("the ISR is too small")
        ticket = self.cluster.ask_to_enlist(9, "new", "new")
        self.cluster.refusal = None
        self.note(ticket, "NOT_ENOUGH_REPLICAS")

    # -- what happens

    @rule(data=st.data(), kind=st.sampled_from(("again", "again", "retry", "retry", "time out", "crash", "crash")))
    def befall(self, data: st.DataObject, kind: str) -> None:
        match kind:
            case "again":
                self.deliver_markers_again(data.draw(st.integers(0, 30)))
            case "retry":
                self.retry()
            case "time out":
                self.time_out()
            case "crash":
                self.crash(data.draw(st.none() | st.integers(0, 3)))

    @rule(batches=st.sampled_from((1, 2, 100)))
    def commit(self, batches: int) -> None:
        """Some of what is in flight."""
        ends = [end for end in self.cluster.ends if end > self.cluster.high_watermark]
        if ends:
            self.cluster.commit_to(ends[:batches][-1])
            self.settle()

    def commit_all(self) -> None:
        """Also the decisions that wait for a batch before them."""
        while self.cluster.high_watermark < self.cluster.log_end:
            self.commit(1_000)

    @rule(which=st.integers(0, 10), written=st.sampled_from((True, True, False)))
    def answer_markers(self, which: int, written: bool) -> None:
        if not self.under_way:
            return
        effect = self.under_way.pop(which % len(self.under_way))
        if written:
            self.deliver(effect)
        else:
            self.cluster.coordinator.markers_failed(effect, NotLeaderOrFollower("an election"), self.cluster.now)
        self.settle()

    def deliver_markers_again(self, which: int) -> None:
        if self.sent:
            self.deliver(self.sent[which % len(self.sent)])
            self.settle()

    def deliver(self, effect: WriteMarkers) -> None:
        self.marked |= {(marker.producer_id, effect.target) for marker in effect.markers}
        self.cluster.coordinator.markers_written(effect, self.cluster.now)

    def retry(self) -> None:
        self.cluster.now_ms += 150
        self.cluster.coordinator.tick(self.cluster.now)
        self.settle()

    def time_out(self) -> None:
        """Nobody gives a sign of life."""
        until_ms = self.cluster.now_ms + TIMEOUT_MS * 1.1
        before = bool(self.model.open)
        while (due_ms := self.cluster.coordinator.next_tick_ms) <= until_ms:
            self.cluster.now_ms = max(due_ms, self.cluster.now_ms)
            self.cluster.coordinator.tick(self.cluster.now)
        self.cluster.now_ms = until_ms
        if before:
            self.model.abort_open()
        self.settle()

    def crash(self, kept_batches: int | None) -> None:
        """Another broker leads, with what is committed and some of the rest."""
        self.crashed |= set(self.asked)
        self.cluster.coordinator.deposed()
        self.cluster.collect()
        self.cluster.fail_over(kept_batches=kept_batches)
        self.history = [(end, model) for end, model in self.history if end <= self.cluster.log_end]
        self.model = copy.deepcopy(self.history[-1][1])
        self.settle()

    # -- what must hold

    @invariant()
    def the_committed_state_is_the_replay_of_the_committed_log(self) -> None:
        if not hasattr(self, "cluster"):
            return
        while self.replayed_batches < len(self.cluster.ends):
            if self.cluster.ends[self.replayed_batches] > self.cluster.high_watermark:
                break
            for _, records in decode_run(INTERNAL, self.cluster.batches[self.replayed_batches]):
                for record in records:
                    key, value = transaction_codec().decode(record)
                    if value is None:
                        self.replayed.pop(key, None)
                    else:
                        self.replayed[key] = value
            self.replayed_batches += 1
        assert self.cluster.coordinator.state is CoordinatorState.ACTIVE
        assert self.cluster.coordinator.committed_state() == self.replayed

    @invariant()
    def answers_are_the_models(self) -> None:
        for ticket in [each for each in getattr(self, "asked", {}) if each in self.cluster.answers]:
            message = self.cluster.answers.pop(ticket)
            expected, rests_on, committed = self.asked.pop(ticket)
            code = answer_code(message)
            if code == "NOT_COORDINATOR":
                assert ticket in self.crashed, "refused without a crash"
            elif code == "REQUEST_TIMED_OUT":
                assert committed is not None
            else:
                assert code == expected, f"{code} is not {expected}: {message}"
                assert rests_on <= self.cluster.high_watermark, "answered with what may be forgotten"
                if committed is not None:
                    self.judge_commit(message, committed)

    def judge_commit(self, message: object, generation: int) -> None:
        assert isinstance(message, coordinator_pb2.EndTransactionResponse)
        assert self.durable.committed is not None
        assert self.durable.committed >= generation, "a commit that may be forgotten was answered"
        ended = [(each, p) for each, p in self.durable.producers.items() if p.attempt.generation <= generation]
        lacks = {(each, key) for each, p in ended for key in p.partitions if p.fate != "open"} - self.marked
        assert message.outcome in (COMMITTED, BECOMING_VISIBLE)
        assert not (message.outcome == COMMITTED and lacks), "answered as visible, and it is not"

    @invariant()
    def what_is_open_is_of_the_last_attempt(self) -> None:
        if hasattr(self, "cluster"):
            model = self.durable
            assert {producer.attempt for producer in model.open.values()} <= {model.attempt}
            fates = {key.producer_id: getattr(value, "fate", None) for key, value in self.replayed.items()}
            assert {each for each, fate in fates.items() if fate is not None and fate.name == "OPEN"} == set(model.open)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        for _ in range(6):
            self.commit_all()
            for effect in self.under_way:
                self.deliver(effect)
            self.under_way = []
            self.cluster.now_ms += REQUEST_TIMEOUT_MS
            self.cluster.coordinator.tick(self.cluster.now)
            self.settle()
        self.commit_all()
        self.the_committed_state_is_the_replay_of_the_committed_log()
        self.answers_are_the_models()
        assert not self.asked, "somebody waits for ever"
        durable = self.durable
        gone = {each: p for each, p in durable.producers.items() if p.fate != "open"}
        kept = {key.producer_id for key in self.replayed if key.producer_id is not None}
        assert kept == set(durable.open), "what has ended is kept"
        assert self.marked == {(each, key) for each, p in gone.items() for key in p.partitions}
        for generation, winners in durable.winners.items():
            named = {each for each, p in gone.items() if p.fate == "committed" and p.attempt.generation == generation}
            assert named == winners


def answer_code(message: object) -> str:
    error = error_of(message)  # type: ignore[arg-type]
    if error is not None:
        return error.code
    match message:
        case coordinator_pb2.EnlistResponse(outcome=outcome):
            return "ALREADY" if outcome == coordinator_pb2.ENLIST_OUTCOME_ALREADY_COMMITTED else "ENLISTED"
        case coordinator_pb2.EndTransactionResponse():
            return "COMMITTED"
        case coordinator_pb2.AbortAttemptResponse(outcome=outcome):
            return "COMMITTED" if outcome == COMMITTED else "ABORTED"
    return "NONE"


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=75, stateful_step_count=50, deadline=None, derandomize=True, report_multiple_bugs=False
)
