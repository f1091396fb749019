"""What is refused: judged by name whatever a request names it by, told alike to a client, and told truly to the audit
log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from minilog.errors import (
    MAX_MESSAGE_CHARACTERS,
    AuthorizationFailed,
    InvalidTopic,
    MinilogError,
    UnknownTopicId,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.security.access_rules import CLUSTER_NAME
from minilog.v1 import admin_pb2, common_pb2, coordinator_pb2, data_pb2, metadata_pb2, queue_pb2, security_pb2
from minilog_broker.controller.image import TopicImage
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.security.access import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.principal import BROKER, Principal
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.table import ROWS, OfPeers
from minilog_broker.server.ingress.rules.admission import methods
from minilog_broker.server.ingress.rules.arrival import arrival_of
from minilog_broker.server.ingress.rules.gate import MAX_DETAILS_CHARACTERS, PeerGate, details_of
from minilog_broker.server.services.access_checks import DataAccess, TopicsAsked, check_may_write
from minilog_broker.server.services.metadata_service import protocol_refusal
from tests.unit.server.test_gate import ALICE, HOST, VOTE, Call, World, allows

FLIGHTS, SALARIES, NONE = b"f" * 16, b"s" * 16, b"0" * 16
IDS = {"flights": FLIGHTS, "salaries": SALARIES}
DELETE_TOPICS = "/minilog.v1.AdminService/DeleteTopics"
FETCH = "/minilog.v1.DataService/Fetch"
PRODUCE = "/minilog.v1.DataService/Produce"
GET_METADATA = "/minilog.v1.MetadataService/GetMetadata"
TOPIC, GROUP, TRANSACTION = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTIONAL_ID


def rule(
    operation: Operation, name: str, kind: ResourceKind = TOPIC, permission: Permission = Permission.ALLOW
) -> AccessRule:
    return AccessRule("User:alice", "*", operation, kind, name, Pattern.LITERAL, permission)


def world(*rules: AccessRule) -> World:
    made = World(*rules)
    for name, topic_id in IDS.items():
        made.image.topics[topic_id] = TopicImage(name, topic_id, internal=False)
        made.image.topic_ids[name] = topic_id
    return made


def alice(made: World, path: str) -> Caller:
    return Caller(ALICE, HOST, path, made.policy)


def partition(topic_id: bytes) -> common_pb2.PartitionId:
    return common_pb2.PartitionId(topic_id=topic_id)


def checked(made: World, path: str, request: Message) -> MinilogError | None:
    try:
        made.gate.check(path, alice(made, path), request, is_first=True)
    except MinilogError as error:
        return error
    return None


def deletion(*topic_ids: bytes) -> admin_pb2.DeleteTopicsRequest:
    return admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(topic_id=each) for each in topic_ids])


BY_ID: dict[str, Callable[[bytes], Message]] = {
    DELETE_TOPICS: lambda topic_id: deletion(topic_id),
    "/minilog.v1.DataService/DeleteRecords": lambda topic_id: data_pb2.DeleteRecordsRequest(
        entries=[data_pb2.DeleteRecordsEntry(partition_id=partition(topic_id))]
    ),
    "/minilog.v1.MetadataService/ListOffsets": lambda topic_id: metadata_pb2.ListOffsetsRequest(
        entries=[metadata_pb2.ListOffsetsEntry(partition_id=partition(topic_id))]
    ),
    "/minilog.v1.GroupService/CommitOffsets": lambda topic_id: coordinator_pb2.CommitOffsetsRequest(
        group_id="g", offsets=[coordinator_pb2.OffsetToCommit(partition_id=partition(topic_id))]
    ),
    "/minilog.v1.QueueService/Lease": lambda topic_id: queue_pb2.LeaseRequest(queue="g", topic_ids=[topic_id]),
    "/minilog.v1.QueueService/Settle": lambda topic_id: queue_pb2.SettleRequest(
        queue="g", settlements=[queue_pb2.Settlement(partition_id=partition(topic_id))]
    ),
    "/minilog.v1.QueueService/Redrive": lambda topic_id: queue_pb2.RedriveRequest(
        queue="g",
        letters_partition_id=partition(topic_id),
        letters=[queue_pb2.Letter(partition_id=partition(topic_id))],
    ),
}
"""The calls that the gate refuses for a topic that they name by its id."""
OPERATION = {DELETE_TOPICS: Operation.DELETE}
OPERATION["/minilog.v1.DataService/DeleteRecords"] = Operation.DELETE
OPERATION["/minilog.v1.MetadataService/ListOffsets"] = Operation.DESCRIBE
OPERATION["/minilog.v1.GroupService/CommitOffsets"] = Operation.READ
OPERATION["/minilog.v1.QueueService/Lease"] = OPERATION["/minilog.v1.QueueService/Settle"] = Operation.READ
OPERATION["/minilog.v1.QueueService/Redrive"] = Operation.READ
READS_GROUP = rule(Operation.READ, "g", GROUP)

IN_SERVICES = {"ProduceRequest.entries.partition_id", "FetchRequest.positions.partition_id"}
IN_SERVICES |= {"GetMetadataRequest.topic_ids"}
SHOWN = {"FetchOffsetsRequest.partitions"}
JUDGED_BY_ANOTHER_NAME = {
    "FetchRequest.forgotten",  # of the stream's own positions
    "EndTransactionRequest.winners.partitions.partition_id",  # where each was registered when it was written
    "DeleteGroupRequest.partitions",  # who may delete the group may delete its parts
    "MemberRequest.owned_partitions",  # those that its own coordinator gave the member
}


def fields_of_ids(kind: Descriptor, path: str, seen: tuple[Descriptor, ...] = ()) -> Iterator[str]:
    """Where a message names topics by their ids."""
    for field in kind.fields:
        here = f"{path}.{field.name}"
        message = field.message_type
        if field.name in ("topic_id", "topic_ids") or (message is not None and message.name == "PartitionId"):
            yield here
        elif message is not None and message not in seen:
            yield from fields_of_ids(message, here, (*seen, kind))


def test_every_id_of_a_topic_that_a_client_can_name_is_judged() -> None:
    """All fields of all calls: a new one belongs into one of these sets, with its test."""
    of_gate = {
        "DeleteTopicsRequest.topics.topic_id",
        "DeleteRecordsRequest.entries.partition_id",
        "ListOffsetsRequest.entries.partition_id",
        "CommitOffsetsRequest.offsets.partition_id",
        "LeaseRequest.topic_ids",
        "SettleRequest.settlements.partition_id",
        "RedriveRequest.letters.partition_id",
    }
    assert len(of_gate) == len(BY_ID)
    of_gate |= {"RedriveRequest.letters_partition_id", "SettleRequest.rewritten.letters_partition_id"}
    found = {
        field
        for each in methods()
        if not isinstance(ROWS[f"/{each.containing_service.full_name}/{each.name}"], OfPeers)
        for field in fields_of_ids(each.input_type, each.input_type.name)
    }
    assert found == of_gate | IN_SERVICES | SHOWN | JUDGED_BY_ANOTHER_NAME


class TestIdsAreJudgedByName:
    def test_a_deletion_by_id_is_judged_by_the_name(self) -> None:
        """Everything is allowed but one name: by id it was let through, and the log had no name."""
        made = world(rule(Operation.ALL, "*"), rule(Operation.DELETE, "salaries", permission=Permission.DENY))
        refused = checked(made, DELETE_TOPICS, deletion(SALARIES))
        assert isinstance(refused, AuthorizationFailed)
        assert "delete topic 'salaries'" in str(refused)
        assert [(each.decision, each.resource) for each in made.told] == [(Decision.DENIED, "topic:salaries")]

    def test_calls_allowed_by_id_are_audited_by_name(self) -> None:
        made = world(rule(Operation.DELETE, "flights"))
        assert checked(made, DELETE_TOPICS, deletion(FLIGHTS)) is None
        assert [(each.decision, each.resource) for each in made.told] == [(Decision.ALLOWED, "topic:flights")]

    @pytest.mark.parametrize("path", BY_ID)
    def test_each_call_by_id_is_judged_by_the_name(self, path: str) -> None:
        made = world(READS_GROUP, rule(Operation.ALL, "*"), rule(OPERATION[path], "salaries", TOPIC, Permission.DENY))
        assert checked(made, path, BY_ID[path](FLIGHTS)) is None
        assert checked(made, path, BY_ID[path](SALARIES)) is not None

    def test_a_name_and_an_id_are_judged_by_the_name(self) -> None:
        """The controller deletes nothing where they are not of one topic."""
        made = world(rule(Operation.DELETE, "flights"))
        request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(name="salaries", topic_id=FLIGHTS)])
        assert isinstance(checked(made, DELETE_TOPICS, request), AuthorizationFailed)


class TestAMissingTopicAndAForbiddenOneAreToldAlike:
    @pytest.mark.parametrize("path", BY_ID)
    def test_by_the_gate(self, path: str) -> None:
        made = world(READS_GROUP)
        missing, forbidden = (checked(made, path, BY_ID[path](each)) for each in (NONE, SALARIES))
        assert type(missing) is type(forbidden) is UnknownTopicId
        assert str(missing).replace(NONE.hex(), "ID") == str(forbidden).replace(SALARIES.hex(), "ID")

    @pytest.mark.parametrize("path", BY_ID)
    def test_the_first_of_a_request_is_told(self, path: str) -> None:
        made = world(READS_GROUP)
        request = BY_ID[path](NONE)
        request.MergeFrom(BY_ID[path](SALARIES))
        assert NONE.hex() in str(checked(made, path, request))

    def test_by_produce_and_fetch(self) -> None:
        made = world()
        access = DataAccess(made.image)
        told = []
        for topic_id in (NONE, SALARIES):
            with alice(made, PRODUCE).refusals() as refusals:
                told.append(str(access.refuses_write(refusals, PartitionKey(topic_id, 0), None)))
            request = data_pb2.FetchRequest(positions=[data_pb2.FetchPosition(partition_id=partition(topic_id))])
            (run,) = access.take_out_refused(alice(made, FETCH), request).runs
            told.append(run.error.message)
            assert not request.positions
        assert len({each.replace(NONE.hex(), "ID").replace(SALARIES.hex(), "ID") for each in told}) == 1

    def test_a_long_id_is_cut(self) -> None:
        assert len(str(checked(world(), DELETE_TOPICS, deletion(b"x" * 3_000_000)))) < 500


class TestTheAuditLogIsToldTheTruth:
    @pytest.mark.parametrize("path", BY_ID)
    def test_of_what_may_not_even_be_described(self, path: str) -> None:
        made = world(READS_GROUP)
        checked(made, path, BY_ID[path](SALARIES))
        (told,) = made.told
        assert (told.decision, told.resource) == (Decision.DENIED, "topic:salaries")
        assert told.operation == OPERATION[path].value
        assert "describe" in told.reason

    def test_of_reads_and_writes_of_anothers_data(self) -> None:
        made = world(rule(Operation.WRITE, "flights"))
        access = DataAccess(made.image)
        with alice(made, PRODUCE).refusals() as refusals:
            assert access.refuses_write(refusals, PartitionKey(FLIGHTS, 0), None) is None
            assert access.refuses_write(refusals, PartitionKey(SALARIES, 0), None) is not None
            transaction = TransactionalWrite("report", 0)
            assert access.refuses_write(refusals, PartitionKey(FLIGHTS, 0), transaction) is not None
        request = data_pb2.FetchRequest(positions=[data_pb2.FetchPosition(partition_id=partition(SALARIES))])
        access.take_out_refused(alice(made, FETCH), request)
        assert [(each.method, each.operation, each.resource) for each in made.told] == [
            (PRODUCE, "write", "topic:salaries"),
            (PRODUCE, "write", "transactional-id:report"),
            (FETCH, "read", "topic:salaries"),
        ]

    def test_of_an_id_that_no_topic_has_nothing_is_told(self) -> None:
        """Nobody was refused: it was deleted a moment ago."""
        made = world(READS_GROUP)
        for path, request_of in BY_ID.items():
            checked(made, path, request_of(NONE))
        assert made.told == []

    def test_of_partitions_that_an_answer_leaves_out(self) -> None:
        made = world(READS_GROUP)
        request = coordinator_pb2.FetchOffsetsRequest(group_id="g", partitions=[partition(SALARIES), partition(NONE)])
        assert checked(made, "/minilog.v1.GroupService/FetchOffsets", request) is None
        assert [(each.operation, each.resource) for each in made.told] == [("describe", "topic:salaries")]

    def test_of_a_call_for_brokers_the_caller_who_is_logged_in(self) -> None:
        async def scenario() -> World:
            made = world()
            with pytest.raises(AuthorizationFailed, match="is not for clients"):
                made.gate.admit(VOTE, arrival_of(Call(session=made.session())))
            return made

        (told,) = asyncio.run(scenario()).told
        assert (told.principal, told.method) == (str(ALICE), VOTE)

    def test_of_a_strangers_call_for_brokers_what_it_was(self) -> None:
        made = world()

        async def scenario() -> None:
            with pytest.raises(AuthorizationFailed, match="is not for clients"):
                made.gate.admit(VOTE, arrival_of(Call()))

        asyncio.run(scenario())
        assert [each.principal for each in made.told] == ["User:ANONYMOUS"]

    def test_of_a_session_that_comes_from_another_host(self) -> None:
        """Somebody may have it who should not; the client is told what it is told of one that nobody gave."""

        async def scenario() -> tuple[World, list[str]]:
            made = world()
            said = []
            for session in (made.session(host="10.0.0.8"), b"x" * 32):
                with pytest.raises(MinilogError) as caught:
                    made.gate.admit(GET_METADATA, arrival_of(Call(session=session)))
                said.append(str(caught.value))
            return made, said

        made, said = asyncio.run(scenario())
        assert len(set(said)) == 1
        assert [each.resource for each in made.told] == ["user:alice", ""]
        assert "10.0.0.8" in made.told[0].reason

    def test_of_a_certificate_that_is_no_users_the_name_in_it(self) -> None:
        made = World(is_sasl=False)

        async def scenario() -> None:
            with pytest.raises(MinilogError):
                made.gate.admit(GET_METADATA, arrival_of(Call(name="broker:minilog:1")))

        asyncio.run(scenario())
        assert [each.resource for each in made.told] == ["user:broker:minilog:1"]

    def test_of_a_clients_call_on_the_brokers_listener_the_broker(self) -> None:
        made = world()
        gate = PeerGate("minilog", made.image, made.told.append)
        with pytest.raises(AuthorizationFailed):
            gate.admit(GET_METADATA, arrival_of(Call(name="broker:minilog:2")))
        assert [each.principal for each in made.told] == [str(Principal(BROKER, "minilog:2"))]


class TestManyNamesOfOneRequest:
    def test_the_important_one_is_told_first_and_the_others_are_counted(self) -> None:
        """Ten dummy names before it, each refused, hid the eleventh."""
        made = world(rule(Operation.DESCRIBE, "*"))
        dummies = [f"dummy-{number}" for number in range(10)]
        request = admin_pb2.DeleteTopicsRequest(
            topics=[admin_pb2.TopicDeletion(name=each) for each in (*dummies, "salaries")]
        )
        refused = checked(made, DELETE_TOPICS, request)
        assert "topic 'dummy-0'" in str(refused)  # the client is told of the first one
        (told,) = made.told
        assert told.resource == "topic:salaries"
        assert told.others == tuple(f"topic:{each}" for each in dummies)

    def test_allowed_names_are_audited_in_one_event(self) -> None:
        made = world(rule(Operation.CREATE, "*"))
        names = [f"t{number}" for number in range(100)]
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=each) for each in names])
        assert checked(made, "/minilog.v1.AdminService/CreateTopics", request) is None
        (told,) = made.told
        assert (told.decision, told.resource, *told.others) == (Decision.ALLOWED, *(f"topic:{each}" for each in names))

    def test_topics_of_a_validation_are_not_audited_as_made(self) -> None:
        made = world(rule(Operation.CREATE, "*"))
        request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t")], validate_only=True)
        assert checked(made, "/minilog.v1.AdminService/CreateTopics", request) is None
        assert made.told == []

    def test_a_request_refused_as_a_whole_is_not_audited_as_allowed(self) -> None:
        made = world(rule(Operation.DELETE, "flights"))
        request = admin_pb2.DeleteTopicsRequest(
            topics=[admin_pb2.TopicDeletion(name=each) for each in ("flights", "salaries")]
        )
        assert checked(made, DELETE_TOPICS, request) is not None
        assert [(each.decision, each.resource) for each in made.told] == [(Decision.DENIED, "topic:salaries")]

    def test_a_message_of_a_stream_is_one_event(self) -> None:
        made = world()
        access = DataAccess(made.image)
        for number in range(20):
            made.image.topics[bytes([number]) * 16] = TopicImage(f"d{number}", bytes([number]) * 16, internal=False)
        ids = [*(bytes([number]) * 16 for number in range(20)), SALARIES]
        request = data_pb2.FetchRequest(
            positions=[data_pb2.FetchPosition(partition_id=partition(each)) for each in ids]
        )
        assert len(access.take_out_refused(alice(made, FETCH), request).runs) == 21
        (told,) = made.told
        assert "topic:salaries" in (told.resource, *told.others)
        assert len(told.others) == 20

    def test_a_name_of_three_megabytes_is_cut_where_it_is_shown(self) -> None:
        made = world()
        request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(name="x" * 3_000_000)])
        assert len(str(checked(made, DELETE_TOPICS, request))) < 500
        assert len(made.told[0].reason) < 500


SECURITY = "/minilog.v1.SecurityService/"
ADMIN = "/minilog.v1.AdminService/"
RULE = security_pb2.AccessRule(
    principal="User:bob",
    host="*",
    operation=security_pb2.ACCESS_OPERATION_ALTER_CONFIGS,
    resource_kind=security_pb2.RESOURCE_KIND_TOPIC,
    name="fl",
    pattern=security_pb2.RESOURCE_PATTERN_PREFIXED,
    permission=security_pb2.ACCESS_PERMISSION_DENY,
)
ABOUT: dict[str, tuple[Message, str]] = {
    f"{SECURITY}AlterUsers": (
        security_pb2.AlterUsersRequest(alterations=[security_pb2.UserAlteration(name="bob")]),
        "user:bob",
    ),
    f"{SECURITY}AlterQuotas": (
        security_pb2.AlterQuotasRequest(alterations=[security_pb2.QuotaAlteration(entity="User:bob", key="k")]),
        "quota:User:bob k",
    ),
    f"{SECURITY}CreateAccessRules": (
        security_pb2.CreateAccessRulesRequest(rules=[RULE]),
        "rule:deny User:bob from * alter-configs topic:fl*",
    ),
    f"{SECURITY}DeleteAccessRules": (
        security_pb2.DeleteAccessRulesRequest(filters=[security_pb2.AccessRuleFilter(operation=99)]),  # type: ignore[arg-type]
        "rule:* * from * 99 *:*",
    ),
    f"{ADMIN}ElectLeaders": (
        admin_pb2.ElectLeadersRequest(topics=[admin_pb2.TopicPartitions(name="flights")]),
        "topic:flights",
    ),
    f"{ADMIN}AlterPartitionReassignments": (
        admin_pb2.AlterPartitionReassignmentsRequest(
            reassignments=[admin_pb2.PartitionReassignment(name="flights", partition=each) for each in range(2)]
        ),
        "topic:flights",
    ),
    f"{ADMIN}AlterBrokerSettings": (
        admin_pb2.AlterBrokerSettingsRequest(broker_id=3, set_configs={"log.level": "debug"}),
        "broker:3 log.level",
    ),
    f"{ADMIN}ReplaceVoter": (admin_pb2.ReplaceVoterRequest(broker_id=3), "broker:3"),
}


@pytest.mark.parametrize("path", ABOUT)
@pytest.mark.parametrize("decision", Decision)
def test_changes_of_the_cluster_are_audited_with_their_subject(path: str, decision: Decision) -> None:
    """Whose password it was, which rule: the right alone is for the cluster as a whole."""
    may = (rule(Operation.ALL, CLUSTER_NAME, ResourceKind.CLUSTER),) if decision is Decision.ALLOWED else ()
    made = world(*may)
    request, about = ABOUT[path]
    assert (checked(made, path, request) is None) == (decision is Decision.ALLOWED)
    (told,) = made.told
    assert (told.decision, told.resource, told.others) == (decision, f"cluster:{CLUSTER_NAME}", (about,))


class TestMetadata:
    def told(self, made: World, request: metadata_pb2.GetMetadataRequest) -> list[Any]:
        """The names of topics that are described, and the errors of others."""
        caller = alice(made, GET_METADATA)
        with caller.refusals() as refusals:
            found = list(TopicsAsked(made.image, caller, refusals, lambda name: None).of(request))
        return [each.name if isinstance(each, TopicImage) else each.error for each in found]

    def test_names_and_ids_that_may_not_be_seen_are_in_the_audit_log(self) -> None:
        made = world(rule(Operation.DESCRIBE, "flights"))
        names = [*(f"dummy-{number}" for number in range(10)), "salaries", "flights"]
        request = metadata_pb2.GetMetadataRequest(topic_names=names, topic_ids=[SALARIES, NONE, FLIGHTS])
        topics = self.told(made, request)
        assert [each == "flights" for each in topics] == [False] * 11 + [True] + [False, False, True]
        (event,) = made.told
        assert (event.decision, event.operation, event.resource) == (Decision.DENIED, "describe", "topic:salaries")
        assert len(event.others) == 10

    def test_an_id_that_is_missing_and_one_that_may_not_be_seen_are_told_alike(self) -> None:
        missing, hidden = self.told(world(), metadata_pb2.GetMetadataRequest(topic_ids=[NONE, SALARIES]))
        assert missing.code == hidden.code
        assert missing.message.replace(NONE.hex(), "") == hidden.message.replace(SALARIES.hex(), "")

    def test_a_list_of_all_that_may_be_seen_refuses_nothing(self) -> None:
        made = world(rule(Operation.DESCRIBE, "flights"))
        assert self.told(made, metadata_pb2.GetMetadataRequest(all_topics=True)) == ["flights"]
        assert made.told == []

    @pytest.mark.parametrize("rules", [(), (rule(Operation.DESCRIBE, "*"),)])
    def test_names_that_are_shown_are_cut(self, rules: tuple[AccessRule, ...]) -> None:
        (error,) = self.told(world(*rules), metadata_pb2.GetMetadataRequest(topic_names=["x" * 3_000_000]))
        assert len(error.message) < 500

    def test_names_of_a_client_are_cut(self) -> None:
        client = common_pb2.ClientIdentity(client_id="c" * 3_000_000, client_version="v" * 100_000)
        client.protocol.CopyFrom(common_pb2.VersionRange(lowest=900, highest=999))
        assert len(str(protocol_refusal(client, "broker 1"))) < 1_500


class TestProducerIds:
    def init(self, made: World) -> None:
        check_may_write(alice(made, "/minilog.v1.MetadataService/InitProducerId"))

    def test_an_honest_producer_writes_no_refusal(self) -> None:
        """It may write a topic, and has no rule for the cluster: nothing of that is refused."""
        made = world(rule(Operation.WRITE, "flights"))
        self.init(made)
        assert made.told == []

    def test_a_user_without_a_right_to_write_is_refused_and_audited(self) -> None:
        made = world(allows(Operation.DESCRIBE))
        with pytest.raises(AuthorizationFailed):
            self.init(made)
        assert [(each.decision, each.operation, each.resource) for each in made.told] == [
            (Decision.DENIED, "idempotent-write", f"cluster:{CLUSTER_NAME}")
        ]


def shown(made: World, path: str, answer: Any) -> Any:
    made.gate.redact(path, alice(made, path), answer)
    return answer


class TestAnswersShowNothingOfOthers:
    PATH = "/minilog.v1.GroupService/DescribeGroup"

    def group(self) -> coordinator_pb2.DescribeGroupResponse:
        def pending(transactional_id: str, *topic_ids: bytes) -> coordinator_pb2.PendingOffsets:
            offsets = [
                coordinator_pb2.OffsetToCommit(partition_id=partition(each), metadata="secret") for each in topic_ids
            ]
            return coordinator_pb2.PendingOffsets(transactional_id=transactional_id, producer_id=5, offsets=offsets)

        return coordinator_pb2.DescribeGroupResponse(
            offsets=[coordinator_pb2.CommittedOffset(partition_id=partition(each)) for each in (FLIGHTS, SALARIES)],
            pending=[pending("mine", FLIGHTS, SALARIES), pending("theirs", FLIGHTS), pending("theirs too", SALARIES)],
        )

    def test_a_reader_of_a_queue_sees_the_topics_that_he_may_describe(self) -> None:
        answer = queue_pb2.DescribeQueueResponse(
            partitions=[
                queue_pb2.DescribedQueuePartition(partition_id=partition(topic_id)) for topic_id in (FLIGHTS, SALARIES)
            ]
        )
        made = world(rule(Operation.READ, "flights"))
        answer = shown(made, "/minilog.v1.QueueService/DescribeQueue", answer)
        assert [described.partition_id.topic_id for described in answer.partitions] == [FLIGHTS]

    def test_a_reader_of_a_group_sees_the_topics_and_transactions_that_he_may_describe(self) -> None:
        made = world(rule(Operation.READ, "flights"), rule(Operation.DESCRIBE, "mine", TRANSACTION))
        answer = shown(made, self.PATH, self.group())
        assert [each.partition_id.topic_id for each in answer.offsets] == [FLIGHTS]
        told = [
            (each.transactional_id, each.producer_id, [offset.partition_id.topic_id for offset in each.offsets])
            for each in answer.pending
        ]
        assert told == [("mine", 5, [FLIGHTS]), ("", -1, [FLIGHTS])]

    def test_a_user_with_the_right_to_describe_all_sees_all(self) -> None:
        made = world(rule(Operation.DESCRIBE, "*"), rule(Operation.DESCRIBE, "*", TRANSACTION))
        assert shown(made, self.PATH, self.group()) == self.group()

    def test_a_transaction_is_described_without_the_topics_of_others(self) -> None:
        made = world(rule(Operation.DESCRIBE, "flights"))
        producer = coordinator_pb2.EnlistedProducer(partitions=[partition(each) for each in (SALARIES, FLIGHTS, NONE)])
        answer = coordinator_pb2.DescribeTransactionResponse(producers=[producer])
        shown(made, "/minilog.v1.TransactionService/DescribeTransaction", answer)
        assert [each.topic_id for each in answer.producers[0].partitions] == [FLIGHTS]


def test_no_error_is_longer_than_a_message_may_be() -> None:
    """Whatever of a request its words have."""
    error = InvalidTopic("x" * 3_000_000)
    assert len(wire_error(error).message) < MAX_MESSAGE_CHARACTERS + 10
    assert len(details_of(error)) < MAX_DETAILS_CHARACTERS + 10


def test_a_request_is_one_event_for_each_operation_and_kind() -> None:
    made = world()
    request = BY_ID["/minilog.v1.GroupService/CommitOffsets"](SALARIES)
    assert isinstance(request, coordinator_pb2.CommitOffsetsRequest)
    request.transaction.transactional_id = "t"
    checked(made, "/minilog.v1.GroupService/CommitOffsets", request)
    found: list[AuditEvent] = made.told
    assert [each.resource for each in found] == ["group:g", "topic:salaries", "transactional-id:t"]
