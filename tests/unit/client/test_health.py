"""What is wrong with a cluster, told from its metadata: each kind with who has it and what to do."""

from __future__ import annotations

import pytest

from minilog.admin.health import ClusterHealth, Problem, judge
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2

RUNNING, FENCED, STOPPING = (
    metadata_pb2.BROKER_STATE_RUNNING,
    metadata_pb2.BROKER_STATE_FENCED,
    metadata_pb2.BROKER_STATE_STOPPING,
)


def cluster(partitions: int = 2, **configs: str) -> metadata_pb2.GetMetadataResponse:
    """Three brokers, all well, and a topic on all of them."""
    topic = metadata_pb2.TopicMetadata(name="flights", configs=configs)
    for number in range(partitions):
        topic.partitions.add(partition=number, leader_id=1, replicas=[1, 2, 3], in_sync_replicas=[1, 2, 3])
    return metadata_pb2.GetMetadataResponse(
        cluster_id="c",
        controller_id=2,
        brokers=[metadata_pb2.BrokerMetadata(broker_id=each, state=RUNNING) for each in (1, 2, 3)],
        voters=[metadata_pb2.VoterMetadata(broker_id=each, directory_id=b"d%d" % each) for each in (1, 2, 3)],
        topics=[topic],
    )


def problems(answer: metadata_pb2.GetMetadataResponse) -> dict[str, Problem]:
    found = {each.code: each for each in judge(answer).problems}
    assert all(each.message and each.remedy for each in found.values())
    return found


def test_a_cluster_that_is_well_has_no_problems() -> None:
    found: ClusterHealth = judge(cluster())
    assert (found.healthy, found.problems, found.topic_count, found.partition_count) == (True, [], 1, 2)


def test_a_cluster_without_a_controller() -> None:
    answer = cluster()
    answer.controller_id = -1
    assert "voters 1, 2, 3" in problems(answer)["NO_CONTROLLER"].remedy


@pytest.mark.parametrize(("state", "code"), [(FENCED, "BROKER_FENCED"), (STOPPING, "BROKER_STOPPED")])
def test_a_broker_that_is_not_there_and_what_it_leaves(state: metadata_pb2.BrokerState.ValueType, code: str) -> None:
    answer = cluster()
    answer.brokers[2].state = state
    for each in answer.topics[0].partitions:
        del each.in_sync_replicas[2:]
    found = problems(answer)
    assert list(found) == [code, "PARTITION_UNDER_REPLICATED"]
    assert (found[code].brokers, found["PARTITION_UNDER_REPLICATED"].brokers) == ([3], [3])
    assert found["PARTITION_UNDER_REPLICATED"].partitions == [
        TopicPartition("flights", 0),
        TopicPartition("flights", 1),
    ]


def test_a_broker_that_does_not_know_the_rules_of_now() -> None:
    """One that is fenced is named as that."""
    answer = cluster()
    answer.brokers[2].metadata_is_late = answer.brokers[1].metadata_is_late = True
    answer.brokers[1].state = FENCED
    found = problems(answer)
    assert list(found) == ["BROKER_FENCED", "BROKER_BEHIND"]
    assert (found["BROKER_FENCED"].brokers, found["BROKER_BEHIND"].brokers) == ([2], [3])
    assert all("they refuse clients" in each.message for each in found.values())


def test_brokers_without_the_listener_that_was_asked() -> None:
    answer = cluster()
    answer.listener = "outside"
    answer.unreachable_brokers.append(answer.brokers[2])
    del answer.brokers[2]
    answer.unreachable_brokers[0].no_space = True
    found = problems(answer)
    assert (found["LISTENER_NOT_FOUND"].brokers, found["DISK_FULL"].brokers) == ([3], [3])
    assert "have no listener 'outside'" in found["LISTENER_NOT_FOUND"].message
    assert [each.id for each in judge(answer).cluster.brokers] == [1, 2, 3]


def test_a_voter_that_lost_its_directory() -> None:
    answer = cluster()
    answer.voters[1].lost = True
    assert "replace-voter 2" in problems(answer)["VOTER_LOST"].remedy


def test_a_voter_that_moved_and_an_even_number_of_voters() -> None:
    answer = cluster()
    answer.voters[1].moved = True
    assert "VOTERS_EVEN" not in problems(answer)
    answer.voters.add(broker_id=4)
    assert "minilog cluster move-voter 2" in problems(answer)["VOTER_MOVED"].remedy
    assert "there are 4 voters" in problems(answer)["VOTERS_EVEN"].message


def test_a_full_disk_and_replicas_that_are_offline_or_damaged() -> None:
    answer = cluster()
    answer.brokers[0].no_space = True
    answer.brokers[1].disk_stalled = True
    answer.topics[0].partitions[0].offline_replicas.append(2)
    answer.topics[0].partitions[1].damaged_replicas.append(3)
    found = problems(answer)
    assert {code: (each.brokers, [at.partition for at in each.partitions]) for code, each in found.items()} == {
        "DISK_FULL": ([1], []),
        "DISK_STALLED": ([2], []),
        "REPLICA_DAMAGED": ([3], [1]),
        "REPLICA_OFFLINE": ([2], [0]),
    }


def test_copies_that_differ_wait_for_an_operator() -> None:
    answer = cluster()
    answer.topics[0].partitions[1].copies_differ = True
    found = problems(answer)
    assert list(found) == ["COPIES_DIFFER"]
    assert found["COPIES_DIFFER"].partitions == [TopicPartition("flights", 1)]
    assert found["COPIES_DIFFER"].brokers == sorted(answer.topics[0].partitions[1].replicas)
    assert "MinilogScrubUndecided" in found["COPIES_DIFFER"].remedy


def test_a_compaction_that_is_late_is_named_with_its_broker() -> None:
    answer = cluster()
    answer.topics[0].partitions[1].late_cleaning_replicas.append(3)
    late = problems(answer)["CLEANER_LATE"]
    assert (late.brokers, late.partitions) == ([3], [TopicPartition("flights", 1)])
    assert "log.cleaner.io.max.bytes.per.second" in late.remedy


def test_partitions_without_a_leader_come_first() -> None:
    answer = cluster()
    bad = answer.topics[0].partitions[1]
    bad.leader_id = -1
    del bad.in_sync_replicas[1:]
    found = problems(answer)
    assert list(found) == ["PARTITION_WITHOUT_LEADER", "PARTITION_BELOW_MIN_ISR", "PARTITION_UNDER_REPLICATED"]
    assert "flights-1" in found["PARTITION_WITHOUT_LEADER"].message


@pytest.mark.parametrize(
    ("least", "in_sync", "below"), [("3", 2, True), ("2", 2, False), ("9", 3, False), ("", 1, True)]
)
def test_below_min_isr_is_by_the_topics_own_number(least: str, in_sync: int, below: bool) -> None:
    answer = cluster(1, **{"min.insync.replicas": least})
    del answer.topics[0].partitions[0].in_sync_replicas[in_sync:]
    assert ("PARTITION_BELOW_MIN_ISR" in problems(answer)) is below


def test_a_replica_that_is_being_added_is_no_problem() -> None:
    answer = cluster(1)
    partition = answer.topics[0].partitions[0]
    partition.replicas.append(4)
    partition.adding_replicas.append(4)
    assert problems(answer) == {}


def test_a_message_names_ten_partitions_and_the_problem_all() -> None:
    answer = cluster(300)
    for each in answer.topics[0].partitions:
        each.leader_id = -1
    problem = problems(answer)["PARTITION_WITHOUT_LEADER"]
    assert len(problem.partitions) == 300
    assert len(problem.message) < 300
    assert "and 290 more" in problem.message
