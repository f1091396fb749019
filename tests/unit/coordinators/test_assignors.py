"""The assignors: every partition has one reader, shares are even, little moves, and racks count where they can."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.groups.assignors import (
    Assignment,
    AssignorInput,
    Subscriber,
    moved,
    owners_of,
    range_assignor,
    uniform_assignor,
)
from tests.rules import proves

pytestmark = proves("CO.13")

TOPICS = tuple(bytes([number]) * 16 for number in range(1, 5))
MEMBERS = [f"member-{number}" for number in range(8)]
RACKS = ["east", "west", "north"]


def keys(counts: Mapping[bytes, int]) -> list[PartitionKey]:
    return [PartitionKey(topic, number) for topic, count in counts.items() for number in range(count)]


def after(wanted: AssignorInput, former: Assignment, **members: Subscriber) -> AssignorInput:
    """The same members, with what they had, and other ones."""
    kept = {
        member: dataclasses.replace(each, owned=former.get(member, frozenset()))
        for member, each in wanted.members.items()
    }
    return dataclasses.replace(wanted, members=kept | members)


counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False, racks: bool = False) -> AssignorInput:
    """Members that had anything, of any topics; `alike`: all subscribe to all topics."""
    counts = draw(counts_of_topics)
    every = keys(counts)
    names = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    owners = draw(st.lists(st.sampled_from([*names, ""]), min_size=len(every), max_size=len(every)))
    some = st.frozensets(st.sampled_from(sorted(counts)), min_size=1)
    return AssignorInput(
        {
            name: Subscriber(
                frozenset(counts) if alike else draw(some),
                rack=draw(st.sampled_from(["", *RACKS])) if racks else "",
                owned=frozenset(key for key, owner in zip(every, owners, strict=True) if owner == name),
            )
            for name in names
        },
        counts,
        {key: draw(st.frozensets(st.sampled_from(RACKS), min_size=1)) for key in every} if racks else {},
    )


def check_is_whole(wanted: AssignorInput, assignment: Assignment) -> None:
    """Each partition that anybody subscribes to has one reader, and the reader subscribes to it."""
    given_out = [key for share in assignment.values() for key in share]
    subscribed = frozenset().union(*(each.topics for each in wanted.members.values()))
    assert sorted(given_out) == sorted(key for key in keys(wanted.partition_counts) if key.topic_id in subscribed)
    for member, share in assignment.items():
        assert all(key.topic_id in wanted.members[member].topics for key in share)


def is_near(wanted: AssignorInput, key: PartitionKey, member: str) -> bool:
    return wanted.members[member].rack in wanted.racks.get(key, frozenset())


@given(groups(racks=True))
@settings(deadline=None)
def test_each_partition_has_one_reader_that_subscribes_to_it(wanted: AssignorInput) -> None:
    check_is_whole(wanted, uniform_assignor(wanted))
    check_is_whole(wanted, range_assignor(wanted))


@given(groups(alike=True, racks=True))
@settings(deadline=None)
def test_uniform_is_even_within_one_where_all_subscribe_to_the_same(wanted: AssignorInput) -> None:
    loads = [len(share) for share in uniform_assignor(wanted).values()]
    assert max(loads) - min(loads) <= 1


@given(groups(racks=True))
@settings(deadline=None)
def test_uniform_has_no_move_that_makes_the_shares_more_even(wanted: AssignorInput) -> None:
    assignment = uniform_assignor(wanted)
    for key, owner in owners_of(assignment).items():
        for other, each in wanted.members.items():
            if key.topic_id in each.topics:
                assert len(assignment[owner]) - len(assignment[other]) < 2


@given(groups(alike=True))
@settings(deadline=None)
def test_uniform_moves_as_little_as_can_be(wanted: AssignorInput) -> None:
    """Even shares keep at most the lower share of each member, and one more of those that have the larger share."""
    assignment = uniform_assignor(wanted)
    had = {member: len(each.owned) for member, each in wanted.members.items()}
    lower, larger_shares = divmod(len(keys(wanted.partition_counts)), len(had))
    most_kept = sum(min(count, lower) for count in had.values())
    most_kept += min(larger_shares, sum(count > lower for count in had.values()))
    kept = sum(len(share & wanted.members[member].owned) for member, share in assignment.items())
    assert kept == most_kept


@given(groups(racks=True))
@settings(deadline=None)
def test_uniform_leaves_its_own_answer_as_it_is(wanted: AssignorInput) -> None:
    assignment = uniform_assignor(wanted)
    assert uniform_assignor(after(wanted, assignment)) == assignment


@given(groups(alike=True), st.sampled_from(MEMBERS))
@settings(deadline=None)
def test_a_leave_moves_only_the_partitions_of_the_member_that_left(wanted: AssignorInput, leaver: str) -> None:
    before = uniform_assignor(wanted)
    stayed = {member: each for member, each in after(wanted, before).members.items() if member != leaver}
    if stayed:
        now = uniform_assignor(dataclasses.replace(wanted, members=stayed))
        for member in stayed:
            assert before[member] <= now[member]


@given(groups(alike=True))
@settings(deadline=None)
def test_a_join_moves_only_the_share_of_the_newcomer(wanted: AssignorInput) -> None:
    before = uniform_assignor(wanted)
    topics = frozenset(wanted.partition_counts)
    now = uniform_assignor(after(wanted, before, newcomer=Subscriber(topics)))
    assert moved(before, now) == len(now["newcomer"])


@given(groups(racks=True))
@settings(deadline=None)
def test_uniform_has_no_move_or_exchange_that_is_as_even_and_nearer(wanted: AssignorInput) -> None:
    assignment = uniform_assignor(wanted)
    for key, owner in owners_of(assignment).items():
        if is_near(wanted, key, owner):
            continue
        for other, each in wanted.members.items():
            if key.topic_id not in each.topics or not is_near(wanted, key, other):
                continue
            assert len(assignment[other]) >= len(assignment[owner]), "a move would be nearer and as even"
            for back in assignment[other]:
                exchanged = back.topic_id in wanted.members[owner].topics
                assert not exchanged or (is_near(wanted, back, other) and not is_near(wanted, back, owner))


@given(st.integers(1, 6), st.integers(1, 9))
def test_each_partition_is_read_in_its_rack_where_each_rack_has_a_member(members: int, partitions: int) -> None:
    topic = TOPICS[0]
    racks = [RACKS[number % len(RACKS)] for number in range(members * len(RACKS))]
    wanted = AssignorInput(
        {f"member-{number:02}": Subscriber(frozenset({topic}), rack=rack) for number, rack in enumerate(racks)},
        {topic: partitions * len(RACKS)},
        {key: frozenset({RACKS[key.partition % len(RACKS)]}) for key in keys({topic: partitions * len(RACKS)})},
    )
    assignment = uniform_assignor(wanted)
    assert all(is_near(wanted, key, owner) for key, owner in owners_of(assignment).items())


@given(counts_of_topics, st.integers(1, 8))
def test_range_gives_one_member_the_same_numbers_of_topics_of_one_size(counts: dict[bytes, int], members: int) -> None:
    wanted = AssignorInput({name: Subscriber(frozenset(counts)) for name in MEMBERS[:members]}, counts)
    assignment = range_assignor(wanted)
    check_is_whole(wanted, assignment)
    for share in assignment.values():
        for topic, count in counts.items():
            numbers = sorted(key.partition for key in share if key.topic_id == topic)
            assert len(numbers) in (count // members, math.ceil(count / members))
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            for other, other_count in counts.items():
                if other_count == count:
                    assert numbers == sorted(key.partition for key in share if key.topic_id == other)


def test_range_has_the_order_of_instance_ids_before_that_of_member_ids() -> None:
    topic = TOPICS[0]
    everybody = {
        "z": Subscriber(frozenset({topic}), instance_id="a"),
        "y": Subscriber(frozenset({topic}), instance_id="b"),
    }
    assignment = range_assignor(AssignorInput(everybody, {topic: 2}))
    assert assignment == {"z": {PartitionKey(topic, 0)}, "y": {PartitionKey(topic, 1)}}


def test_a_topic_that_nobody_subscribes_to_is_given_to_nobody() -> None:
    wanted = AssignorInput({"a": Subscriber(frozenset())}, {TOPICS[0]: 3})
    assert uniform_assignor(wanted) == range_assignor(wanted) == {"a": frozenset()}


def test_a_thousand_members_on_ten_thousand_partitions_take_seconds() -> None:
    topic = TOPICS[0]
    everybody = {f"member-{number:04}": Subscriber(frozenset({topic})) for number in range(1_000)}
    wanted = AssignorInput(everybody, {topic: 10_000})
    began_s = time.process_time()
    before = uniform_assignor(wanted)
    gone = after(dataclasses.replace(wanted, members=dict(list(everybody.items())[1:])), before)
    assert moved(before, uniform_assignor(gone)) == 10
    assert time.process_time() - began_s < 5.0
