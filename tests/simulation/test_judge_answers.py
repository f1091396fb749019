"""The judge finds an answer to an operator that is not so in the committed log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import admin_pb2, common_pb2, records_pb2
from minilog_broker.controller.security_records import rule_record
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.quorum.records import CommittedBatch
from minilog_broker.server.ingress.rules.admission import methods
from tests.judges.violation import Violation
from tests.simulation.judge.answers import CLAIMS, Answers
from tests.simulation.judge.levels import BROUGHT_BY, BROUGHT_DELETIONS, BROUGHT_TOPICS, Levels

Record = records_pb2.MetadataRecord
ID = b"t" * 16
TOPIC = Record(topic=records_pb2.TopicRecord(name="t", topic_id=ID))
RULE = AccessRule("User:ann", "*", Operation.READ, ResourceKind.TOPIC, "t", Pattern.LITERAL, Permission.ALLOW)
ERROR = common_pb2.Error(code=common_pb2.ERROR_CODE_INVALID_UPDATE_VERSION)
DONE = admin_pb2.TopicResult(name="t", topic_id=ID)


@dataclass(eq=False)
class Call:
    """As the judge sees one on the wire."""

    method: str
    host: str = "b1"


class Log:
    """A committed log that grows, and what operators are told meanwhile."""

    def __init__(self) -> None:
        self.end = 0
        self.answers = Answers(lambda: self.end)

    def grows(self, *records: Record) -> None:
        batch = CommittedBatch(self.end, self.end + len(records), 1, records)
        self.end = batch.end_offset
        self.answers.committed(batch)

    def asked(self, path: str, request: Any) -> Call:
        call = Call(f"/minilog.v1.{path}")
        self.answers.saw(call, request, False)  # type: ignore[arg-type]
        return call

    def told(self, call: Call, answer: Any, offset: int) -> None:
        answer.metadata_offset = offset
        self.answers.saw(call, answer, True)  # type: ignore[arg-type]


def config(value: str | None) -> Record:
    return Record(topic_config=records_pb2.TopicConfigRecord(topic_id=ID, name="retention.ms", value=value))


def schema(ddl: str) -> Any:
    found = schema_to_wire(schema_from_ddl(ddl))
    found.version = 2
    return found


def test_a_topic_that_was_made_is_there() -> None:
    log = Log()
    call = log.asked("AdminService/CreateTopics", admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t")]))
    log.grows(TOPIC)
    log.told(call, admin_pb2.CreateTopicsResponse(results=[DONE]), 1)
    log.answers.check_over()


def test_an_answer_that_is_ahead_of_what_is_known_is_looked_at_when_that_is_known() -> None:
    log = Log()
    call = log.asked("AdminService/CreateTopics", admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t")]))
    log.told(call, admin_pb2.CreateTopicsResponse(results=[DONE]), 1)
    with pytest.raises(Violation, match="no more is committed than 0"):
        log.answers.check_over()
    with pytest.raises(Violation, match=r"V12.* that t has the id"):
        log.grows(another())


def another() -> Record:
    return Record(cluster_level=records_pb2.ClusterLevelRecord(level=2))


def test_a_state_before_the_request_alone_is_no_proof() -> None:
    log = Log()
    log.grows(TOPIC, config("7"), config("9"))
    request = admin_pb2.AlterTopicsRequest(
        topics=[admin_pb2.TopicAlteration(name="t", set_configs={"retention.ms": "7"})]
    )
    call = log.asked("AdminService/AlterTopics", request)
    with pytest.raises(Violation, match=r"retention\.ms=7"):
        log.told(call, admin_pb2.AlterTopicsResponse(results=[DONE]), 3)


def test_every_call_that_changes_the_metadata_has_its_claims() -> None:
    """Who asks the controller for a change is told an offset, and no describing call is among the changes."""
    decided = {
        f"/{each.containing_service.full_name}/{each.name}"
        for each in methods()
        if "metadata_offset" in each.output_type.fields_by_name
        and "Describe" not in each.name
        and each.name not in ("GetMetadata", "Heartbeat")
    }
    assert CLAIMS.keys() == decided


def test_records_of_a_level_are_committed_behind_the_level_alone() -> None:
    levels = Levels()
    levels.committed(CommittedBatch(0, 1, 1, (another(),)))
    levels.committed(CommittedBatch(1, 2, 1, (Record(topic_schema=records_pb2.TopicSchemaRecord(topic_id=ID)),)))
    with pytest.raises(Violation, match=r"level: access_rule is committed at 2, which level 3 brought"):
        levels.committed(CommittedBatch(2, 3, 1, (rule_record(RULE),)))
    block = Record(producer_id_block=records_pb2.ProducerIdBlockRecord(next_producer_id=1_000))
    levels.committed(CommittedBatch(2, 3, 1, (block,)))
    block.producer_id_block.proof_key = b"key"
    with pytest.raises(Violation, match=r"level: producer_id_block.proof_key is committed at 3, which level 4 brought"):
        levels.committed(CommittedBatch(3, 4, 1, (block,)))
    with pytest.raises(Violation, match="the level goes down from 2 to 1 at 3"):
        levels.committed(CommittedBatch(3, 4, 1, (Record(cluster_level=records_pb2.ClusterLevelRecord(level=1)),)))


def test_the_topic_of_queues_is_committed_behind_its_level_alone() -> None:
    topic = Record(topic=records_pb2.TopicRecord(name="__queues", internal=True))
    levels = Levels()
    with pytest.raises(Violation, match="level: __queues is committed at 0, which level 7 brought"):
        levels.committed(CommittedBatch(0, 1, 1, (topic,)))
    levels.level = 7
    levels.committed(CommittedBatch(0, 1, 1, (topic,)))


def test_settings_of_compaction_are_committed_behind_their_level_alone() -> None:
    def topic(*names: str) -> CommittedBatch:
        defaults = [records_pb2.TopicDefault(name=name, value="1") for name in names]
        return CommittedBatch(0, 1, 1, (Record(topic=records_pb2.TopicRecord(name="t", defaults=defaults)),))

    def config(name: str, value: str) -> CommittedBatch:
        return CommittedBatch(0, 1, 1, (Record(topic_config=records_pb2.TopicConfigRecord(name=name, value=value)),))

    levels = Levels()
    levels.committed(topic("retention.ms"))
    levels.committed(config("cleanup.policy", "delete"))
    for batch, name in (
        (topic("retention.ms", "cleanup.policy"), "cleanup.policy"),
        (topic("delete.retention.ms"), "delete.retention.ms"),
        (config("min.compaction.lag.ms", "1"), "min.compaction.lag.ms"),
    ):
        with pytest.raises(Violation, match=f"level: {name} is committed at 0, which level 6 brought"):
            levels.committed(batch)


def test_the_judge_knows_each_record_that_a_level_brought() -> None:
    for name in BROUGHT_BY:
        record, _, field = name.partition(".")
        described = Record.DESCRIPTOR.fields_by_name[record].message_type
        assert described is not None
        assert not field or field in described.fields_by_name
    assert max(BROUGHT_DELETIONS, *BROUGHT_BY.values(), *BROUGHT_TOPICS.values()) == SUPPORTED_LEVELS.highest, (
        "see docs/spec/levels.md: what does the new level bring?"
    )
