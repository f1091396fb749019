"""The coordinators of transactions, of groups and of queues, and the markers of transactions, under requests that
nobody of ours would send: each is answered, once, with an error or what it did.

Nothing is raised but MinilogError, and what is written can be read: another coordinator loads it to the same state.
Afterwards an honest writer commits a transaction, and an honest consumer its offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import InvalidArgument
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.coordinators.coordinator_effects import MemberAnswer, Moment
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.members import SETTLING_PAUSE_MS
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.replication.replica_effects import EndMarker
from minilog_broker.server.services.coordinator_checks import (
    check_commit,
    check_end,
    check_group,
    check_group_partitions,
    check_lease,
    check_queue,
    check_redrive,
    check_registration,
    check_settlements,
    check_transaction,
)
from tests.rules import proves
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, error_of
from tests.unit.coordinators.cluster import CoordinatorCluster as CoordinatorCluster
from tests.unit.coordinators.grouping import G, Grouping
from tests.unit.coordinators.queueing import Q, Queueing, offsets
from tests.unit.coordinators.transacting import ORDERS_0, ORDERS_1, T, TransactionCalls, winner
from tests.unit.fuzz.messages import Plausible, fuzzing, messages
from tests.unit.replication.cluster import ReplicaCluster, batch
from tests.unit.replication.judging import ReplicaJudges

pytestmark = proves("DK.22")

MAX_BATCHES = 100
OPEN_PRODUCER, PENDING_PRODUCER = 100, 500
PLAUSIBLE: Plausible = {
    "transactional_id": (T, "program"),
    "group_id": (G,),
    "generation": (0, 1),
    "attempt_id": (b"a", b"b"),
    "run_id": (b"r",),
    "producer_id": (OPEN_PRODUCER, PENDING_PRODUCER, OPEN_PRODUCER + 1),
    "producer_ids": (OPEN_PRODUCER, OPEN_PRODUCER + 1),
    "topic_id": (ORDERS, PAYMENTS),
    "partition": (0, 1),
    "last_sequence": (0,),
    "sequence": (0, 1),
    "offset": (0, 5),
    "leader_epoch": (0,),
    "coordinator_epoch": (0,),
    "committed": (True,),
    "timeout_ms": (1_000,),
    "metadata": ("m",),
    "member_id": ("a",),
    "member_epoch": (0, 1),
    "topics": ("orders",),
    "assignor": ("uniform",),
    "queue": (Q,),
    "topic_ids": (ORDERS,),
    "max_records": (1, 3),
    "max_wait_ms": (0, 1_000),
    "lease_id": (3, 4),
    "first_offset": (0, 1, 2),
    "last_offset": (2, 3),
    "verdict": (1, 2, 3),
}
Ask = Callable[[Any, int, Any], None]
"""(world, ticket, request): what the service checks, and then what it asks its core."""


def asked(call: Callable[..., None], check: Callable[[Any], None] = lambda _: None, *, timed: bool = True) -> Ask:
    """A call of a core, behind what its service checks."""

    def ask(world: Any, ticket: int, request: Any) -> None:
        check(request)
        call(world.coordinator, ticket, request, *((world.now,) if timed else ()))

    return ask


def _enlist(core: TransactionCoordinator, ticket: int, request: coordinator_pb2.EnlistRequest, now: Moment) -> None:
    core.enlist(ticket, request, OPEN_PRODUCER + 50 + ticket, now)


def _member(cluster: Grouping, ticket: int, request: Any) -> None:
    """Its answers come on its stream: those are taken for the answer of the ticket. A heartbeat that changes nothing
    has its answer at the coordinator's next look."""
    check_group(request)
    cluster.coordinator.member(ticket, request, Speaker("host"), cluster.now)
    cluster.commit()
    told = [effect.message for effect in cluster.take(MemberAnswer) if effect.stream == ticket]
    if not told and cluster.waits(ticket):
        cluster.now_ms = cluster.coordinator.next_tick_ms
        cluster.coordinator.tick(cluster.now)
        cluster.commit()
        told = [effect.message for effect in cluster.take(MemberAnswer) if effect.stream == ticket]
    if told and ticket not in cluster.answers:
        cluster.answers[ticket] = told[0]
    cluster.coordinator.member_stream_ended(ticket)


TRANSACTIONS: dict[type[Message], Ask] = {
    coordinator_pb2.EnlistRequest: asked(_enlist, check_transaction),
    coordinator_pb2.RegisterPartitionsRequest: asked(TransactionCoordinator.register, check_registration),
    coordinator_pb2.KeepAliveRequest: asked(TransactionCoordinator.keep_alive, check_transaction),
    coordinator_pb2.EndTransactionRequest: asked(TransactionCoordinator.end, check_end),
    coordinator_pb2.AbortAttemptRequest: asked(TransactionCoordinator.abort, check_transaction),
    coordinator_pb2.DescribeTransactionRequest: asked(TransactionCoordinator.describe, check_transaction),
    coordinator_pb2.AbortTransactionRequest: asked(TransactionCoordinator.abort_by_command, check_transaction),
    coordinator_pb2.ForgetTransactionRequest: asked(TransactionCoordinator.forget, check_transaction, timed=False),
    coordinator_pb2.ListTransactionsRequest: asked(TransactionCoordinator.list, timed=False),
}
GROUPS: dict[type[Message], Ask] = {
    coordinator_pb2.CommitOffsetsRequest: asked(GroupCoordinator.commit, check_commit),
    coordinator_pb2.FetchOffsetsRequest: asked(GroupCoordinator.fetch, check_group_partitions, timed=False),
    coordinator_pb2.DescribeGroupRequest: asked(GroupCoordinator.describe, check_group),
    coordinator_pb2.RemoveMemberRequest: asked(GroupCoordinator.remove_member, check_group),
    coordinator_pb2.MemberRequest: _member,
    coordinator_pb2.DeleteGroupRequest: asked(GroupCoordinator.delete, check_group_partitions, timed=False),
    coordinator_pb2.ListGroupsRequest: asked(GroupCoordinator.list, timed=False),
    coordinator_pb2.WriteMarkersRequest: asked(GroupCoordinator.write_markers),
}
QUEUES: dict[type[Message], Ask] = {
    queue_pb2.LeaseRequest: asked(QueueCoordinator.lease, check_lease),
    queue_pb2.RenewLeasesRequest: asked(QueueCoordinator.renew, check_queue),
    queue_pb2.SettleRequest: asked(QueueCoordinator.settle, check_settlements),
    queue_pb2.RedriveRequest: asked(QueueCoordinator.redrive, check_redrive),
    queue_pb2.DescribeQueueRequest: asked(QueueCoordinator.describe, check_queue),
    queue_pb2.AlterQueueRequest: asked(QueueCoordinator.alter, check_queue),
    queue_pb2.DeleteQueueRequest: asked(QueueCoordinator.delete, check_queue, timed=False),
    queue_pb2.ListQueuesRequest: asked(QueueCoordinator.list, timed=False),
}


def transacting() -> TransactionCalls:
    """A transaction is open, its writer registered in a partition."""
    cluster = TransactionCalls()
    assert cluster.writer(ORDERS_0) == OPEN_PRODUCER
    return cluster


def grouping() -> Grouping:
    """An offset is committed, and one is pending in a transaction."""
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5})
    cluster.commit_offsets({ORDERS_1: 7}, producer_id=PENDING_PRODUCER)
    return cluster


def queueing() -> Queueing:
    """Records are leased, some of them settle in a transaction, and one is released."""
    world = Queueing()
    world.has(8)
    leased = world.lease(4)
    assert world.settle_in_transaction([world.settlement(leased, 0, 0)], producer_id=PENDING_PRODUCER) is None
    assert world.settle(leased, 1, 1, queue_pb2.VERDICT_RELEASE, delay_ms=500) is None
    return world


def answered(cluster: CoordinatorCluster[Any], ask: Ask, request: Message) -> None:
    """Once, with an error or what it did; what waits for a time is answered when that is over."""
    ticket, before = cluster.ticket(), len(cluster.batches)
    try:
        ask(cluster, ticket, request)
    except InvalidArgument:
        assert len(cluster.batches) == before, "what was refused was written"
        return
    cluster.collect()
    if isinstance(cluster, Grouping):
        cluster.register_producers()
    if isinstance(cluster, Queueing):
        cluster.register_producers()
        cluster.report()
        cluster.pass_ms(120_000.0)
    cluster.commit()
    if isinstance(cluster, TransactionCalls):
        cluster.write_markers()
        cluster.wait(120_000.0)
        cluster.write_markers()
    assert not cluster.waits(ticket)
    cluster.answers.pop(ticket)
    assert len(cluster.batches) - before < MAX_BATCHES, "work without bound"


def loads_again(cluster: CoordinatorCluster[Any]) -> None:
    cluster.commit()
    if isinstance(cluster, Grouping):  # a group that changes twice in a short time has its second target later
        cluster.now_ms += SETTLING_PAUSE_MS
        cluster.coordinator.tick(cluster.now)
        cluster.commit()
    state = cluster.coordinator.committed_state()
    cluster.fail_over()
    assert cluster.coordinator.committed_state() == state


def each_is_answered(kind: type[Message], ask: Ask, world: Callable[[], Any], goes_on: Callable[[Any], None]) -> None:
    """Up to four requests of this kind to a new world, after which honest programs go on."""

    @fuzzing(60)
    @given(st.lists(messages(kind, PLAUSIBLE), min_size=1, max_size=4))
    def answered_and_harmless(requests: list[Message]) -> None:
        cluster = world()
        for request in requests:
            answered(cluster, ask, request)
        loads_again(cluster)
        goes_on(cluster)

    answered_and_harmless()


@pytest.mark.parametrize("kind", TRANSACTIONS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_transactions(kind: type[Message]) -> None:
    def goes_on(cluster: TransactionCalls) -> None:
        producer_id = cluster.writer(ORDERS_1, name="afterwards")
        assert error_of(cluster.end([winner(producer_id, {ORDERS_1: 0})], name="afterwards")) is None

    each_is_answered(kind, TRANSACTIONS[kind], transacting, goes_on)


@pytest.mark.parametrize("kind", GROUPS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_groups(kind: type[Message]) -> None:
    def goes_on(cluster: Grouping) -> None:
        assert cluster.commit_offsets({ORDERS_0: 9}, group="afterwards") is None
        assert cluster.fetched(group="afterwards") == {ORDERS_0: 9}

    each_is_answered(kind, GROUPS[kind], grouping, goes_on)


@pytest.mark.parametrize("kind", QUEUES, ids=lambda kind: kind.DESCRIPTOR.name)
def test_queues(kind: type[Message]) -> None:
    def goes_on(world: Queueing) -> None:
        leased = world.lease(1, queue="afterwards")
        assert offsets(leased) == [0]
        assert not world.settle_all([world.settlement(leased, 0, 0)], queue="afterwards").refused

    each_is_answered(kind, QUEUES[kind], queueing, goes_on)


@pytest.mark.dear("it tries many drawn messages")
@fuzzing(25)
@given(st.lists(messages(coordinator_pb2.WriteMarkersRequest, PLAUSIBLE), min_size=1, max_size=4))
def test_markers_for_a_partition_of_a_topic(requests: list[coordinator_pb2.WriteMarkersRequest]) -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    judges = ReplicaJudges(cluster)
    for request in requests:
        markers = [EndMarker(each.producer_id, each.committed, each.last_sequence) for each in request.markers]
        ticket = cluster.write_markers(1, *markers)
        cluster.advance(60_000.0)
        assert ticket in cluster[1].marked
    judges.check()
    ticket = cluster.produce(1, data=batch())
    cluster.settle()
    assert cluster[1].answers[ticket].error is None
