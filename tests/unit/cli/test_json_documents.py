"""The documents of --json, whose form is a promise: docs/reference/commands.md § JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minilog import Record, TopicPartition
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import (
    EnlistedProducer,
    GroupDescription,
    GroupOffset,
    PartitionDescription,
    PendingOffsets,
    QueueDescription,
    QueuePosition,
    QueueRange,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from minilog_tools.cli.group import group_document
from minilog_tools.cli.queue import queue_document
from minilog_tools.cli.record_text import record_document
from minilog_tools.cli.topic import topic_document
from minilog_tools.cli.topic_schema import schema_document
from minilog_tools.cli.transaction import transaction_document

COMMITTED_MS = 1_714_566_600_000
PLACE = {"topic": "flights", "partition": 0}
RECORD = Record("flights", 0, 7, 1000, b"\xff", "grün".encode(), [("h", None), ("b", b"\x80")])
STILL = PartitionDescription(0, 2, 3, 5, [1, 2], [2], [], 0, 40, 42, 43)
MOVING = replace(STILL, partition=1, adding_replicas=[3], removing_replicas=[1], throttle_bytes_per_second=1_000)
CLEANED = replace(STILL, clean_to=7, dirty_bytes=9)
OF_PARTITION = {
    "partition": 0,
    "leader": 2,
    "leader_epoch": 3,
    "partition_epoch": 5,
    "replicas": [1, 2],
    "isr": [2],
    "log_start_offset": 0,
    "last_stable_offset": 40,
    "high_watermark": 42,
    "log_end_offset": 43,
}
OF_MOVE = {"adding_replicas": [3], "removing_replicas": [1], "throttle_bytes_per_second": 1_000}
OF_TOPIC = {"name": "flights", "id": "id", "internal": False, "configs": {"a": "2"}}
TYPED = schema_from_ddl("carrier string NOT NULL, delay int", ["carrier"])
OFFSETS = [
    GroupOffset("flights", 0, 7, "", COMMITTED_MS, 9, 2, 1.23456),
    GroupOffset("flights", 1, 3, "mine", COMMITTED_MS, None, None, None),
]
PENDING = PendingOffsets("job", 70, {TopicPartition("flights", 0): 9})
POSITION = QueuePosition(
    "flights", 0, 4, 9, 12, [QueueRange(4, 6, "leased", 2, 11, "w", 20_000)], 0, 1, undecided_count=7
)
PRODUCER = EnlistedProducer(1001, 0, None, "open", [TopicPartition("flights", 0)])
TRANSACTION = TransactionDescription(
    TransactionListing("spark-q", "open", 0, None, 1), "0102", "run-1", 900_000, False, COMMITTED_MS, 12, [PRODUCER]
)


def topic(*partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription("flights", "id", False, {"a": "2"}, list(partitions))


@pytest.mark.parametrize(
    ("document", "described", "wanted"),
    [
        (
            record_document,
            RECORD,
            {
                **PLACE,
                "offset": 7,
                "timestamp": 1000,
                "key_base64": "/w==",
                "value": "grün",
                "headers": [{"key": "h", "value": None}, {"key": "b", "value_base64": "gA=="}],
            },
        ),
        (topic_document, topic(STILL), {**OF_TOPIC, "partitions": [OF_PARTITION]}),
        (topic_document, topic(MOVING), {**OF_TOPIC, "partitions": [{**OF_PARTITION, "partition": 1, **OF_MOVE}]}),
        (
            topic_document,
            topic(CLEANED),
            {**OF_TOPIC, "partitions": [{**OF_PARTITION, "clean_to": 7, "dirty_bytes": 9}]},
        ),
        (
            topic_document,
            replace(topic(), schemas=TopicSchemas((TYPED,))),
            {**OF_TOPIC, "schema": schema_document(TYPED), "partitions": []},
        ),
        (
            lambda schema: schema_document(schema)["fields"][1],
            TYPED,
            {"name": "delay", "type": "integer", "nullable": True, "metadata": {}, "id": 2},
        ),
        (
            group_document,
            GroupDescription("report", OFFSETS, [PENDING]),
            {
                "group_id": "report",
                "kind": "offsets",
                "epoch": 0,
                "assignor": "",
                "members": [],
                "offsets": [
                    {
                        **PLACE,
                        "offset": 7,
                        "metadata": "",
                        "committed_at": COMMITTED_MS,
                        "end_offset": 9,
                        "lag_records": 2,
                        "lag_seconds": 1.235,
                    },
                    {
                        **PLACE,
                        "partition": 1,
                        "offset": 3,
                        "metadata": "mine",
                        "committed_at": COMMITTED_MS,
                        "end_offset": None,
                        "lag_records": None,
                        "lag_seconds": None,
                    },
                ],
                "pending": [{"transactional_id": "job", "producer_id": 70, "offsets": [{**PLACE, "offset": 9}]}],
            },
        ),
        (
            queue_document,
            QueueDescription("jobs", {"a": "1"}, [POSITION]),
            {
                "queue": "jobs",
                "settings": {"a": "1"},
                "partitions": [
                    {
                        **PLACE,
                        "settled_to": 4,
                        "next_offset": 9,
                        "end_offset": 12,
                        "backlog": 3,
                        "expired_count": 0,
                        "dead_count": 1,
                        "undecided_count": 7,
                        "ranges": [
                            {
                                "first_offset": 4,
                                "last_offset": 6,
                                "state": "leased",
                                "delivery_count": 2,
                                "lease_id": 11,
                                "worker_id": "w",
                                "remaining_ms": 20_000,
                                "death_reason": None,
                            }
                        ],
                    }
                ],
            },
        ),
        (
            transaction_document,
            TRANSACTION,
            {
                "transactional_id": "spark-q",
                "state": "open",
                "generation": 0,
                "last_committed_generation": None,
                "producer_count": 1,
                "attempt_id": "0102",
                "run_id": "run-1",
                "timeout_ms": 900_000,
                "expires": False,
                "updated_at": COMMITTED_MS,
                "silent_ms": 12,
                "producers": [
                    {"producer_id": 1001, "generation": 0, "task": None, "fate": "open", "partitions": [PLACE]}
                ],
            },
        ),
    ],
)
def test_a_document_has_the_form_of_the_contract(
    document: Callable[[Any], dict[str, Any]], described: object, wanted: dict[str, Any]
) -> None:
    assert json.loads(json.dumps(document(described))) == wanted
