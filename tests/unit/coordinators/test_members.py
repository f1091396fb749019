"""Members of a group and its coordinator: who has which partitions, when one changes hands, and who may commit."""

from __future__ import annotations

import pytest

from minilog.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    LevelNotReached,
    MinilogError,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    error_from_wire,
)
from minilog.groups.member import Lost, MemberState, NewlyAssigned, Revoked
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.groups.members import LEAVE, LEAVE_FOR_A_WHILE
from minilog_broker.coordinators.groups.presences import Speaker
from tests.rules import proves
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.grouping import SETTINGS, G
from tests.unit.coordinators.membering import MAX_POLL_INTERVAL_MS, Link, Membering, SimulatedMember, orders
from tests.unit.coordinators.transacting import partition_id

pytestmark = proves("CO.8")

ALL = orders(*range(6))


def commit(
    world: Membering,
    offsets: dict[PartitionKey, int],
    member: SimulatedMember | None = None,
    *,
    epoch: int | None = None,
    member_id: str = "",
    principal: str = "",
    transactional: bool = False,
) -> MinilogError | None:
    """As this member, in the epoch that it has or another; without one, as a program that is no member."""
    request = coordinator_pb2.CommitOffsetsRequest(
        group_id=G,
        offsets=[
            coordinator_pb2.OffsetToCommit(partition_id=partition_id(key), offset=offset)
            for key, offset in offsets.items()
        ],
    )
    if member is not None:
        request.member.member_id = member.core.member_id
        request.member.member_epoch = member.core.epoch if epoch is None else epoch
    if member_id:
        request.member.member_id, request.member.member_epoch = member_id, epoch or 0
    if transactional:
        request.transaction.transactional_id, request.transaction.producer_id = "t", 7
    ticket = world.ticket()
    world.coordinator.commit(ticket, request, world.now, principal)
    world.register_producers()
    world.commit()
    return error_of(world.answer(ticket, coordinator_pb2.CommitOffsetsResponse))


def refusal(world: Membering, request: coordinator_pb2.MemberRequest, principal: str = "") -> MinilogError | None:
    """What the first message of a stream is answered."""
    link = Link(world.coordinator)
    world.links[link] = SimulatedMember(world, "stranger")
    world.coordinator.member(link, request, Speaker("host", principal), world.now)
    world.commit()
    world.collect()
    return error_from_wire(link.responses.popleft().error) if link.responses else None


def joining(member_id: str = "stranger", **subscription: object) -> coordinator_pb2.MemberRequest:
    return coordinator_pb2.MemberRequest(
        group_id=G,
        member_id=member_id,
        number=1,
        subscription=coordinator_pb2.MemberSubscription(topics=["orders"], **subscription),  # type: ignore[arg-type]
    )


def describe(world: Membering) -> coordinator_pb2.DescribeGroupResponse:
    ticket = world.ticket()
    world.coordinator.describe(ticket, coordinator_pb2.DescribeGroupRequest(group_id=G), world.now)
    world.commit()
    return world.answer(ticket, coordinator_pb2.DescribeGroupResponse)


class TestJoining:
    def test_the_first_member_has_all_partitions(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        assert member.told == [NewlyAssigned(ALL)]
        assert member.hands_out() == ALL

    def test_a_second_member_gets_its_share_when_the_first_has_given_it_back(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(300.0)
        second = world.member("b")
        world.settle(500.0, polling=False)
        second.poll()
        world.settle(500.0, polling=False)
        assert len(first.core.withheld()) == 3, "it reads them no more"
        assert second.holds() == frozenset(), "and has not given them back"
        world.settle(500.0)
        assert isinstance(first.told[-1], Revoked)
        assert (len(first.hands_out()), len(second.hands_out())) == (3, 3)
        assert first.hands_out() | second.hands_out() == ALL

    def test_a_member_that_subscribes_to_another_topic_gets_that(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        member.core.subscribe(["payments"])
        world.settle(600.0)
        assert {key.topic_id for key in member.hands_out()} == {world.seen.ids["payments"]}

    def test_new_partitions_of_a_topic_are_read(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        world.seen.counts["orders"] = 8
        world.coordinator.topics_changed(world.now)
        world.settle(300.0)
        assert member.hands_out() == orders(*range(8))

    def test_what_most_members_ask_for_decides_the_assignor(self) -> None:
        world = Membering()
        link = Link(world.coordinator)
        world.coordinator.member(link, joining("a", assignor="range"), Speaker("host"), world.now)
        world.links[link] = SimulatedMember(world, "a")
        world.settle(300.0)
        assert describe(world).assignor == "range"

    def test_one_member_more_than_the_group_may_have_is_refused(self) -> None:
        world = Membering()
        for number in range(SETTINGS.max_size):
            world.member(f"m{number}")
        world.settle(500.0)
        error = refusal(world, joining())
        assert isinstance(error, GroupMaxSizeReached)
        assert "has 5 members" in str(error)

    def test_an_unknown_assignor_is_refused_with_those_that_there_are(self) -> None:
        error = refusal(Membering(), joining(assignor="clever"))
        assert isinstance(error, UnsupportedAssignor)
        assert "uniform, range" in str(error)

    def test_below_the_level_of_members_nobody_joins(self) -> None:
        world = Membering()
        world.allows_members = False
        assert isinstance(refusal(world, joining()), LevelNotReached)
        assert world.log_end == 0, "nothing of it was written"

    def test_four_thousand_topics_may_be_subscribed_to(self) -> None:
        world = Membering()
        member = world.member("a", "orders", *(f"absent-{number}" for number in range(3_999)))
        world.settle(300.0)
        assert member.hands_out() == ALL

    def test_a_member_that_says_that_it_has_what_it_was_never_given_is_fenced(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        epoch = member.core.epoch
        request = coordinator_pb2.MemberRequest(group_id=G, member_id="a", member_epoch=epoch, number=1)
        request.owned_partitions.append(partition_id(PartitionKey(world.seen.ids["payments"], 0)))
        error = refusal(world, request)
        assert isinstance(error, FencedMemberEpoch)
        assert "never given" in str(error)

    def test_a_member_of_a_later_epoch_than_its_coordinator_knows_is_fenced(self) -> None:
        world = Membering()
        world.member("a")
        world.settle(300.0)
        request = coordinator_pb2.MemberRequest(group_id=G, member_id="a", member_epoch=99, number=1)
        assert isinstance(refusal(world, request), FencedMemberEpoch)


class TestLeaving:
    def test_a_leave_moves_what_the_member_had_and_nothing_else(self) -> None:
        world = Membering()
        first, second, third = (world.member(name) for name in "abc")
        world.settle(1_000.0)
        before = {name: world.members[name].hands_out() for name in "ab"}
        third.core.leave(third.now_ms, for_good=True)
        world.settle(500.0)
        assert first.hands_out() > before["a"]
        assert second.hands_out() > before["b"]
        assert first.hands_out() | second.hands_out() == ALL

    def test_with_the_last_member_nothing_of_the_group_is_left(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        member.core.leave(member.now_ms, for_good=True)
        world.settle(300.0)
        assert member.core.state is MemberState.OUT
        assert world.coordinator.committed_state() == {}

    def test_a_static_member_that_comes_back_in_time_has_what_it_had(self) -> None:
        world = Membering()
        former = world.member("a", instance_id="one")
        other = world.member("b")
        world.settle(1_000.0)
        had, others = former.hands_out(), other.hands_out()
        former.core.leave(former.now_ms, for_good=False)
        world.settle(2_000.0)
        assert other.hands_out() == others, "nothing moves for a while"
        now = world.member("a2", instance_id="one")
        world.settle(500.0)
        assert (now.hands_out(), other.hands_out()) == (had, others)
        assert not any(isinstance(change, Revoked) for change in other.told[1:])

    def test_a_static_member_that_stays_away_is_fenced(self) -> None:
        world = Membering()
        former = world.member("a", instance_id="one")
        other = world.member("b")
        world.settle(1_000.0)
        former.core.leave(former.now_ms, for_good=False)
        world.settle(SETTINGS.session_timeout_ms + 1_000.0)
        assert other.hands_out() == ALL

    def test_a_second_member_with_the_same_instance_id_is_refused(self) -> None:
        world = Membering()
        world.member("a", instance_id="one")
        world.settle(300.0)
        error = refusal(world, joining("b", instance_id="one"))
        assert isinstance(error, UnreleasedInstanceId)
        assert "'one' is of member 'a'" in str(error)
        assert world.members["a"].hands_out() == ALL

    def test_people_remove_a_member_by_either_of_its_names(self) -> None:
        world = Membering()
        first, second = world.member("a", instance_id="one"), world.member("b")
        world.settle(1_000.0)
        for name in ("one", "b"):
            ticket = world.ticket()
            request = coordinator_pb2.RemoveMemberRequest(group_id=G, member=name)
            world.coordinator.remove_member(ticket, request, world.now)
            world.commit()
            assert error_of(world.answer(ticket, coordinator_pb2.RemoveMemberResponse)) is None
        first.deliver()
        second.deliver()
        assert (first.holds(), second.holds()) == (frozenset(), frozenset())
        world.settle(1_000.0)
        assert first.hands_out() | second.hands_out() == ALL, "both joined anew"
        assert any(isinstance(change, Lost) and "administrator" in change.reason for change in first.told)


@proves("CO.10")
class TestSessions:
    def test_a_silent_member_fences_itself_before_its_coordinator_does(self) -> None:
        world = Membering()
        first, second = world.member("a"), world.member("b")
        world.settle(1_000.0)
        first.reaches_coordinator = False
        link, first.link = first.link, None  # the network is cut, and says nothing
        assert link is not None
        world.settle(SETTINGS.session_timeout_ms - 1_900.0)
        assert first.holds() == frozenset()
        assert len(second.hands_out()) == 3, "not before the coordinator is sure"
        world.settle(3_000.0)
        assert second.hands_out() == ALL
        assert any(isinstance(change, Lost) for change in first.told)

    def test_heartbeats_write_nothing_but_a_sign_that_the_coordinator_leads(self) -> None:
        world = Membering()
        for number in range(5):
            world.member(f"m{number}")
        world.settle(2_000.0)
        end, state = world.log_end, world.coordinator.committed_state()
        world.settle(10_000.0)
        assert world.log_end - end <= 4 * 10 + 1, "at most one record in a quarter of a heartbeat interval"
        assert world.coordinator.committed_state() == state

    def test_a_member_keeps_its_partitions_through_a_fail_over(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        world.pass_ms(5_000.0)
        world.fail_over()
        world.settle(SETTINGS.session_timeout_ms - 5_000.0)
        assert member.hands_out() == ALL
        assert member.told == [NewlyAssigned(ALL)], "it was told nothing of it"

    def test_after_a_fail_over_each_member_has_a_whole_session_time_out(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        world.pass_ms(SETTINGS.session_timeout_ms - 3_000.0)
        world.fail_over()
        member.break_link(tell=False)
        world.pass_ms(SETTINGS.session_timeout_ms - 500.0)
        world.commit()
        assert world.held("a").assigned.keys() == ALL
        world.pass_ms(1_000.0)
        world.commit()
        assert not world.held("a").assigned

    def test_a_coordinator_that_was_deposed_confirms_nothing(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        world.take_over()
        for _ in range(int(SETTINGS.session_timeout_ms / 1_000.0)):
            world.pass_ms(1_000.0)
            member.deliver()
        assert member.holds() == frozenset(), "it has heard the former coordinator alone"

    def test_a_fail_over_between_target_and_assignment_ends_as_if_there_were_none(self) -> None:
        world = Membering()
        member = world.member("a")
        member.poll()
        member.deliver_request()
        assert len(world.ends) == 1, "the member. Its target and its assignment wait for that"
        world.commit_to(world.ends[0])
        world.fail_over(kept_batches=0)
        world.settle(1_000.0)
        assert member.hands_out() == ALL

    def test_a_member_that_never_gives_back_is_fenced_by_name(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(300.0)
        second = world.member("b")
        for _ in range(int(MAX_POLL_INTERVAL_MS / 1_000.0) + 2):
            world.settle(1_000.0, polling=False)
            first.core.poll_began(first.now_ms)  # a poll that never returns: only its revocation is missing
            second.poll()
        assert first.core.state is MemberState.OUT
        world.settle(500.0, polling=False)
        second.poll()
        assert second.hands_out() == ALL
        change = first.core.next_change(first.now_ms)
        assert isinstance(change, Lost)
        assert "member 'a' of group 'report' did not give partitions back" in change.reason

    def test_a_program_that_does_not_poll_leaves_the_group(self) -> None:
        world = Membering()
        first, second = world.member("a"), world.member("b")
        world.settle(1_000.0)
        for _ in range(int(MAX_POLL_INTERVAL_MS / 1_000.0) + 3):
            world.settle(1_000.0, polling=False)
            second.poll()
        world.settle(500.0, polling=False)
        second.poll()
        assert second.hands_out() == ALL
        world.settle(1_000.0)
        assert any(isinstance(change, Lost) and "max.poll.interval.ms" in change.reason for change in first.told)
        assert len(first.hands_out()) == 3, "and joins again with its next poll"

    def test_a_program_that_takes_record_after_record_of_one_poll_stays(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(1_000.0)
        for _ in range(int(MAX_POLL_INTERVAL_MS / 1_000.0) + 3):
            world.settle(1_000.0, polling=False)
            member.core.record_wanted(member.now_ms)
        assert member.hands_out() == ALL
        assert not any(isinstance(change, Lost) for change in member.told)


@proves("CO.11")
class TestCommitting:
    def test_a_member_commits_what_it_has(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(300.0)
        assert commit(world, dict.fromkeys(ALL, 3), member) is None

    def test_a_member_does_not_commit_what_it_has_not(self) -> None:
        world = Membering()
        first, second = world.member("a"), world.member("b")
        world.settle(1_000.0)
        (foreign, *_), (own, *_) = sorted(second.hands_out()), sorted(first.hands_out())
        error = commit(world, {own: 5, foreign: 5}, first)
        assert isinstance(error, StaleMemberEpoch)
        assert world.fetched(own) == {own: -1}, "nothing of it was done"

    def test_a_member_commits_in_an_older_epoch_what_it_has_since_then(self) -> None:
        """Its epoch moves for the sake of other partitions, and its commits are under way meanwhile (KIP-1251)."""
        world = Membering()
        first = world.member("a")
        world.settle(300.0)
        epoch = first.core.epoch
        second = world.member("b")
        world.settle(1_000.0)
        kept, gone = min(first.hands_out()), min(second.hands_out())
        assert first.core.epoch > epoch
        assert commit(world, {kept: 5}, first, epoch=epoch) is None
        assert isinstance(commit(world, {gone: 5}, first, epoch=epoch), StaleMemberEpoch)

    def test_what_a_member_is_to_give_back_it_may_commit_until_it_has(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(300.0)
        second = world.member("b")
        world.settle(500.0, polling=False)
        second.poll()
        world.settle(500.0, polling=False)
        gone = min(first.core.withheld())
        assert commit(world, {gone: 7}, first) is None
        world.settle(500.0)
        assert isinstance(commit(world, {gone: 9}, first), StaleMemberEpoch)
        assert world.fetched(gone) == {gone: 7}

    def test_a_program_that_is_no_member_commits_while_the_group_has_none(self) -> None:
        world = Membering()
        assert commit(world, {min(ALL): 1}) is None
        member = world.member("a")
        world.settle(300.0)
        error = commit(world, {min(ALL): 2})
        assert isinstance(error, UnknownMemberId)
        assert "group.protocol=consumer" in str(error)
        member.core.leave(member.now_ms, for_good=True)
        world.settle(300.0)
        assert commit(world, {min(ALL): 3}) is None

    def test_a_transaction_commits_as_a_member_or_not_at_all(self) -> None:
        world = Membering()
        world.member("a")
        world.settle(300.0)
        error = world.commit_offsets({min(ALL): 2}, producer_id=7)
        assert isinstance(error, UnknownMemberId)

    def test_a_group_with_members_is_not_deleted(self) -> None:
        world = Membering()
        world.member("a")
        world.settle(300.0)
        assert isinstance(world.delete(), NonEmptyGroup)


def test_a_description_shows_the_members_and_what_they_have() -> None:
    world = Membering()
    world.member("a", instance_id="one")
    world.settle(300.0)
    found = describe(world)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.client_host) == ("a", "one", "host")
    assert frozenset(map(PartitionKey.of, member.assigned)) == frozenset(map(PartitionKey.of, member.target)) == ALL
    assert (found.group_epoch, found.assignor) == (1, "uniform")
    assert list(member.topics) == ["orders"]


def test_a_stream_that_a_newer_one_replaces_is_told_so() -> None:
    world = Membering()
    member = world.member("a")
    world.settle(300.0)
    former = member.link
    assert former is not None
    member.link = None
    member.core.stream_lost(member.now_ms)
    world.pass_ms(200.0)
    member.deliver()
    assert isinstance(error_from_wire(former.responses[-1].error), FencedMemberEpoch)
    world.settle(500.0)
    assert member.told == [NewlyAssigned(ALL)]


@pytest.mark.parametrize("state", [CoordinatorState.WAITING])
def test_a_member_of_a_coordinator_that_loads_is_told_to_come_again(state: CoordinatorState) -> None:
    world = Membering(lead=False)
    world.lead()
    assert world.coordinator.state is state
    error = refusal(world, joining())
    assert error is not None
    assert error.code == "COORDINATOR_LOAD_IN_PROGRESS"


class TestWhoseMemberItIs:
    """A member id belongs to the principal that joined with it."""

    def world(self) -> Membering:
        world = Membering()
        alices = Link(world.coordinator)
        world.links[alices] = SimulatedMember(world, "a")
        world.coordinator.member(alices, joining("a", instance_id="i"), Speaker("host", "User:alice"), world.now)
        world.settle(300.0)
        return world

    @pytest.mark.parametrize("epoch", [0, 1, LEAVE, LEAVE_FOR_A_WHILE])
    def test_another_user_neither_joins_nor_goes_on_nor_leaves_as_it(self, epoch: int) -> None:
        world = self.world()
        request = joining("a")
        request.member_epoch = epoch
        stranger = coordinator_pb2.MemberRequest()
        stranger.CopyFrom(request)
        stranger.member_id = "b"
        refused = refusal(world, request, "User:mallory")
        assert isinstance(refused, UnknownMemberId)
        if epoch:
            absent = refusal(world, stranger, "User:mallory")
            assert str(refused) == str(absent).replace("'b'", "'a'"), "as a member that is not there"
        assert [member.member_id for member in describe(world).members] == ["a"]

    def test_another_user_takes_no_place_that_is_kept_for_its_instance_id(self) -> None:
        world = self.world()
        leaving = joining("a", instance_id="i")
        leaving.member_epoch = LEAVE_FOR_A_WHILE
        refusal(world, leaving, "User:alice")
        assert isinstance(refusal(world, joining("b", instance_id="i"), "User:mallory"), UnreleasedInstanceId)

    def test_its_own_user_comes_back_also_to_the_next_coordinator(self) -> None:
        world = self.world()
        world.fail_over()
        assert isinstance(refusal(world, joining("a"), "User:mallory"), UnknownMemberId)
        assert not isinstance(refusal(world, joining("a", instance_id="i"), "User:alice"), UnknownMemberId)

    @pytest.mark.parametrize("transactional", [False, True])
    def test_another_user_commits_nothing_in_its_name(self, *, transactional: bool) -> None:
        world = self.world()
        epoch = describe(world).members[0].member_epoch
        offsets, named = dict.fromkeys(ALL, 5), {"epoch": epoch, "transactional": transactional}
        refused = commit(world, offsets, member_id="a", principal="User:mallory", **named)  # type: ignore[arg-type]
        absent = commit(world, offsets, member_id="b", principal="User:mallory", **named)  # type: ignore[arg-type]
        assert isinstance(refused, UnknownMemberId)
        assert str(refused) == str(absent).replace("'b'", "'a'"), "as a member that is not there"
        assert commit(world, offsets, member_id="a", principal="User:alice", **named) is None  # type: ignore[arg-type]
