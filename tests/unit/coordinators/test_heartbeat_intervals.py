"""The heartbeat interval that a coordinator gives the members of a group: longer where there are many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog_broker.coordinators.groups.presences import MOST_HEARTBEATS_PER_S, GroupSettings
from tests.rules import proves
from tests.unit.coordinators.membering import Membering, orders

pytestmark = proves("CO.9")


@pytest.mark.parametrize(
    ("members", "interval_ms"),
    [(1, 5_000), (500, 5_000), (501, 5_010), (1_000, 10_000), (1_125, 11_250), (10_000, 11_250)],
)
def test_a_large_group_has_a_longer_interval_up_to_a_quarter_of_the_session(members: int, interval_ms: int) -> None:
    assert GroupSettings().interval_of(members) == interval_ms


def test_a_setting_above_a_quarter_of_the_session_stays() -> None:
    assert GroupSettings(session_timeout_ms=15_000, heartbeat_interval_ms=5_000).interval_of(1_000) == 5_000


@given(
    interval_ms=st.integers(1, 60_000),
    sessions=st.integers(0, 300_000),
    members=st.integers(1, 100_000),
    more=st.integers(0, 1_000),
)
def test_no_interval_takes_the_session_away(interval_ms: int, sessions: int, members: int, more: int) -> None:
    session_ms = 3 * interval_ms + sessions  # what the configuration allows
    settings = GroupSettings(session_timeout_ms=session_ms, heartbeat_interval_ms=interval_ms)
    given_ms = settings.interval_of(members)
    assert given_ms >= interval_ms
    assert given_ms == interval_ms or 2 * given_ms <= session_ms / 2, "half of the session is left to the member"
    is_longest = given_ms >= session_ms // 4
    assert is_longest or members * 1_000 <= MOST_HEARTBEATS_PER_S * given_ms, "no more heartbeats than are bearable"
    assert settings.interval_of(members + more) >= given_ms


def test_members_follow_the_size_of_their_group() -> None:
    world = Membering(settings=GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=20))
    members = [world.member(f"m{number}") for number in range(4)]
    world.settle(1_000.0)
    assert [member.core.heartbeat_ms for member in members] == [40.0] * 4
    members[0].core.leave(members[0].now_ms, for_good=True)
    world.settle(1_000.0)
    assert [member.core.heartbeat_ms for member in members[1:]] == [30.0] * 3


def test_each_group_has_its_own_interval() -> None:
    settings = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=20)
    world = Membering(settings=settings)
    for number in range(4):
        world.member(f"m{number}")
    world.settle(1_000.0)
    assert world.coordinator.member_counts() == {"report": 4}
    assert settings.interval_of(world.coordinator.member_counts().get("other", 0)) == 20


def test_a_partition_changes_hands_long_before_the_next_heartbeat() -> None:
    settings = GroupSettings(session_timeout_ms=300_000, heartbeat_interval_ms=60_000)
    world = Membering(settings=settings)
    first = world.member("a")
    world.settle(15_000.0)
    second = world.member("b")
    world.settle(600.0)
    assert (len(first.hands_out()), len(second.hands_out())) == (3, 3)
    assert first.hands_out() | second.hands_out() == orders(*range(6))
