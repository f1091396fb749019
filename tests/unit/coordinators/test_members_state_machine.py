"""Members and coordinators as they ship, with messages that wait, streams that break, clocks of other rates,
coordinators that are replaced and do not know it, and programs that poll or hang: no partition is handed out by two
members (M1), and after the last fault each partition has one reader (M2)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minilog.groups.member import MemberState
from minilog.partition_key import PartitionKey
from tests.judges.groups import check_owned, holders_of
from tests.rules import proves
from tests.unit.coordinators.grouping import SETTINGS
from tests.unit.coordinators.membering import Membering, SimulatedMember, orders

pytestmark = proves("CO.8", "CO.10", "M1", "M2", "M3")

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
RATES = {"a": 1.0, "b": 0.92, "c": 1.08}  # two heartbeats of ten may be lost to them


class MembersMachine(RuleBasedStateMachine):
    """See the module's text."""

    @initialize()
    def begin(self) -> None:
        self.world = Membering()
        for name in NAMES:
            self.world.member(name, rate=RATES[name])
        self.world.settle(500.0)

    def _member(self, name: str) -> SimulatedMember:
        return self.world.members[name]

    @rule(name=names)
    def requests_arrive(self, name: str) -> None:
        for _ in range(3):
            self._member(name).deliver_request()

    @rule(name=names)
    def responses_arrive(self, name: str) -> None:
        for _ in range(3):
            self._member(name).deliver_response()

    @rule()
    def all_arrives(self) -> None:
        for name in NAMES:
            self._member(name).deliver()

    @rule()
    def all_is_committed(self) -> None:
        self.world.commit()

    @rule(name=names)
    def a_program_polls(self, name: str) -> None:
        self._member(name).poll()

    @rule(duration_ms=st.sampled_from((100.0, 1_000.0, 3_000.0)))
    def time_passes(self, duration_ms: float) -> None:
        self.world.pass_ms(duration_ms)

    @rule(duration_ms=st.sampled_from((500.0, 2_000.0, 6_000.0)))
    def all_goes_well(self, duration_ms: float) -> None:
        self.world.settle(duration_ms)

    @rule(name=names)
    def a_stream_breaks(self, name: str) -> None:
        self._member(name).break_link()

    @rule(name=names, reaches=st.booleans())
    def a_network_changes(self, name: str, reaches: bool) -> None:
        self._member(name).reaches_coordinator = reaches
        if not reaches:
            self._member(name).break_link()

    @rule(name=names)
    def a_member_leaves(self, name: str) -> None:
        member = self._member(name)
        member.core.leave(member.now_ms, for_good=True)
        member.run()

    @rule(name=names)
    def a_member_subscribes_again(self, name: str) -> None:
        member = self._member(name)
        if member.core.state is not MemberState.LEAVING:
            member.core.subscribe(["orders"])
            member.run()

    @rule(kept=st.sampled_from((0, 1, 2, None)))
    def another_coordinator_takes_over(self, kept: int | None) -> None:
        self.world.take_over(kept_batches=kept)

    @precondition(lambda self: self.world.former)
    @rule()
    def the_former_coordinators_hear_of_it(self) -> None:
        for coordinator in self.world.former:
            coordinator.deposed()
        self.world.collect()

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        if not hasattr(self, "world"):
            return
        holders_of((name, self._member(name).hands_out()) for name in NAMES)
        holders_of((name, self._member(name).holds() & self._known_of(name)) for name in NAMES)

    def _known_of(self, name: str) -> frozenset[PartitionKey]:
        """What the coordinator knows that it holds."""
        held = self.world.held(name)
        return frozenset({*held.assigned, *held.revoking})

    def teardown(self) -> None:
        """The faults end: each partition has one reader, and the shares are even."""
        if not hasattr(self, "world"):
            return
        self.the_former_coordinators_hear_of_it()
        for name in NAMES:
            self._member(name).reaches_coordinator = True
            self.world.settle(100.0)
            self.a_member_subscribes_again(name)
        self.world.settle(SETTINGS.session_timeout_ms + 5_000.0)
        shares = {name: self._member(name).hands_out() for name in NAMES}
        check_owned(orders(*range(6)), holders_of(shares.items()), "a session time-out and 5 s")
        assert [len(share) for share in shares.values()] == [2, 2, 2]


MembersMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMembers = MembersMachine.TestCase
