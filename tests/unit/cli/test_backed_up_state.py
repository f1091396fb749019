"""Each kind of state of a cluster is in the file of `minilog cluster backup`, or in the list of what is not."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from minilog.v1 import coordinator_records_pb2
from minilog_broker.controller.record_kinds import KINDS
from minilog_tools.cli.backup_file import Metadata

DOCUMENT = (pathlib.Path(__file__).parents[3] / "docs/operating/backup.md").read_text()

KEPT = {
    "cluster_level": "level",
    "topic": "topics",
    "topic_schema": "topics",
    "topic_schema_state": "topics",
    "topic_config": "topics",
    "broker_setting": "broker_settings",
    "user_scram_credential": "users",
    "access_rule": "access_rules",
    "quota": "quotas",
    "OffsetRecord": "groups",
    "QueueRecord": "queues",
}
"""The field of the file that has it."""
LEFT_OUT = {
    "cluster": "brokers and voters",
    "voter_replaced": "brokers and voters",
    "voters": "brokers and voters",
    "broker_registration": "brokers and voters",
    "broker_state": "brokers and voters",
    "broker_cordon": "brokers and voters",
    "unregister_broker": "brokers and voters",
    "partition": "places of replicas",
    "topic_deletion": "places of replicas",
    "producer_id_block": "producer ids",
    "delegation_token": "delegation tokens",
    "TransactionRecord": "transactions",
    "ProducerRecord": "transactions",
    "PendingOffsetsRecord": "transactions",
    "SettlingProducerRecord": "transactions",
    "GroupRecord": "members of groups",
    "MemberRecord": "members of groups",
    "TargetRecord": "members of groups",
    "AssignmentRecord": "members of groups",
    "QueuePartitionRecord": "progress of queues",
    "QueueBlockRecord": "progress of queues",
    "DeathReasonRecord": "progress of queues",
    "QueueRedriveRecord": "progress of queues",
}
"""The row of docs/operating/backup.md that says that it is not in the file."""


def kinds() -> list[str]:
    messages = coordinator_records_pb2.DESCRIPTOR.message_types_by_name
    return [*KINDS, *(name for name in messages if name.endswith("Record"))]


@pytest.mark.parametrize("kind", kinds())
def test_each_kind_of_state_is_in_the_file_or_in_the_list_of_what_is_not(kind: str) -> None:
    if kind in KEPT:
        assert KEPT[kind] in {field.name for field in dataclasses.fields(Metadata)}
    else:
        assert f"| {LEFT_OUT[kind]} |" in DOCUMENT


def test_the_table_names_no_state_that_is_gone() -> None:
    assert {*KEPT, *LEFT_OUT} == set(kinds())
