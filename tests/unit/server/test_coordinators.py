"""The shell of coordinators: loading, answers, first uses, and logs that are not theirs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from google.protobuf.message import Message

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidArgument,
    MinilogError,
    NotCoordinator,
    ResourceExhausted,
    RetriableError,
    UnknownProducerId,
    error_from_wire,
)
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.security.quota_keys import PRODUCER_BYTE_RATE
from minilog.v1 import common_pb2, coordinator_pb2, queue_pb2
from minilog_broker.coordinators.batches import encode_batch
from minilog_broker.coordinators.queues.settings import DEAD_LETTER_TOPIC
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.levels import QUEUES_LEVEL
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.security.principal import BROKER, USER, Principal
from minilog_broker.security.producer_proof import KEY_BYTES, ProducerKey, WriterName
from minilog_broker.server.access.caller import NO_RULES, Caller, Everybody, Rules
from minilog_broker.server.clients.controller_link import IdBlock
from minilog_broker.server.services import transaction_service
from minilog_broker.server.services.group_service import GroupService
from minilog_broker.server.services.producer_ids import ProducerIds
from minilog_broker.server.services.queue_service import QueueService
from minilog_broker.server.services.transaction_service import TransactionService
from minilog_broker.server.shells import coordinator_loading, coordinator_shell
from tests.rules import proves
from tests.unit.server.coordinating import ORDERS, TOPIC_IDS, CoordinatingBroker

pytestmark = proves("CO.6")

TAKES_AT_MOST_S = 20.0
GROUP = "report"
KEY = PartitionKey(TOPIC_IDS[GROUPS_TOPIC_NAME], coordinator_partition(GROUP))


def run(path: pathlib.Path, scenario: Callable[[CoordinatingBroker], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(TAKES_AT_MOST_S), running(path) as cluster:
            await scenario(cluster)

    asyncio.run(whole())


@contextlib.asynccontextmanager
async def running(path: pathlib.Path) -> AsyncIterator[CoordinatingBroker]:
    cluster = CoordinatingBroker(path)
    try:
        yield cluster
    finally:
        await cluster.stop()


def error_of(answer: Message) -> MinilogError | None:
    return error_from_wire(answer.error)  # type: ignore[attr-defined]


async def decided(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Asked again while the coordinator is not ready."""
    while isinstance(error_of(answer := await ask()), RetriableError):  # noqa: ASYNC110, as a client does
        await asyncio.sleep(0.001)  # a busy loop would keep the disk thread from the interpreter
    return answer


def commit_of(offset: int, group: str = GROUP) -> coordinator_pb2.CommitOffsetsRequest:
    where = common_pb2.PartitionId(topic_id=ORDERS, partition=0)
    return coordinator_pb2.CommitOffsetsRequest(
        group_id=group, offsets=[coordinator_pb2.OffsetToCommit(partition_id=where, offset=offset, leader_epoch=0)]
    )


async def commit(cluster: CoordinatingBroker, offset: int) -> None:
    service = GroupService(cluster.coordinators, cluster.image)
    assert error_of(await decided(lambda: service.CommitOffsets(commit_of(offset), Everybody()))) is None


async def committed(cluster: CoordinatingBroker) -> list[int]:
    service = GroupService(cluster.coordinators, cluster.image)
    request = coordinator_pb2.FetchOffsetsRequest(group_id=GROUP)
    answer = await decided(lambda: service.FetchOffsets(request, None))
    return [each.offset for each in answer.offsets]


def test_before_there_is_a_topic_whoever_asks_has_it_created_once(tmp_path: pathlib.Path) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        service = GroupService(cluster.coordinators, cluster.image)
        for _ in range(3):
            answer = await service.CommitOffsets(commit_of(1), Everybody())
            assert isinstance(error_of(answer), CoordinatorLoadInProgress)
        await asyncio.sleep(0)
        assert cluster.created == [GROUPS_TOPIC_NAME]
        listed = await service.ListGroups(coordinator_pb2.ListGroupsRequest(), None)
        assert (error_of(listed), list(listed.groups)) == (None, [])

    run(tmp_path, scenario)


def test_a_broker_that_does_not_lead_does_not_coordinate(tmp_path: pathlib.Path) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        answer = await GroupService(cluster.coordinators, cluster.image).CommitOffsets(commit_of(1), Everybody())
        assert isinstance(error_of(answer), NotCoordinator)

    run(tmp_path, scenario)


def test_a_coordinator_that_leads_anew_reads_what_was_committed_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_loading, "PIECE_BYTES", 1_000)

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        for offset in range(1, 31):
            await commit(cluster, offset)
        end = cluster.logs.logs[KEY].log_end_offset
        cluster.lead()
        assert await committed(cluster) == [30]
        assert cluster.logs.logs[KEY].log_end_offset > end, "a fetch is a decision too"
        listed = await decided(lambda: GroupService(cluster.coordinators, cluster.image).ListGroups(LIST, None))
        assert [each.group_id for each in listed.groups] == [GROUP]

    run(tmp_path, scenario)


def test_a_coordinator_without_memory_waits_and_its_log_is_not_blamed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_loading, "RESOURCE_PAUSE_S", 0.0)
    found, lacking = pa.ipc.read_record_batch, ["twice", "once"]

    def starved(*given: object) -> pa.RecordBatch:
        if lacking:
            raise pa.ArrowMemoryError(f"malloc failed, {lacking.pop()} more")
        return found(*given)

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        await commit(cluster, 7)
        monkeypatch.setattr(pa.ipc, "read_record_batch", starved)
        cluster.lead()
        assert await committed(cluster) == [7]
        assert lacking == []

    run(tmp_path, scenario)


LIST = coordinator_pb2.ListGroupsRequest()


def test_a_caller_that_goes_away_is_not_waited_for_and_its_commit_stands(tmp_path: pathlib.Path) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        await commit(cluster, 1)
        call = asyncio.ensure_future(
            GroupService(cluster.coordinators, cluster.image).CommitOffsets(commit_of(2), Everybody())
        )
        await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        assert await committed(cluster) == [2]

    run(tmp_path, scenario)


def test_more_calls_than_may_wait_are_refused_for_a_while(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_shell.CoordinatorShell, "max_waiting", 2)

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        await commit(cluster, 1)
        service = GroupService(cluster.coordinators, cluster.image)
        answers = await asyncio.gather(
            *(service.CommitOffsets(commit_of(offset), Everybody()) for offset in range(2, 6))
        )
        refused = [isinstance(error_of(each), CoordinatorLoadInProgress) for each in answers]
        assert refused == [False, False, True, True]
        await commit(cluster, 9)

    run(tmp_path, scenario)


def test_a_log_with_what_is_no_coordinators_takes_the_replica_offline_and_not_the_broker(
    tmp_path: pathlib.Path,
) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        await commit(cluster, 1)
        log = cluster.logs.logs[KEY]
        foreign = encode_batch(KEY, [LogRecord(b"\xff no key of ours", b"value")], 0)
        cluster.replicas.manager.append_own(KEY, 0, log.log_end_offset, foreign)
        cluster.replicas.run()
        cluster.lead()
        service = GroupService(cluster.coordinators, cluster.image)
        await cluster.went_offline.wait()
        assert list(cluster.replicas.offline) == [KEY]
        assert isinstance(error_of(await service.CommitOffsets(commit_of(2), Everybody())), NotCoordinator)

    run(tmp_path, scenario)


def given_by(cluster: CoordinatingBroker, allocate: Callable[[], Awaitable[range]]) -> ProducerIds:
    """Ids from blocks of these; each is in the image when it is asked for."""

    async def block() -> IdBlock:
        return IdBlock(await allocate(), cluster.image.end_offset)

    async def replayed(end_offset: int) -> None: ...

    return ProducerIds(cluster.image, block, replayed)


def test_each_enlisting_has_a_producer_id_of_its_own_and_a_call_that_cannot_be_has_none(
    tmp_path: pathlib.Path,
) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        ids = itertools.count(100, 2)

        async def allocate() -> range:
            first = next(ids)
            return range(first, first + 2)

        service = TransactionService(cluster.coordinators, given_by(cluster, allocate))
        request = coordinator_pb2.EnlistRequest(transactional_id="job", run_id=b"run", attempt_id=b"attempt")
        found = [await decided(lambda: service.Enlist(request, Everybody())) for _ in range(3)]
        given = [each.producer_id for each in found]
        assert len(set(given)) == 3
        assert given == sorted(given)
        before = next(ids)
        nameless = await service.Enlist(coordinator_pb2.EnlistRequest(), Everybody())
        assert isinstance(error_of(nameless), InvalidArgument)
        assert next(ids) == before + 2

    run(tmp_path, scenario)


class OneQuota:
    """All is allowed, and of one key there is so much."""

    def __init__(self, key: str, most: int) -> None:
        self._key, self._most = key, most
        self.is_allowed, self.is_allowed_any = NO_RULES.is_allowed, NO_RULES.is_allowed_any
        self.denied, self.tell, self.charge = NO_RULES.denied, NO_RULES.tell, NO_RULES.charge
        self.give_back, self.owed_ms, self.cost = NO_RULES.give_back, NO_RULES.owed_ms, NO_RULES.cost

    def quota(self, principal: Principal, key: str) -> int | None:
        return self._most if key == self._key else None


def test_a_user_at_the_limit_of_open_transactions_waits_until_one_has_ended(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others do not wait; nor does a second writer of what is open. At the end of the wait it is refused."""
    monkeypatch.setattr(transaction_service, "LOOK_S", 0.001)
    monkeypatch.setattr(transaction_service, "ROOM_WAIT_S", 0.05)

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        ids = itertools.count(100)

        async def allocate() -> range:
            return range(first := next(ids), first + 1)

        service = TransactionService(cluster.coordinators, given_by(cluster, allocate))
        alice = Caller(Principal(USER, "alice"), "", "", OneQuota("open_transactions", 1))
        bob = Caller(Principal(USER, "bob"), "", "", OneQuota("open_transactions", 1))

        def enlisting(name: str) -> coordinator_pb2.EnlistRequest:
            return coordinator_pb2.EnlistRequest(transactional_id=name, run_id=b"run", attempt_id=b"attempt")

        one = await decided(lambda: service.Enlist(enlisting("one"), alice))
        assert error_of(one) is None
        assert error_of(await decided(lambda: service.Enlist(enlisting("one"), alice))) is None
        assert error_of(await decided(lambda: service.Enlist(enlisting("others"), bob))) is None
        refused = error_of(await service.Enlist(enlisting("two"), alice))
        assert isinstance(refused, RetriableError)
        assert "User:alice: 1 transactions are open, and 1 are allowed (open_transactions)" in str(refused)
        monkeypatch.setattr(transaction_service, "ROOM_WAIT_S", TAKES_AT_MOST_S)
        monkeypatch.setattr(transaction_service, "MOST_WAITING", 0)
        assert isinstance(error_of(await service.Enlist(enlisting("two"), alice)), RetriableError), "too many wait"
        monkeypatch.setattr(transaction_service, "MOST_WAITING", 1)
        waiting = asyncio.ensure_future(service.Enlist(enlisting("two"), alice))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        nothing = coordinator_pb2.KeepAliveRequest(transactional_id="x" * 100_000, producer_id=1)
        assert error_of(await service.KeepAlive(nothing, bob)) is not None
        assert len(service._open) == 2, "of what is not open nothing is kept, whatever it is called"
        command = coordinator_pb2.AbortTransactionRequest(transactional_id="one")
        assert error_of(await service.AbortTransaction(command, alice)) is None
        assert error_of(await waiting) is None

    run(tmp_path, scenario)


def test_a_transaction_stays_its_writers_when_the_broker_of_a_leader_registers_its_partitions(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between brokers the caller is a broker, and not the one whose transaction it is."""
    monkeypatch.setattr(transaction_service, "ROOM_WAIT_S", 0.0)

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        ids = itertools.count(100)

        async def allocate() -> range:
            return range(first := next(ids), first + 1)

        service = TransactionService(cluster.coordinators, given_by(cluster, allocate))
        alice = Caller(Principal(USER, "alice"), "", "", OneQuota("open_transactions", 1))
        leaders_broker = Caller(Principal(BROKER, "cluster:2"), "", "", NO_RULES)

        def enlisting(name: str) -> coordinator_pb2.EnlistRequest:
            return coordinator_pb2.EnlistRequest(transactional_id=name, run_id=b"run", attempt_id=b"attempt")

        part = await decided(lambda: service.Enlist(enlisting("one"), alice))
        register = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id="one",
            producer_id=part.producer_id,
            partitions=[common_pb2.PartitionId(topic_id=ORDERS, partition=0)],
            coordinator_epoch=part.coordinator_epoch,
        )
        assert error_of(await service.RegisterPartitions(register, leaders_broker)) is None
        refused = error_of(await service.Enlist(enlisting("two"), alice))
        assert isinstance(refused, ResourceExhausted)
        assert "1 transactions are open, and 1 are allowed" in str(refused)

    run(tmp_path, scenario)


def test_offsets_are_committed_in_a_transaction_by_whom_its_producer_id_was_given_to(tmp_path: pathlib.Path) -> None:
    """Else the coordinator is asked for another's producer, and refuses the commits of that one, which wait with it."""

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        cluster.image.producer_key = key = ProducerKey(b"k" * KEY_BYTES, 0)
        service = GroupService(cluster.coordinators, cluster.image)
        alice, mallory = (Caller(Principal(USER, name), "", "", NO_RULES) for name in ("alice", "mallory"))
        request = commit_of(1)
        request.transaction.transactional_id, request.transaction.producer_id = "mallorys", 7
        name = WriterName(7, 0, "job")
        for proof in (
            b"",
            key.proof(name, str(alice.principal)),
            key.proof(replace(name, producer_id=8), "User:mallory"),
        ):
            request.transaction.producer_proof = proof
            assert isinstance(error_of(await service.CommitOffsets(request, mallory)), UnknownProducerId)
        request.transaction.transactional_id = "job"
        request.transaction.producer_proof = key.proof(name, str(alice.principal))
        await commit(cluster, 1)
        waiting = asyncio.ensure_future(service.CommitOffsets(request, alice))
        done, _ = await asyncio.wait([waiting], timeout=0.01)
        assert not done, "the coordinator of the transaction is asked"
        waiting.cancel()

    run(tmp_path, scenario)


def test_markers_that_nobody_has_written_are_not_visible(tmp_path: pathlib.Path) -> None:
    """The leader does not answer: that is no yes."""

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        away = PartitionState(PartitionKey(ORDERS, 0), "orders", (2,), (2,), (), (), 2, 0, 0, 11)
        cluster.image.partitions[away.key] = away

        async def allocate() -> range:
            return range(100, 102)

        service = TransactionService(cluster.coordinators, given_by(cluster, allocate))
        enlist = coordinator_pb2.EnlistRequest(transactional_id="job", run_id=b"run", attempt_id=b"attempt")
        part = await decided(lambda: service.Enlist(enlist, Everybody()))
        written = common_pb2.PartitionId(topic_id=ORDERS, partition=0)
        register = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id="job",
            producer_id=part.producer_id,
            partitions=[written],
            coordinator_epoch=part.coordinator_epoch,
        )
        assert error_of(await service.RegisterPartitions(register, Everybody())) is None
        last = coordinator_pb2.WrittenPartition(partition_id=written, last_sequence=0)
        end = coordinator_pb2.EndTransactionRequest(
            transactional_id="job",
            generation=part.generation,
            attempt_id=b"attempt",
            run_id=b"run",
            winners=[coordinator_pb2.Winner(producer_id=part.producer_id, partitions=[last])],
            timeout_ms=1_000,
            coordinator_epoch=part.coordinator_epoch,
        )
        ended = await decided(lambda: service.EndTransaction(end, None))
        assert error_of(ended) is None
        assert ended.outcome == coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED_BECOMING_VISIBLE

    run(tmp_path, scenario)


class ChargingRules(type(NO_RULES)):  # type: ignore[misc]
    """All is allowed, and charges are noted."""

    def __init__(self) -> None:
        self.charged: list[tuple[Any, ...]] = []

    def charge(self, *arguments: object) -> None:
        self.charged.append(arguments)


def test_a_call_of_a_queue_is_charged_for_what_is_written_also_where_its_caller_goes_away(
    tmp_path: pathlib.Path,
) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        service, rules = QueueService(cluster.coordinators, cluster.image), ChargingRules()
        alice = Caller(Principal(USER, "alice"), "", "", cast("Rules", rules))
        request = queue_pb2.RenewLeasesRequest(queue="jobs")
        assert error_of(await decided(lambda: service.RenewLeases(request, alice))) is None
        call = asyncio.ensure_future(service.RenewLeases(request, alice))
        await asyncio.sleep(0)
        call.cancel()
        record = queue_pb2.RenewLeasesRequest(queue="jobs").ByteSize()
        assert [charge[:2] for charge in rules.charged] == 2 * [(alice.principal, PRODUCER_BYTE_RATE)]
        assert all(record <= charge[2] < record + 20 for charge in rules.charged)
        await decided(lambda: service.RenewLeases(request, Everybody()))
        assert len(rules.charged) == 2

    run(tmp_path, scenario)


def test_a_queue_finds_its_dead_letter_topic_after_the_image_is_that_of_a_snapshot(tmp_path: pathlib.Path) -> None:
    """Once: after a snapshot no topic had a name for queues, so each redrive was refused."""

    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        cluster.level.reach(QUEUES_LEVEL)
        service = QueueService(cluster.coordinators, cluster.image)
        settings = {DEAD_LETTER_TOPIC: "orders"}
        alter = queue_pb2.AlterQueueRequest(queue="jobs", set_configs=settings)
        assert error_of(await decided(lambda: service.AlterQueue(alter, Everybody()))) is None
        before = cluster.image.copy()
        cluster.image.topic_ids.clear()
        cluster.image.become(before)
        letters = common_pb2.PartitionId(topic_id=ORDERS)
        request = queue_pb2.RedriveRequest(queue="jobs", letters_partition_id=letters, next_offset=3)
        answer = await decided(lambda: service.Redrive(request, Everybody()))
        assert (error_of(answer), answer.next_offset) == (None, 3)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "partition", [common_pb2.PartitionId(topic_id=b"short"), common_pb2.PartitionId(topic_id=ORDERS, partition=-1)]
)
def test_partitions_that_cannot_be_are_refused_with_words(
    tmp_path: pathlib.Path, partition: common_pb2.PartitionId
) -> None:
    async def scenario(cluster: CoordinatingBroker) -> None:
        cluster.make_topics()
        cluster.lead()
        service = GroupService(cluster.coordinators, cluster.image)
        request = coordinator_pb2.FetchOffsetsRequest(group_id=GROUP, partitions=[partition])
        error = error_of(await service.FetchOffsets(request, None))
        assert isinstance(error, InvalidArgument)
        assert "a topic id has 16 bytes" in str(error)

    run(tmp_path, scenario)
