"""Members of a group and its coordinator: who has which partitions, when one changes hands, and who may commit."""

from __future__ import annotations

from minilog.groups.member import Lost
from tests.rules import proves
from tests.unit.coordinators.membering import MAX_POLL_INTERVAL_MS, Membering, orders

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
