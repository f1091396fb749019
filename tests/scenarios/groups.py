"""The verbs of groups: what members, programs, transactions and people ask of a coordinator of groups.

Members are the client's own cores, by their names. `run` lets time pass with all messages and polls, `wait` without
any. All that a command decides is committed and answered, unless the coordinator is on `hold`. Producers are
registered when the coordinator asks, unless `registers no`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from minilog.errors import error_from_wire
from minilog.groups.member import Lost, MemberState, NewlyAssigned, Revoked
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import RegisterProducer
from minilog_broker.coordinators.groups.presences import Speaker
from tests.scenarios.partitions import error_named, partition, partition_name, topic_id
from tests.scenarios.world import CommandError, World, spans
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.grouping import G, T
from tests.unit.coordinators.membering import Link, Membering, SimulatedMember


class GroupWorld(World):
    """Members of one group, the links to their coordinator, and its log."""

    def __init__(self) -> None:
        super().__init__()
        self._world = Membering()
        self._asked: dict[int, str] = {}  # calls without an answer, by their tickets
        self._told: dict[str, int] = {}  # how many changes of a member are in the trace
        self._questions: list[RegisterProducer] = []
        self._registers = True
        self._holds = False

    # -- offsets

    def commit(
        self,
        *,
        group: str = G,
        producer: int | None = None,
        sequence: int = 0,
        metadata: str = "",
        member: str = "",
        epoch: int | None = None,
        user: str = "",
        **offsets: int,
    ) -> None:
        """Offsets of partitions (`orders-0=5`): of a program, in a transaction, or as a member of its epoch or of
        another."""
        request = coordinator_pb2.CommitOffsetsRequest(group_id=group)
        for name, offset in offsets.items():
            request.offsets.add(
                partition_id=partition(name).to_wire(), offset=offset, leader_epoch=2, metadata=metadata
            )
        if member:
            known = self._world.members.get(member)
            own = known.core.epoch if known is not None else 0
            request.member.member_id, request.member.member_epoch = member, own if epoch is None else epoch
        if producer is not None:
            request.transaction.transactional_id = T
            request.transaction.producer_id, request.transaction.sequence = producer, sequence
        self._world.coordinator.commit(self._ask("commit"), request, self._world.now, f"User:{user}" if user else "")

    def fetch(self, *partitions: str, group: str = G) -> None:
        """Of these partitions; of all that have offsets, where none is named."""
        wanted = [partition(name).to_wire() for name in partitions]
        request = coordinator_pb2.FetchOffsetsRequest(group_id=group, partitions=wanted)
        self._world.coordinator.fetch(self._ask("fetch"), request)

    def mark(self, producers: tuple[int, ...], verdict: str, *, sequence: int = 0) -> None:
        """Markers of one transaction in one call: `commit` or `abort`."""
        committed = {"commit": True, "abort": False}[verdict]
        request = coordinator_pb2.WriteMarkersRequest(transactional_id=T)
        for producer in producers:
            request.markers.add(producer_id=producer, committed=committed, last_sequence=sequence)
        self._world.coordinator.write_markers(self._ask("mark"), request, self._world.now)

    def ends(self, producer: int) -> None:
        """The coordinator of transactions registers the producer no more."""
        self._world.ended[producer] = error_named("ProducerFenced")

    def registers(self, says: bool) -> None:
        """Whether the coordinator of transactions answers at once."""
        self._registers = says

    def registered(self, number: int, error: str = "") -> None:
        """It answers a question by its number."""
        self._world.coordinator.registered(number, error_named(error) if error else None, self._world.now)

    # -- members

    def member(self, name: str, *topics: str, instance: str = "") -> None:
        """A program joins as a member. It reads orders, where no topic is named."""
        self._world.member(name, *topics, instance_id=instance)

    def run(self, ms: float = 1_000.0, *, polls: bool = True) -> None:
        """Time passes, all messages arrive, all is committed, and the programs poll, or do not."""
        self._world.settle(ms, polling=polls)

    def wait(self, ms: float) -> None:
        """Time passes, and no message arrives."""
        self._world.pass_ms(ms)

    def poll(self, name: str) -> None:
        self._member(name).poll()

    def deliver(self, name: str) -> None:
        """What is under way between a member and its coordinator arrives."""
        self._member(name).deliver()

    def leave(self, name: str, *, for_good: bool = True) -> None:
        member = self._member(name)
        member.core.leave(member.now_ms, for_good=for_good)

    def cut(self, name: str) -> None:
        """The network of a member is cut, and says nothing."""
        member = self._member(name)
        member.reaches_coordinator, member.link = False, None

    def reconnect(self, name: str) -> None:
        """A member has a new stream, while its coordinator still has the former."""
        member = self._member(name)
        former, member.link = member.link, None
        assert former is not None
        member.core.stream_lost(member.now_ms)
        self._world.pass_ms(200.0)
        member.deliver()
        error = error_from_wire(former.responses[-1].error) if former.responses else None
        self.outcome(f"the former stream of {name}", error)

    def hang(self, name: str, ms: int) -> None:
        """A program is in one poll, that does not return, while all others go on."""
        member = self._member(name)
        for _ in range(ms // 1_000):
            self._world.settle(1_000.0, polling=False)
            member.core.poll_began(member.now_ms)
            self._poll_others(member)

    def sleep(self, name: str, ms: int) -> None:
        """A program does not poll, and all others do."""
        for _ in range(ms // 1_000):
            self._world.settle(1_000.0, polling=False)
            self._poll_others(self._member(name))

    def _poll_others(self, member: SimulatedMember) -> None:
        for other in self._world.members.values():
            if other is not member:
                other.poll()

    def subscribe(self, name: str, *topics: str) -> None:
        self._member(name).core.subscribe(topics)

    def join(
        self,
        name: str = "stranger",
        *,
        epoch: int = 0,
        instance: str = "",
        assignor: str = "",
        user: str = "",
        owns: tuple[str, ...] = (),
    ) -> None:
        """The first message of a stream, as some other client says it."""
        request = coordinator_pb2.MemberRequest(group_id=G, member_id=name, member_epoch=epoch, number=1)
        if not owns:
            wanted = coordinator_pb2.MemberSubscription(topics=["orders"], assignor=assignor, instance_id=instance)
            request.subscription.CopyFrom(wanted)
        request.owned_partitions.extend(partition(each).to_wire() for each in owns)
        link = Link(self._world.coordinator)
        self._world.links[link] = SimulatedMember(self._world, name)
        speaker = Speaker("host", f"User:{user}" if user else "")
        self._world.coordinator.member(link, request, speaker, self._world.now)
        self._world.commit()
        self._world.collect()
        error = error_from_wire(link.responses.popleft().error) if link.responses else None
        self.outcome(name, error, "goes on" if epoch > 0 else "leaves" if epoch < 0 else "joins")

    def remove(self, name: str) -> None:
        """An administrator removes a member, by its id or that of its instance."""
        request = coordinator_pb2.RemoveMemberRequest(group_id=G, member=name)
        self._world.coordinator.remove_member(self._ask("remove"), request, self._world.now)

    def _member(self, name: str) -> SimulatedMember:
        if name not in self._world.members:
            raise CommandError(f"there is no member {name!r}")
        return self._world.members[name]

    # -- the coordinator and what it knows

    def hold(self) -> None:
        """Nothing is committed until `resume`."""
        self._holds = True

    def resume(self) -> None:
        self._holds = False

    def fail_over(self, *, kept: int | None = None) -> None:
        """Another coordinator, with what was committed, and so many batches of the rest (all, where it is not said)."""
        self._questions.clear()
        self._world.fail_over(kept_batches=kept)

    def take_over(self) -> None:
        """Another coordinator, and the one before it does not know that. Members keep their streams to it."""
        self._world.take_over()

    def new_term(self) -> None:
        """The same coordinator leads again, after another."""
        self._world.coordinator.deposed()
        self._world.begin()

    def lead(self) -> None:
        """It leads in a new epoch, and has not loaded its log."""
        self._holds = True
        self._world.lead()

    def depose(self) -> None:
        """Its term ends."""
        self._world.coordinator.deposed()

    def log_refuses(self, error: str = "") -> None:
        """What appending to the log fails with from now on; nothing: it works again."""
        self._world.refusal = error_named(error) if error else None

    def level(self, allows: bool) -> None:
        """Whether the level of the cluster has members."""
        self._world.allows_members = allows

    def partitions(self, topic: str, count: int) -> None:
        """A topic has so many partitions."""
        self._world.seen.ids[topic] = topic_id(topic)
        self._world.seen.counts[topic] = count
        self._world.coordinator.topics_changed(self._world.now)

    def delete_topic(self, topic: str) -> None:
        self._world.topics.discard(topic_id(topic))
        self._world.coordinator.drop_deleted_topics()

    # -- people

    def delete(self, *partitions: str, group: str = G) -> None:
        """Offsets of a group, or all of it."""
        wanted = [partition(name).to_wire() for name in partitions]
        request = coordinator_pb2.DeleteGroupRequest(group_id=group, partitions=wanted)
        self._world.coordinator.delete(self._ask("delete"), request)

    def list(self) -> None:
        self._world.coordinator.list(self._ask("list"), coordinator_pb2.ListGroupsRequest())

    def describe(self, group: str = G) -> None:
        request = coordinator_pb2.DescribeGroupRequest(group_id=group)
        self._world.coordinator.describe(self._ask("describe"), request, self._world.now)

    def _ask(self, name: str) -> int:
        ticket = self._world.ticket()
        self._asked[ticket] = name
        return ticket

    # -- what follows, and what is seen

    def settle_down(self) -> None:
        world = self._world
        world.collect()
        self._register()
        if not self._holds:
            world.commit()
        world.collect()
        for ticket in [each for each in self._asked if each in world.answers]:
            self._answered(self._asked.pop(ticket), world.answers.pop(ticket))
        for name, member in world.members.items():
            for change in member.told[self._told.get(name, 0) :]:
                what = _topics(change.partitions)
                self.note(f"{name} {_TOLD[type(change)]} {what}{_reason(change)}")
            self._told[name] = len(member.told)

    def _register(self) -> None:
        self._questions += self._world.take(RegisterProducer)
        if not self._registers:
            for each in self._questions:
                self.note(f"question {each.number}: may producer {each.producer_id} go on?")
            self._questions.clear()
        for each in self._questions:
            self._world.coordinator.registered(each.number, self._world.ended.get(each.producer_id), self._world.now)
        self._questions.clear()

    def _answered(self, name: str, answer: Message) -> None:
        if (error := error_of(answer)) is not None:
            self.outcome(name, error)
            return
        match answer:
            case coordinator_pb2.FetchOffsetsResponse():
                found = [_fetched(each) for each in answer.offsets]
                self.note(f"{name}: {', '.join(found) or 'nothing'}")
            case coordinator_pb2.ListGroupsResponse():
                listed = [f"{each.group_id} of {each.partition_count} partitions" for each in answer.groups]
                self.note(f"{name}: {', '.join(listed) or 'nothing'}")
            case coordinator_pb2.DescribeGroupResponse():
                self._described(answer)
            case _:
                self.note(f"{name}: ok")

    def _described(self, answer: coordinator_pb2.DescribeGroupResponse) -> None:
        if answer.members:
            self.note(f"group epoch {answer.group_epoch}, assignor {answer.assignor}")
        for member in answer.members:
            named = f" ({member.instance_id})" if member.instance_id else ""
            has, target = (_topics(map(PartitionKey.of, keys)) for keys in (member.assigned, member.target))
            away = ", away" if member.away else ""
            self.note(
                f"member {member.member_id}{named} of {', '.join(member.topics)}: has {has}, is to {target}{away}"
            )
        for offset in answer.offsets:
            self.note(f"offset {_fetched(offset)}")
        for pending in answer.pending:
            for each in pending.offsets:
                where = partition_name(PartitionKey.of(each.partition_id))
                self.note(f"pending {where} {each.offset} of producer {pending.producer_id}")

    def observed(self) -> Mapping[str, str]:
        joined = {name: member for name, member in self._world.members.items() if member.told}
        return {name: _seen(member) for name, member in joined.items()}


_TOLD = {NewlyAssigned: "is assigned", Revoked: "gives back", Lost: "loses"}


def _reason(change: object) -> str:
    return f": {change.reason}" if isinstance(change, Lost) else ""


def _seen(member: SimulatedMember) -> str:
    if member.core.state is MemberState.OUT:
        return "out"
    hands_out, holds = member.hands_out(), member.holds()
    return f"reads {_topics(hands_out)}" + (f", holds {_topics(holds)}" if holds != hands_out else "")


def _topics(keys: Iterable[PartitionKey]) -> str:
    """`orders 0-5, payments 1`."""
    by_topic: dict[str, list[int]] = {}
    for key in sorted(keys):
        by_topic.setdefault(partition_name(key).rpartition("-")[0], []).append(key.partition)
    return ", ".join(f"{topic} {spans(numbers)}" for topic, numbers in by_topic.items()) or "nothing"


def _fetched(each: coordinator_pb2.CommittedOffset) -> str:
    name, error = partition_name(PartitionKey.of(each.partition_id)), error_of(each)
    if error is not None:
        return f"{name} {type(error).__name__}"
    metadata = f" ({each.metadata})" if each.metadata else ""
    return f"{name} {each.offset}{metadata}"
