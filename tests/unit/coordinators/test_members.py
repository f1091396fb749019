"""Members of a group and its coordinator: who has which partitions, when one changes hands, and who may commit."""

from __future__ import annotations

from minilog.groups.member import Lost
from tests.rules import proves
from tests.unit.coordinators.membering import MAX_POLL_INTERVAL_MS, Membering, SimulatedMember, orders

pytestmark = proves("CO.8")

ALL = orders(*range(6))


class TestJoining:
    def test_four_thousand_topics_may_be_subscribed_to(self) -> None:
        world = Membering()
        member = world.member("a", "orders", *(f"absent-{number}" for number in range(3_999)))
        world.settle(300.0)
        assert member.hands_out() == ALL


@proves("CO.10")
class TestSessions:
    def test_heartbeats_write_nothing_but_a_sign_that_the_coordinator_leads(self) -> None:
        world = Membering()
        for number in range(5):
            world.member(f"m{number}")
        world.settle(2_000.0)
        end, state = world.log_end, world.coordinator.committed_state()
        world.settle(10_000.0)
        assert world.log_end - end <= 4 * 10 + 1, "at most one record in a quarter of a heartbeat interval"
        assert world.coordinator.committed_state() == state

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

    def test_a_program_that_takes_record_after_record_of_one_poll_stays(self) -> None:
        world = Membering()
        member = world.member("a")
        world.settle(1_000.0)
        for _ in range(int(MAX_POLL_INTERVAL_MS / 1_000.0) + 3):
            world.settle(1_000.0, polling=False)
            member.core.record_wanted(member.now_ms)
        assert member.hands_out() == ALL
        assert not any(isinstance(change, Lost) for change in member.told)


def hanging(world: Membering, name: str) -> SimulatedMember:
    """A member whose program has polled, and works on what it got."""
    member = world.member(name)
    member.core.poll_began(world.now_ms)
    return member


class TestGivingBack:
    def test_an_assignment_that_its_stream_lost_is_pushed_again(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(1_000.0)
        second = world.member("b")
        world.settle(3_000.0)
        assert len(first.hands_out()) == 3
        second.core.leave(world.now_ms, for_good=True)
        second.run()
        second.deliver_request()
        world.commit()
        world.pass_ms(300.0)
        world.commit()
        world.collect()
        first.break_link()
        world.settle(4_000.0)
        assert first.hands_out() == ALL

    def test_a_member_that_gives_nothing_back_is_fenced_although_more_is_asked_of_it_meanwhile(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(1_000.0)
        first.core.poll_began(world.now_ms)
        hanging(world, "b")
        world.settle(20_000.0, polling=False)
        hanging(world, "c")
        world.settle(2_000.0, polling=False)
        assert len(world.held("a").revoking) > 3
        world.settle(MAX_POLL_INTERVAL_MS - 20_000.0, polling=False)
        assert not world.held("a").assigned

    def test_each_partition_has_its_own_time_to_be_given_back(self) -> None:
        world = Membering()
        first = world.member("a")
        world.settle(1_000.0)
        first.core.poll_began(world.now_ms)
        hanging(world, "b")
        world.settle(MAX_POLL_INTERVAL_MS - 1_000.0, polling=False)
        first.core.poll_ended(world.now_ms)
        first.poll()
        first.core.poll_began(world.now_ms)  # it gives back in time, and that is under way
        third = hanging(world, "c")
        third.run()
        third.deliver_request()
        world.commit()
        world.pass_ms(200.0)
        world.commit()
        first.deliver()
        world.commit()
        first.deliver()
        assert len(world.held("a").revoking) == 1, "what it was asked for when c joined"
        world.settle(MAX_POLL_INTERVAL_MS / 2, polling=False)
        assert len(world.held("a").revoking) == 1
        world.settle(MAX_POLL_INTERVAL_MS / 2 + 1_000.0, polling=False)
        assert not world.held("a").assigned
