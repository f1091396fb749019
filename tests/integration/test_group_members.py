"""Groups with members against real brokers: each partition has one reader, whoever comes, goes, is killed or hangs."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition, aio
from minilog.consumer.decode import DecodeOutcome, decode_all
from minilog.consumer.partition import FetchedRun
from minilog.errors import InvalidArgument, StaleMemberEpoch, UnknownMemberId, UnreleasedInstanceId
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.rules import proves

pytestmark = proves("CO.11")

TOPIC = "shared"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(6)]
SETTINGS = {"group.consumer.session.timeout.ms": "3000", "group.consumer.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: pathlib.Path = tmp_path_factory.mktemp("members")
    with running_cluster(directory, brokers=3, settings=SETTINGS) as running:
        with Admin({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=len(PARTITIONS), replication_factor=3)])
        write(running, 0, 60)
        yield running


def write(cluster: Cluster, first: int, end: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        sent = [producer.send(TOPIC, b"%d" % n, partition=n % len(PARTITIONS)) for n in range(first, end)]
        for future in sent:
            future.result(timeout=20.0)


def send(cluster: Cluster, topic: str, values: dict[int, bytes]) -> None:
    """One value to each of these partitions."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for future in [producer.send(topic, value, partition=number) for number, value in values.items()]:
            future.result(timeout=20.0)


def member(cluster: Cluster, group: str, **settings: object) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **named,
        }
    )


def poll_until(condition: Callable[[], bool], *consumers: Consumer, within_s: float = 20.0) -> list[bytes]:
    """The values that came meanwhile."""
    found: list[bytes] = []
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, [each.assignment() for each in consumers]
        for consumer in consumers:
            found += [record.value or b"" for record in consumer.poll(timeout=0.1)]
    return found


def test_members_share_the_partitions_and_no_record_comes_twice(cluster: Cluster) -> None:
    with member(cluster, "share", enable_auto_commit=True) as first:
        first.subscribe([TOPIC])
        found = poll_until(lambda: len(first.assignment()) == 6, first)
        with member(cluster, "share", enable_auto_commit=True) as second:
            second.subscribe([TOPIC])
            found += poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 3, first, second)
            assert sorted([*first.assignment(), *second.assignment()]) == PARTITIONS
            deadline_s = time.monotonic() + 5.0
            while len(found) < 60 and time.monotonic() < deadline_s:
                found += poll_until(lambda: True)
                for consumer in (first, second):
                    found += [record.value or b"" for record in consumer.poll(timeout=0.1)]
        assert sorted(found, key=int) == [b"%d" % number for number in range(60)]
        poll_until(lambda: len(first.assignment()) == 6, first)


def test_a_program_is_told_and_commits_what_it_gives_back(cluster: Cluster) -> None:
    told: list[tuple[str, int]] = []
    with member(cluster, "told") as first, member(cluster, "told") as second:

        def revoked(partitions: list[TopicPartition]) -> None:
            first.commit(dict.fromkeys(partitions, 7))
            told.append(("revoked", len(partitions)))

        def assigned(partitions: list[TopicPartition]) -> None:
            told.append(("assigned", len(partitions)))
            raise RuntimeError("what a callback raises does not kill the member")

        first.subscribe([TOPIC], on_assigned=assigned, on_revoked=revoked)
        poll_until(lambda: len(first.assignment()) == 6, first)
        second.subscribe([TOPIC])
        poll_until(lambda: len(second.assignment()) == 3, first, second)
        assert told == [("assigned", 6), ("revoked", 3)]
        assert all(second.committed([each])[each] == 7 for each in second.assignment())
        with pytest.raises(StaleMemberEpoch):
            first.commit({second.assignment()[0]: 9})
        deadline_s = time.monotonic() + 5.0
        while any(second.position(each) is None for each in second.assignment()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert {second.position(each) for each in second.assignment()} <= {7, 8, 9, 10}


@pytest.mark.dear("it waits for the end of a session")
def test_a_member_that_closes_silently_is_fenced_and_another_reads_on(cluster: Cluster) -> None:
    first, second = member(cluster, "silent"), member(cluster, "silent")
    first.subscribe([TOPIC])
    second.subscribe([TOPIC])
    poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 3, first, second)
    first.close(leave=False)
    began_s = time.monotonic()
    poll_until(lambda: len(second.assignment()) == 6, second)
    assert 2.0 < time.monotonic() - began_s < 6.0
    second.close()


@pytest.mark.dear("it kills brokers, and others take over")
def test_members_go_on_when_their_coordinator_is_killed(cluster: Cluster) -> None:
    group = "survives"
    with (
        member(cluster, group) as first,
        member(cluster, group) as second,
        Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
    ):
        for consumer in (first, second):
            consumer.subscribe([TOPIC])
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 3, first, second)
        before = first.assignment(), second.assignment()
        (described,) = admin.describe_topics([GROUPS_TOPIC_NAME])
        leader = described.partitions[coordinator_partition(group)].leader
        assert leader is not None
        cluster.kill(leader)
        try:
            deadline_s = time.monotonic() + 6.0  # twice the session time-out
            while time.monotonic() < deadline_s:
                for consumer in (first, second):
                    consumer.poll(timeout=0.1)
                assert (first.assignment(), second.assignment()) == before
            first.commit()
            third = member(cluster, group)
            third.subscribe([TOPIC])
            poll_until(lambda: len(third.assignment()) == 2, first, second, third)
            third.close()
        finally:
            cluster.start(leader)
            cluster.wait_running()


def test_a_member_skips_no_record_of_partitions_that_are_added(cluster: Cluster) -> None:
    """They are written to before the member learns of them, and its auto.offset.reset is latest."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("grows", num_partitions=1, replication_factor=3)])
        send(cluster, "grows", {0: b"before"})
        with member(cluster, "grows", auto_offset_reset="latest", metadata_max_age_ms=1_000) as consumer:
            consumer.subscribe(re.compile("grow.*"))
            poll_until(lambda: len(consumer.assignment()) == 1, consumer)
            poll_until(lambda: consumer.position(TopicPartition("grows", 0)) == 1, consumer)
            admin.alter_topic("grows", num_partitions=3)
            admin.create_topics([NewTopic("growing", num_partitions=1, replication_factor=3)])
            send(cluster, "grows", {1: b"one", 2: b"two"})
            send(cluster, "growing", {0: b"another"})
            found = poll_until(lambda: len(consumer.assignment()) == 4, consumer)
            found += poll_until(lambda: all(consumer.position(p) == 1 for p in consumer.assignment()), consumer)
    assert sorted(found) == [b"another", b"one", b"two"]


def test_a_plain_consumer_commits_while_there_is_none(cluster: Cluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "mixed"}
    with Consumer(settings) as plain:
        plain.commit({PARTITIONS[0]: 1})
        with member(cluster, "mixed") as first:
            first.subscribe([TOPIC])
            poll_until(lambda: len(first.assignment()) == 6, first)
            with pytest.raises(UnknownMemberId, match="has members, and only they commit"):
                plain.commit({PARTITIONS[0]: 2})
        plain.commit({PARTITIONS[0]: 3})


def test_a_static_member_comes_back_to_what_it_had(cluster: Cluster) -> None:
    with member(cluster, "static") as other:
        one = member(cluster, "static", group_instance_id="one")
        for consumer in (one, other):
            consumer.subscribe([TOPIC])
        poll_until(lambda: len(one.assignment()) == len(other.assignment()) == 3, one, other)
        had, others = one.assignment(), other.assignment()
        with member(cluster, "static", group_instance_id="one") as twin:
            twin.subscribe([TOPIC])
            with pytest.raises(UnreleasedInstanceId, match="instance id 'one' is of member"):
                poll_until(lambda: False, twin)
        one.close()
        with member(cluster, "static", group_instance_id="one") as again:
            again.subscribe([TOPIC])
            poll_until(lambda: len(again.assignment()) == 3, again, other)
            assert (sorted(again.assignment()), other.assignment()) == (sorted(had), others)


def test_the_command_line_shows_members_and_removes_one(cluster: Cluster) -> None:
    def minilog(*arguments: str) -> str:
        ended = programs.run(*arguments, "-b", cluster.bootstrap_servers)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with member(cluster, "seen", client_id="worker") as first:
        first.subscribe([TOPIC])
        poll_until(lambda: len(first.assignment()) == 6, first)
        found = json.loads(minilog("group", "describe", "seen", "--json"))
        assert (found["kind"], found["assignor"], found["epoch"]) == ("consumer", "uniform", 1)
        (shown,) = found["members"]
        assert (shown["client_id"], len(shown["assigned"])) == ("worker", 6)
        assert "shared 0-5" in minilog("group", "describe", "seen")
        assert "seen" in minilog("group", "list")
        lost: list[TopicPartition] = []
        first.close()
        with member(cluster, "seen") as second:
            second.subscribe([TOPIC], on_lost=lost.extend)
            poll_until(lambda: len(second.assignment()) == 6, second)
            minilog("group", "remove-member", "seen", second.group_metadata().member_id)
            poll_until(lambda: len(lost) == 6, second)
            poll_until(lambda: len(second.assignment()) == 6, second)


def test_a_transaction_commits_as_a_member(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        member(cluster, "transacting") as first,
        Producer({**servers, "transactional.id": "of-a-member"}) as producer,
    ):
        first.subscribe([TOPIC])
        poll_until(lambda: len(first.assignment()) == 6, first)
        with producer.transaction() as transaction:
            transaction.commit_offsets(first.group_metadata(), {PARTITIONS[0]: 4})
        assert first.committed([PARTITIONS[0]]) == {PARTITIONS[0]: 4}
        with pytest.raises(UnknownMemberId), producer.transaction() as transaction:
            transaction.commit_offsets("transacting", {PARTITIONS[0]: 5})


def test_a_member_neither_assigns_nor_polls_in_a_callback(cluster: Cluster) -> None:
    with member(cluster, "strict") as first:
        raised: list[Exception] = []

        def assigned(partitions: list[TopicPartition]) -> None:
            try:
                first.poll(timeout=0.0)
            except InvalidArgument as error:
                raised.append(error)

        first.subscribe([TOPIC], on_assigned=assigned)
        with pytest.raises(InvalidArgument, match="member of a group"):
            first.assign(PARTITIONS)
        poll_until(lambda: len(first.assignment()) == 6, first)
        assert raised


@pytest.mark.dear("it waits for the end of a session")
def test_a_member_that_iterates_is_alive_with_each_record_that_it_takes(cluster: Cluster) -> None:
    """One poll may take more records than a program handles within max.poll.interval.ms."""
    lost: list[TopicPartition] = []
    with member(cluster, "iterates", max_poll_interval_ms=1_000) as first:
        first.subscribe([TOPIC], on_lost=lost.extend)
        for _, _ in zip(range(60), first, strict=False):
            time.sleep(0.05)
        first.commit()
    assert lost == []


def test_an_asyncio_member_awaits_its_callbacks_and_iterates(cluster: Cluster) -> None:
    async def run() -> tuple[list[str], int]:
        told: list[str] = []
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "aio", "group.protocol": "consumer"}

        async def assigned(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append(f"assigned {len(partitions)}")

        async def revoked(partitions: list[TopicPartition]) -> None:
            await consumer.commit()
            told.append(f"revoked {len(partitions)}")

        count = 0
        async with aio.Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
            await consumer.subscribe([TOPIC], on_assigned=assigned, on_revoked=revoked)
            async for _ in consumer:
                count += 1
                if count == 60:
                    break
        return told, count

    assert asyncio.run(asyncio.wait_for(run(), 30.0)) == (["assigned 6", "revoked 6"], 60)


def test_the_command_line_reads_as_a_member(cluster: Cluster) -> None:
    servers = ("-b", cluster.bootstrap_servers)
    ended = programs.run("consume", TOPIC, "-g", "printed", "-c", "group.protocol=consumer", "-n", "60", *servers)
    assert ended.returncode == 0, ended.stderr
    assert sorted(map(int, ended.stdout.split())) == list(range(60))
    shown = json.loads(programs.run("group", "describe", "printed", "--json", *servers).stdout)
    assert (shown["kind"], [each["offset"] for each in shown["offsets"]]) == ("offsets", [10] * 6)
    refused = programs.run("consume", TOPIC, "-g", "printed", "-c", "group.protocol=consumer", "-p", "1", *servers)
    assert refused.returncode == 2
    assert "reads its share without end" in " ".join(refused.stderr.replace("│", " ").split())


def _session_ends_while_decoding(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, module: str) -> list[Consumer]:
    """The first poll that took records decodes them for longer than the member's session: no broker answers meanwhile.
    Returns a list for the consumer."""
    decode, consumers, slow = decode_all, list[Consumer](), [True]

    def decoding(taken: list[FetchedRun], *bounds: int) -> DecodeOutcome:
        outcome = decode(taken, *bounds)
        if taken and slow and consumers:
            slow.clear()
            for process in cluster.processes.values():
                process.send_signal(signal.SIGSTOP)
            group = consumers[0]._shell.group
            assert group is not None
            while group.member.may_hand_out(time.monotonic() * 1000.0):
                time.sleep(0.05)
            for process in cluster.processes.values():
                process.send_signal(signal.SIGCONT)
        return outcome

    monkeypatch.setattr(module, decoding)
    return consumers


@pytest.mark.dear("it waits for the end of a session")
@pytest.mark.parametrize(
    "form",
    ["poll", pytest.param("poll_arrow", marks=pytest.mark.long), pytest.param("iterate", marks=pytest.mark.long)],
)
def test_a_poll_hands_out_nothing_when_the_session_ends_while_it_decodes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    consumers = _session_ends_while_decoding(cluster, monkeypatch, "minilog.sync.base.consumer.decode_all")
    offsets: list[tuple[int, int]] = []
    losses: list[int] = []  # how many records the program had at each
    with member(cluster, f"slow-{form}") as consumer:
        consumer.subscribe([TOPIC], on_lost=lambda _: losses.append(len(offsets)))
        consumers.append(consumer)
        deadline_s = time.monotonic() + 40.0
        while len(offsets) < 60 and time.monotonic() < deadline_s:
            if form == "poll":
                offsets += [(record.partition, record.offset) for record in consumer.poll(timeout=0.2)]
            elif form == "poll_arrow":
                for batch in consumer.poll_arrow(timeout=0.2):
                    offsets += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
            else:
                record = next(consumer)
                offsets.append((record.partition, record.offset))
    assert losses == [0], "nothing was handed out before the loss"
    assert len(offsets) == len(set(offsets)) >= 60
