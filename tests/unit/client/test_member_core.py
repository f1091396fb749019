"""A member's core alone: the heartbeat interval of its coordinator's answers, its session, and its doubts."""

from __future__ import annotations

from minilog.groups.member import (
    JOIN,
    DoubtCoordinator,
    MemberCore,
    MemberSettings,
    MemberState,
    NewlyAssigned,
    Revoked,
    SendToCoordinator,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from tests.rules import proves

pytestmark = proves("CO.9", "CO.12")

SESSION_MS = 45_000


def answer(interval_ms: int, confirmed: int, *, is_first: bool = False) -> coordinator_pb2.MemberResponse:
    response = coordinator_pb2.MemberResponse(
        member_epoch=1, heartbeat_interval_ms=interval_ms, session_timeout_ms=SESSION_MS, confirmed_number=confirmed
    )
    if is_first:
        response.assignment.SetInParent()
    return response


def member_in_group(interval_ms: int) -> MemberCore:
    """A member whose first message, sent at 0, was answered at once. Its program polls all the time."""
    core = MemberCore(MemberSettings("report", "a"))
    core.subscribe(["orders"])
    core.poll_began(0.0)
    core.poll(0.0)
    core.stream_opened(0.0)
    core.poll(0.0)
    core.received(answer(interval_ms, 1, is_first=True), 0.0)
    core.poll(0.0)  # it carries out the assignment: message 2
    core.received(answer(interval_ms, 2), 0.0)
    assert core.state is MemberState.IN
    return core


def sent_at(core: MemberCore, times_ms: range, *, interval_ms: int) -> list[int]:
    """The times of its heartbeats. Each is confirmed at once."""
    found, number = [], 2
    for now_ms in times_ms:
        if any(isinstance(effect, SendToCoordinator) for effect in core.poll(now_ms)):
            found.append(now_ms)
            number += 1
            core.received(answer(interval_ms, number), now_ms)
    return found


def test_each_answer_may_change_the_interval() -> None:
    core = member_in_group(10_000)
    assert sent_at(core, range(1_000, 21_000, 1_000), interval_ms=4_000) == [10_000, 14_000, 18_000]
    assert core.heartbeat_ms == 4_000


def test_the_session_ends_two_heartbeats_early_by_the_interval_of_the_answer() -> None:
    core = member_in_group(10_000)
    assert core.may_hand_out(24_999.0)
    assert not core.may_hand_out(25_000.0)
    core.poll(10_000.0)
    core.received(answer(5_000, 3), 10_500.0)
    assert core.may_hand_out(10_000.0 + SESSION_MS - 10_001.0)
    assert not core.may_hand_out(10_000.0 + SESSION_MS - 10_000.0)


def test_an_answer_that_confirms_nothing_prolongs_nothing() -> None:
    core = member_in_group(10_000)
    core.poll(10_000.0)
    core.received(answer(1_000, 2), 10_500.0)
    assert not core.may_hand_out(25_000.0)


def test_a_coordinator_that_confirms_nothing_for_half_an_interval_is_doubted() -> None:
    core = member_in_group(10_000)
    doubts = [now_ms for now_ms in range(1_000, 25_000, 500) if DoubtCoordinator() in core.poll(now_ms)]
    assert doubts == [15_000, 20_000], "the heartbeat of 10 s, and well before the session is over at 25 s"
    core = member_in_group(10_000)
    core.poll(10_000.0)
    assert core.next_wake_ms() == 15_000.0
    core.received(answer(10_000, 3), 11_000.0)
    assert core.next_wake_ms() == 20_000.0, "the next heartbeat"
    assert DoubtCoordinator() not in core.poll(15_000.0)


def test_a_new_stream_begins_without_doubts() -> None:
    core = member_in_group(10_000)
    core.poll(10_000.0)
    core.stream_lost(14_000.0)
    assert DoubtCoordinator() not in core.poll(15_000.0)
    core.stream_opened(15_500.0)
    assert DoubtCoordinator() not in core.poll(16_000.0)
    assert DoubtCoordinator() in core.poll(20_500.0)


def given(core: MemberCore, epoch: int, *partitions: int) -> None:
    """The coordinator gives the member these partitions."""
    response = coordinator_pb2.MemberResponse(
        member_epoch=epoch, heartbeat_interval_ms=10_000, session_timeout_ms=SESSION_MS
    )
    response.assignment.partitions.extend(PartitionKey(bytes(16), partition).to_wire() for partition in partitions)
    core.received(response, 1.0)


def test_a_commit_has_the_epoch_that_the_program_knows_of() -> None:
    """Seed 42000017 of sharing: a member lost a partition and got it again. A late commit of its program from before
    the loss came first, under the new epoch, and set back what its successor had committed."""
    core = member_in_group(10_000)
    given(core, 2, 0)
    assert core.epoch == 1, "the program does not know yet that partition 0 is its own"
    change = core.next_change(1.0)
    assert isinstance(change, NewlyAssigned)
    core.assigned(change)
    assert core.epoch == 2, "the program's callback may commit"
    given(core, 3, 0)
    assert core.epoch == 3, "there is nothing to learn"
    given(core, 4, 1)
    revoked = core.next_change(1.0)
    assert isinstance(revoked, Revoked)
    assert core.epoch == 3, "the program has partition 0"
    core.revoked(revoked, 1.0)
    assert core.epoch == 3, "the program does not know yet that partition 1 is its own"
    change = core.next_change(1.0)
    assert isinstance(change, NewlyAssigned)
    core.assigned(change)
    assert core.epoch == 4
    core.next_change(30_000.0)
    assert core.epoch == JOIN, "the session is over"
