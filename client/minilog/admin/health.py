"""The problems of a cluster and their remedies, judged from one answer of metadata. No I/O.

    NO_CONTROLLER               topics cannot change, and no leader is elected in the place of a dead one
    ADDRESS_NOT_REACHED         a broker runs, but this client cannot connect to the address that it advertises, or can
                                open no stream beside it
    BROKER_FENCED, _STOPPED     a broker is down, hangs, or is cut off; or somebody stopped it
    BROKER_BEHIND               a broker does not know the latest metadata, and refuses clients that log in
    VOTER_LOST, _MOVED          a voter runs with another data directory and does not vote; or others do not reach it
    VOTERS_EVEN                 an even number of voters survives no more losses than one voter less
    DISK_FULL                   a broker takes no records
    PARTITION_WITHOUT_LEADER    nobody can write or read the partition
    REPLICA_DAMAGED, _OFFLINE   a copy lacks committed records; or a broker cannot read or write its log
    COPIES_DIFFER               a scrub found other records in copies, no majority agrees, and an operator has to choose
    CLEANER_LATE                the compaction of a copy is not done an hour after it began
    PARTITION_BELOW_MIN_ISR     the leader refuses acks=all
    PARTITION_UNDER_REPLICATED  a copy is missing, so the partition survives fewer failures than planned

One kind is one problem, whatever its number of partitions. Only the active controller knows the state that a broker
reports of itself. So without a controller DISK_FULL, REPLICA_OFFLINE, COPIES_DIFFER, CLEANER_LATE and BROKER_BEHIND do
not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from minilog.admin.messages import describe_cluster
from minilog.types import ClusterDescription, TopicPartition, VoterDescription
from minilog.v1 import metadata_pb2

_SHOWN = 10  # partitions that a message names. `partitions` has all of them
_DEFAULT_MIN_ISR = 2  # for brokers that do not send this setting of a topic
_REFUSING = "With access rules they refuse clients, unless stale.access.rules.enable is set there"

_Partition = metadata_pb2.PartitionMetadata


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of problem: a stable code, the problem, the remedy, and the brokers and partitions that have it."""

    code: str
    message: str
    remedy: str
    brokers: list[int] = field(default_factory=list)
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The cluster, its numbers of topics and partitions, and its problems, the worst first. A healthy cluster has
    none."""

    cluster: ClusterDescription
    topic_count: int
    partition_count: int
    problems: list[Problem]

    @property
    def healthy(self) -> bool:
        return not self.problems


def is_running(broker: metadata_pb2.BrokerMetadata) -> bool:
    """Whether the broker runs, by the controller's metadata."""
    return broker.state == metadata_pb2.BROKER_STATE_RUNNING


def is_from_controller(answer: metadata_pb2.GetMetadataResponse) -> bool:
    """Whether the answer is the active controller's. Only its answer has the metadata offsets of brokers."""
    return any(broker.HasField("metadata_offset") for broker in (*answer.brokers, *answer.unreachable_brokers))


def judge(
    answer: metadata_pb2.GetMetadataResponse, not_reached: Mapping[int, str] = MappingProxyType({})
) -> ClusterHealth:
    """The health of a cluster by the metadata of all its topics. `not_reached`: the running brokers that this client
    cannot connect to, each with its address and the reason."""
    topics = [topic for topic in answer.topics if not topic.error.code]
    count = sum(len(topic.partitions) for topic in topics)
    problems = [*_of_brokers(answer, not_reached), *_of_partitions(topics)]
    return ClusterHealth(describe_cluster(answer), len(topics), count, problems)


def _of_brokers(answer: metadata_pb2.GetMetadataResponse, not_reached: Mapping[int, str]) -> Iterable[Problem]:
    cluster = describe_cluster(answer)
    every = [*answer.brokers, *answer.unreachable_brokers]
    if cluster.controller is None:
        voters = _join(voter.id for voter in cluster.voters)
        yield Problem(
            "NO_CONTROLLER",
            "there is no active controller: topics cannot change, and no leader is elected in the place of a dead one",
            f"a majority of the voters {voters} must run and reach each other: start the voters that are down",
        )
    elif not_reached:  # without a controller it is not known which brokers run
        named = ", ".join(f"broker {broker_id} at {where}" for broker_id, where in sorted(not_reached.items()))
        yield Problem(
            "ADDRESS_NOT_REACHED",
            f"brokers run, but this client cannot connect to them: {named}",
            "let each broker advertise an address that its clients can reach (advertised.address, or "
            "advertised.listeners for a named listener), or open the network between them. A client needs the port of "
            "streams, too, which is stream.port.offset above that of calls",
            sorted(not_reached),
        )
    if fenced := [broker.id for broker in cluster.brokers if broker.state == "fenced"]:
        yield Problem(
            "BROKER_FENCED",
            f"the controller does not hear from brokers {_join(fenced)}. They are dead, hung, or cut off from it. "
            f"{_REFUSING}",
            "look at their processes, logs and network, and start the brokers that are down",
            fenced,
        )
    late = {broker.broker_id for broker in every if broker.metadata_is_late}
    if behind := [broker.id for broker in cluster.brokers if broker.id in late and broker.state == "running"]:
        yield Problem(
            "BROKER_BEHIND",
            f"brokers {_join(behind)} do not know the latest users, rules and topics. {_REFUSING}",
            "check that they reach the controller, and check the disks of their metadata logs",
            behind,
        )
    if stopped := [broker.id for broker in cluster.brokers if broker.state == "stopping"]:
        yield Problem("BROKER_STOPPED", f"somebody stopped brokers {_join(stopped)}", "start them again", stopped)
    if elsewhere := sorted(broker.broker_id for broker in answer.unreachable_brokers):
        yield Problem(
            "LISTENER_NOT_FOUND",
            f"brokers {_join(elsewhere)} have no listener {answer.listener!r}, so clients of this listener cannot "
            "reach them",
            "give them that listener (listeners), or let clients use a listener that all brokers have",
            elsewhere,
        )
    yield from _of_voters(cluster.voters)
    if full := sorted(broker.broker_id for broker in every if broker.no_space):
        yield Problem(
            "DISK_FULL",
            f"the disks of brokers {_join(full)} are full: they take no records",
            "free space, or let topics keep less (retention.bytes, minilog topic trim). They go on by themselves",
            full,
        )
    if stalled := sorted(broker.broker_id for broker in every if broker.disk_stalled):
        yield Problem(
            "DISK_STALLED",
            f"the disks of brokers {_join(stalled)} do not answer: they take no records",
            "look at the disks, and at the kernel's log. They go on by themselves when their disks answer",
            stalled,
        )


def _of_voters(voters: Sequence[VoterDescription]) -> Iterable[Problem]:
    for voter in voters:
        if voter.lost:
            yield Problem(
                "VOTER_LOST",
                f"voter {voter.id} runs with another data directory than {voter.directory_id}, and does not vote",
                f"give it that directory back. If it is lost for good: minilog cluster replace-voter {voter.id}",
                [voter.id],
            )
        if voter.moved:
            yield Problem(
                "VOTER_MOVED",
                f"voter {voter.id} is registered at another address than the recorded one, where the other voters do "
                "not reach it",
                f"record the new address: minilog cluster move-voter {voter.id}",
                [voter.id],
            )
    if voters and len(voters) % 2 == 0:
        yield Problem(
            "VOTERS_EVEN",
            f"there are {len(voters)} voters, and they survive no more losses than {len(voters) - 1} would",
            "add a voter, or remove one: minilog cluster add-voter ID, minilog cluster remove-voter ID",
            [voter.id for voter in voters],
        )


def _of_partitions(topics: list[metadata_pb2.TopicMetadata]) -> Iterable[Problem]:
    def problem(code: str, what: str, remedy: str, bad: Callable[[_Partition, int], Iterable[int] | None]) -> None:
        """A problem of the partitions for which `bad` returns brokers, or an empty list without a guilty broker."""
        brokers: set[int] = set()
        partitions: list[TopicPartition] = []
        for topic in topics:
            least = _min_isr(topic)
            for partition in topic.partitions:
                if (affected := bad(partition, least)) is not None:
                    brokers.update(affected)
                    partitions.append(TopicPartition(topic.name, partition.partition))
        if partitions:
            found_problems.append(Problem(code, f"{_named(partitions)} {what}", remedy, sorted(brokers), partitions))

    found_problems: list[Problem] = []
    problem(
        "PARTITION_WITHOUT_LEADER",
        "have no leader: nothing can be written or read",
        "start the brokers that have their replicas. If these are lost for good, unclean.leader.election.enable lets "
        "another copy lead, which may lose records",
        lambda partition, _: None if partition.leader_id >= 0 else set(partition.replicas),
    )
    problem(
        "REPLICA_DAMAGED",
        "have a copy that lacks committed records",
        "look at the disk of that broker, unless its log says that the copy differs: then the checksums are right, and "
        "the disk is not to blame. While another copy leads, the broker fetches the records again",
        lambda partition, _: partition.damaged_replicas or None,
    )
    problem(
        "REPLICA_OFFLINE",
        "have a copy whose log cannot be read or written",
        "look at the disk and the log of that broker, mend it, and start the broker again",
        lambda partition, _: partition.offline_replicas or None,
    )
    problem(
        "COPIES_DIFFER",
        "have copies of the same records that differ, all with right checksums, and no majority of the replicas agrees",
        "a scrub changes nothing there. Its log line on the leader names the offsets and the brokers: read these "
        "records on each of them, and keep the right copy as docs/operating/alerts.md says of MinilogScrubUndecided",
        lambda partition, _: partition.replicas if partition.copies_differ else None,
    )
    problem(
        "PARTITION_BELOW_MIN_ISR",
        "have fewer replicas in sync than min.insync.replicas: acks=all is refused",
        "start the brokers that are missing, or find out why they do not keep up",
        lambda partition, least: (
            _missing(partition) if len(partition.in_sync_replicas) < min(least, len(partition.replicas)) else None
        ),
    )
    problem(
        "PARTITION_UNDER_REPLICATED",
        "have replicas that are not in sync",
        "start the brokers that are missing, or find out why they do not keep up. A broker catches up after its start",
        lambda partition, _: _missing(partition) or None,
    )
    problem(
        "CLEANER_LATE",
        "have a copy whose compaction is not done an hour after it began: it keeps older records and grows",
        "see that log.cleaner.enable is true there, and look for the cleaner's errors in the log of that broker. If "
        "there are none, raise log.cleaner.io.max.bytes.per.second, and log.cleaner.dedupe.buffer.size for topics of "
        "many keys",
        lambda partition, _: partition.late_cleaning_replicas or None,
    )
    return found_problems


def _missing(partition: _Partition) -> list[int]:
    """The replicas that are out of sync, without the ones that a reassignment is only adding."""
    expected = set(partition.replicas) - set(partition.adding_replicas)
    return sorted(expected - set(partition.in_sync_replicas))


def _min_isr(topic: metadata_pb2.TopicMetadata) -> int:
    configured = topic.configs.get("min.insync.replicas", "")
    return int(configured) if configured.isdigit() else _DEFAULT_MIN_ISR


def _named(partitions: list[TopicPartition]) -> str:
    names = ", ".join(f"{partition.topic}-{partition.partition}" for partition in partitions[:_SHOWN])
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return f"{len(partitions)} partitions ({names}{more})"


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
