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
from minilog_broker.coordinators.coordinator_effects import MemberAnswer
from minilog_broker.coordinators.groups.members import SETTLING_PAUSE_MS
from minilog_broker.coordinators.groups.presences import Speaker
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


def transaction(
    call: Callable[..., None], check: Callable[[Any], None] = check_transaction, *, timed: bool = True
) -> Ask:
    def ask(cluster: TransactionCalls, ticket: int, request: Any) -> None:
        check(request)
        call(cluster.coordinator, ticket, request, *((cluster.now,) if timed else ()))

    return ask


def group(call: Callable[..., None], check: Callable[[Any], None] = check_group, *, timed: bool = False) -> Ask:
    def ask(cluster: Grouping, ticket: int, request: Any) -> None:
        check(request)
        call(cluster.coordinator, ticket, request, *((cluster.now,) if timed else ()))

    return ask


def _member(cluster: Grouping, ticket: int, request: Any) -> None:
    """Its answers come on its stream: those are taken for the answer of the ticket."""
    check_group(request)
    cluster.coordinator.member(ticket, request, Speaker("host"), cluster.now)
    cluster.commit()
    told = [effect.message for effect in cluster.take(MemberAnswer) if effect.stream == ticket]
    if told and ticket not in cluster.answers:
        cluster.answers[ticket] = told[0]
    cluster.coordinator.member_stream_ended(ticket)


TRANSACTIONS: dict[type[Message], Ask] = {
    coordinator_pb2.EnlistRequest: transaction(
        lambda core, ticket, request, now: core.enlist(ticket, request, OPEN_PRODUCER + 50 + ticket, now)
    ),
    coordinator_pb2.RegisterPartitionsRequest: transaction(
        lambda core, ticket, request, now: core.register(ticket, request, now), check_registration
    ),
    coordinator_pb2.KeepAliveRequest: transaction(
        lambda core, ticket, request, now: core.keep_alive(ticket, request, now)
    ),
    coordinator_pb2.EndTransactionRequest: transaction(
        lambda core, ticket, request, now: core.end(ticket, request, now), check_end
    ),
    coordinator_pb2.AbortAttemptRequest: transaction(
        lambda core, ticket, request, now: core.abort(ticket, request, now)
    ),
    coordinator_pb2.DescribeTransactionRequest: transaction(
        lambda core, ticket, request, now: core.describe(ticket, request, now)
    ),
    coordinator_pb2.AbortTransactionRequest: transaction(
        lambda core, ticket, request, now: core.abort_by_command(ticket, request, now)
    ),
    coordinator_pb2.ForgetTransactionRequest: transaction(
        lambda core, ticket, request: core.forget(ticket, request), timed=False
    ),
    coordinator_pb2.ListTransactionsRequest: lambda cluster, ticket, request: cluster.coordinator.list(ticket, request),
}
GROUPS: dict[type[Message], Ask] = {
    coordinator_pb2.CommitOffsetsRequest: group(
        lambda core, ticket, request, now: core.commit(ticket, request, now), check_commit, timed=True
    ),
    coordinator_pb2.FetchOffsetsRequest: group(
        lambda core, ticket, request: core.fetch(ticket, request), check_group_partitions
    ),
    coordinator_pb2.DescribeGroupRequest: group(
        lambda core, ticket, request, now: core.describe(ticket, request, now), timed=True
    ),
    coordinator_pb2.RemoveMemberRequest: group(
        lambda core, ticket, request, now: core.remove_member(ticket, request, now), timed=True
    ),
    coordinator_pb2.MemberRequest: _member,
    coordinator_pb2.DeleteGroupRequest: group(
        lambda core, ticket, request: core.delete(ticket, request), check_group_partitions
    ),
    coordinator_pb2.ListGroupsRequest: lambda cluster, ticket, request: cluster.coordinator.list(ticket, request),
    coordinator_pb2.WriteMarkersRequest: lambda cluster, ticket, request: cluster.coordinator.write_markers(
        ticket, request, cluster.now
    ),
}


def queue(call: Callable[..., None], check: Callable[[Any], None] = check_queue, *, timed: bool = True) -> Ask:
    def ask(world: Queueing, ticket: int, request: Any) -> None:
        check(request)
        call(world.coordinator, ticket, request, *((world.now,) if timed else ()))

    return ask


QUEUES: dict[type[Message], Ask] = {
    queue_pb2.LeaseRequest: queue(lambda core, ticket, request, now: core.lease(ticket, request, now), check_lease),
    queue_pb2.RenewLeasesRequest: queue(lambda core, ticket, request, now: core.renew(ticket, request, now)),
    queue_pb2.SettleRequest: queue(
        lambda core, ticket, request, now: core.settle(ticket, request, now), check_settlements
    ),
    queue_pb2.RedriveRequest: queue(
        lambda core, ticket, request, now: core.redrive(ticket, request, now), check_redrive
    ),
    queue_pb2.DescribeQueueRequest: queue(lambda core, ticket, request, now: core.describe(ticket, request, now)),
    queue_pb2.AlterQueueRequest: queue(lambda core, ticket, request, now: core.alter(ticket, request, now)),
    queue_pb2.DeleteQueueRequest: queue(lambda core, ticket, request: core.delete(ticket, request), timed=False),
    queue_pb2.ListQueuesRequest: lambda world, ticket, request: world.coordinator.list(ticket, request),
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


@pytest.mark.parametrize("kind", TRANSACTIONS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_transactions(kind: type[Message]) -> None:
    @fuzzing(60)
    @given(st.lists(messages(kind, PLAUSIBLE), min_size=1, max_size=4))
    def answered_and_harmless(requests: list[Message]) -> None:
        cluster = transacting()
        for request in requests:
            answered(cluster, TRANSACTIONS[kind], request)
        loads_again(cluster)
        producer_id = cluster.writer(ORDERS_1, name="afterwards")
        assert error_of(cluster.end([winner(producer_id, {ORDERS_1: 0})], name="afterwards")) is None

    answered_and_harmless()


@pytest.mark.parametrize("kind", GROUPS, ids=lambda kind: kind.DESCRIPTOR.name)
def test_groups(kind: type[Message]) -> None:
    @fuzzing(60)
    @given(st.lists(messages(kind, PLAUSIBLE), min_size=1, max_size=4))
    def answered_and_harmless(requests: list[Message]) -> None:
        cluster = grouping()
        for request in requests:
            answered(cluster, GROUPS[kind], request)
        loads_again(cluster)
        assert cluster.commit_offsets({ORDERS_0: 9}, group="afterwards") is None
        assert cluster.fetched(group="afterwards") == {ORDERS_0: 9}

    answered_and_harmless()


@pytest.mark.parametrize("kind", QUEUES, ids=lambda kind: kind.DESCRIPTOR.name)
def test_queues(kind: type[Message]) -> None:
    @fuzzing(60)
    @given(st.lists(messages(kind, PLAUSIBLE), min_size=1, max_size=4))
    def answered_and_harmless(requests: list[Message]) -> None:
        world = queueing()
        for request in requests:
            answered(world, QUEUES[kind], request)
        loads_again(world)
        leased = world.lease(1, queue="afterwards")
        assert offsets(leased) == [0]
        assert not world.settle_all([world.settlement(leased, 0, 0)], queue="afterwards").refused

    answered_and_harmless()


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
