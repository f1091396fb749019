"""What a coordinator keeps of a member or a queue is bounded, and has no names but those of topics."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, MinilogError, error_from_wire
from minilog.limits import MAX_QUEUE_TOPICS, MAX_SUBSCRIPTION_BYTES
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.presences import Speaker
from minilog_broker.coordinators.groups.records import GroupKey, GroupPart, Member
from minilog_broker.server.shells.member_stream import MemberStream
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.grouping import G
from tests.unit.coordinators.membering import Link, Membering, SimulatedMember, orders
from tests.unit.coordinators.queueing import Queueing

ALL = orders(*range(6))
TOO_MANY = tuple(f"{number:06}-{'x' * 200}" for number in range(400))


def kept(world: Membering, name: str) -> Member:
    value = world.coordinator._table.get(GroupKey(G, part=GroupPart.MEMBER, member_id=name))
    assert isinstance(value, Member)
    return value


def answer(world: Membering, request: coordinator_pb2.MemberRequest, link: Link | None = None) -> MinilogError | None:
    link = link or Link(world.coordinator)
    world.links[link] = SimulatedMember(world, "stranger")
    world.coordinator.member(link, request, Speaker("host"), world.now)
    world.commit()
    world.collect()
    errors = [error_from_wire(response.error) for response in link.responses]
    link.responses.clear()
    return next((error for error in errors if error is not None), None)


def naming(*topics: str) -> coordinator_pb2.MemberRequest:
    wanted = coordinator_pb2.MemberSubscription(topics=topics or ["orders"])
    return coordinator_pb2.MemberRequest(group_id=G, member_id="stranger", number=1, subscription=wanted)


class TestBytes:
    @pytest.mark.parametrize("comes", ["with the first message", "later"])
    def test_a_subscription_above_its_bytes_is_refused_and_the_error_says_what_to_do(self, comes: str) -> None:
        world, link = Membering(), Link(Membering().coordinator)
        if comes == "later":
            assert answer(world, naming(), link) is None
        refused = answer(world, naming(*TOO_MANY), link)
        assert isinstance(refused, InvalidArgument)
        assert f"at most {MAX_SUBSCRIPTION_BYTES} bytes" in str(refused)
        assert "400 topics" in str(refused)
        assert "several groups" in str(refused)

    @pytest.mark.parametrize("field", ["rack_id", "instance_id"])
    def test_a_later_message_keeps_to_the_limits_of_the_first(self, field: str) -> None:
        world, link, changed = Membering(), Link(Membering().coordinator), naming()
        assert answer(world, naming(), link) is None
        setattr(changed.subscription, field, "x" * 256)
        assert isinstance(answer(world, changed, link), InvalidArgument)

    def test_the_name_of_a_client_is_bounded(self) -> None:
        request = naming()
        request.client.client_id = "x" * 256
        refused = answer(Membering(), request)
        assert isinstance(refused, InvalidArgument)
        assert "client.id" in str(refused)


class TestAbsentNames:
    def test_names_that_are_no_topics_are_not_kept(self) -> None:
        world = Membering()
        member = world.member("a", "orders", *(f"absent-{number}" for number in range(3_000)))
        world.settle(300.0)
        assert member.hands_out() == ALL
        assert kept(world, "a").topics == ("orders",)

    def test_a_member_reads_a_topic_that_is_created_later(self) -> None:
        world = Membering()
        member, other = world.member("a", "orders", "later"), world.member("b", "orders")
        world.settle(1_000.0)
        for life in (b"\x71", b"\x72"):  # the second time is another topic of the same name
            world.seen.ids["later"], world.seen.counts["later"] = life * 16, 2
            world.coordinator.topics_changed(world.now)
            world.settle(3_000.0)
            assert {key.partition for key in member.hands_out() if key.topic_id == world.seen.ids["later"]} == {0, 1}
            del world.seen.counts["later"]
            world.coordinator.topics_changed(world.now)
            world.settle(3_000.0)
        assert kept(world, "b").topics == ("orders",)
        assert member.hands_out() | other.hands_out() == ALL

    def test_a_member_is_asked_for_its_names_by_a_new_coordinator_too(self) -> None:
        world = Membering()
        member = world.member("a", "orders", "later")
        world.settle(1_000.0)
        world.seen.ids["later"], world.seen.counts["later"] = b"\x77" * 16, 1
        member.break_link()
        world.take_over()
        world.settle(3_000.0)
        assert len(member.hands_out()) == 7

    def test_of_a_client_that_repeats_nothing_all_names_are_kept(self) -> None:
        world = Membering()
        assert answer(world, naming("orders", "later")) is None
        assert kept(world, "stranger").topics == ("later", "orders")

    def test_a_question_for_names_outlives_a_newer_message(self) -> None:
        stream = MemberStream()
        stream.put(coordinator_pb2.MemberResponse(member_epoch=3, names_wanted=True))
        stream.put(coordinator_pb2.MemberResponse(member_epoch=3, confirmed_number=9))
        message = stream.next_message()
        assert message is not None
        assert message.message.names_wanted
        assert message.message.confirmed_number == 9


def test_a_queue_has_so_many_topics_and_the_error_says_what_to_do() -> None:
    world = Queueing()
    topics = [number.to_bytes(16, "big") for number in range(1, MAX_QUEUE_TOPICS + 2)]
    world.counts.update(dict.fromkeys(topics, 1))
    waiting = [world.ask_to_lease(topics=topics[:-1]), world.ask_to_lease(topics=topics[:1])]
    assert not world.answers.keys() & set(waiting), "they wait for records"
    refused = error_of(world.lease(topics=topics[-1:]))
    assert isinstance(refused, InvalidArgument)
    assert "another queue" in str(refused)
