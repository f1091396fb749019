"""Members that ask for what no group gives are refused by name, and the members beside them read on."""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Iterator

import pytest

from minilog import Admin, Consumer, NewTopic, TopicPartition
from minilog.errors import GroupMaxSizeReached, InvalidArgument, StaleMemberEpoch, UnknownMemberId, UnsupportedAssignor
from minilog.limits import MAX_SUBSCRIBED_TOPICS, MAX_SUBSCRIPTION_BYTES
from tests.cluster import Cluster, running_cluster

pytestmark = pytest.mark.long

TOPIC, OTHER = "wanted", "not-subscribed"
PARTITIONS = 4
SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.max.size": "2",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: pathlib.Path = tmp_path_factory.mktemp("bad-members")
    with running_cluster(directory, brokers=1, settings=SETTINGS) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, replication_factor=1) for name in (TOPIC, OTHER)])
        yield running


def member(cluster: Cluster, group: str, **settings: object) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({**cluster.client, "group.id": group, "group.protocol": "consumer", **named})


def wait_for(consumer: Consumer, count: int, *others: Consumer, within_s: float = 20.0) -> None:
    """Until it has so many partitions; the others poll, too."""
    deadline_s = time.monotonic() + within_s
    while len(consumer.assignment()) != count:
        assert time.monotonic() < deadline_s, consumer.assignment()
        for polled in (consumer, *others):
            polled.poll(timeout=0.1)


def test_one_member_too_many_is_refused_until_another_leaves(cluster: Cluster) -> None:
    with member(cluster, "full") as first, member(cluster, "full") as third:
        second = member(cluster, "full")
        for consumer in (first, second):
            consumer.subscribe([TOPIC])
        wait_for(first, 2, second)
        wait_for(second, 2, first)
        third.subscribe([TOPIC])
        with pytest.raises(GroupMaxSizeReached, match="has 2 members"):
            wait_for(third, 2)
        assert (len(first.assignment()), len(second.assignment())) == (2, 2)
        second.close()
        wait_for(third, 2, first)


def test_an_assignor_that_no_broker_has_is_refused_with_those_that_there_are(cluster: Cluster) -> None:
    with member(cluster, "clever", group_remote_assignor="clever") as asking:
        asking.subscribe([TOPIC])
        with pytest.raises(UnsupportedAssignor, match="uniform, range"):
            wait_for(asking, PARTITIONS, within_s=5.0)
        with member(cluster, "clever") as modest:
            modest.subscribe([TOPIC])
            wait_for(modest, PARTITIONS)


def test_a_member_that_subscribes_to_four_thousand_topics_reads_those_that_are_there(cluster: Cluster) -> None:
    """Also one that is created later, of a name that the coordinator has not kept."""
    absent = [f"absent-{number}" for number in range(4_000)]
    with member(cluster, "many") as asking, Admin(cluster.client) as admin:
        asking.subscribe([TOPIC, *absent])
        wait_for(asking, PARTITIONS, within_s=60.0)
        [described] = admin.describe_group("many").members
        assert described.topics == [TOPIC]
        admin.create_topics([NewTopic(absent[7], 2, replication_factor=1)])
        wait_for(asking, PARTITIONS + 2, within_s=60.0)


def test_a_member_whose_subscription_is_too_long_is_refused_with_what_to_do(cluster: Cluster) -> None:
    with member(cluster, "long") as asking:
        asking.subscribe([TOPIC, *(f"{number}-{'x' * 200}" for number in range(400))])
        with pytest.raises(InvalidArgument, match=f"at most {MAX_SUBSCRIPTION_BYTES} bytes.*several groups"):
            wait_for(asking, PARTITIONS, within_s=60.0)


def test_a_member_that_subscribes_to_more_topics_is_refused_with_the_limit(cluster: Cluster) -> None:
    absent = [f"absent-{number}" for number in range(MAX_SUBSCRIBED_TOPICS)]
    with member(cluster, "too-many") as asking:
        asking.subscribe([TOPIC, *absent])
        with pytest.raises(InvalidArgument, match=f"at most {MAX_SUBSCRIBED_TOPICS}"):
            wait_for(asking, PARTITIONS, within_s=60.0)


def test_a_member_commits_nothing_of_partitions_that_it_was_never_given(cluster: Cluster) -> None:
    with member(cluster, "greedy") as greedy:
        greedy.subscribe([TOPIC])
        wait_for(greedy, PARTITIONS)
        with pytest.raises(StaleMemberEpoch):
            greedy.commit({TopicPartition(TOPIC, 0): 0, TopicPartition(OTHER, 0): 1})
        with Consumer({**cluster.client, "group.id": "greedy"}) as plain:
            asked = [TopicPartition(TOPIC, 0), TopicPartition(OTHER, 0)]
            assert plain.committed(asked) == dict.fromkeys(asked), "all of it was refused"


def test_a_member_whose_program_never_gives_back_is_out_by_name_and_another_reads(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its program waits in on_revoked, while its heartbeats go on."""
    lost: list[TopicPartition] = []
    settings = {"max_poll_interval_ms": 3_000}
    with member(cluster, "stubborn", **settings) as miser, member(cluster, "stubborn", **settings) as other:

        def revoked(partitions: list[TopicPartition]) -> None:
            wait_for(other, PARTITIONS, within_s=30.0)
            with pytest.raises(UnknownMemberId):
                miser.commit(dict.fromkeys(partitions, 0))

        miser.subscribe([TOPIC], on_revoked=revoked, on_lost=lost.extend)
        wait_for(miser, PARTITIONS)
        other.subscribe([TOPIC])
        deadline_s = time.monotonic() + 30.0
        while not lost:
            assert time.monotonic() < deadline_s
            other.poll(timeout=0.1)
            miser.poll(timeout=0.1)
    reason = (
        r"lost its partitions: (member '.*' of group '.*' did not give partitions back within|there was no poll for)"
    )
    assert re.search(reason + r" 3000 ms \(max\.poll\.interval\.ms\)", caplog.text), "whoever is faster says it"
    assert "raised" not in caplog.text, "what it commits is refused"
