"""The kinds of records of the metadata log: the effect of each on an image, and its form in a snapshot.

A new kind is one row here, and a level (levels.py). A record of any other kind is from a later version, and never
reaches this module (quorum/records.py). The rows stand in the order of a snapshot. The level is first, so that a broker
that does not support it need not read the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minilog.v1 import records_pb2
from minilog_broker.controller import cluster_records, security_records, topic_records
from minilog_broker.controller.image import MetadataImage
from minilog_broker.levels import (
    FIRST_LEVEL,
    OPERATIONS_LEVEL,
    PENDING_SCHEMAS_LEVEL,
    SECURITY_LEVEL,
    TYPED_TOPICS_LEVEL,
    check_reached,
)


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A kind of records.

    `field`: that of MetadataRecord. `apply`: change the image; raises KeyError and CorruptMessage for a record that no
    controller wrote. `of`: the records of this kind that make an image again; None where other kinds have the effect.
    `level`: the level that brought it.
    """

    field: str
    apply: Callable[[MetadataImage, int, Any], None]
    of: Callable[[MetadataImage], Iterator[records_pb2.MetadataRecord]] | None
    level: int = FIRST_LEVEL


_KINDS = (
    RecordKind("cluster_level", cluster_records.apply_level, cluster_records.level_of),
    RecordKind("cluster", cluster_records.apply_cluster, cluster_records.cluster_of),
    RecordKind("voter_replaced", cluster_records.apply_voter_replaced, None),
    RecordKind("voters", cluster_records.apply_voters, cluster_records.changed_voters_of, OPERATIONS_LEVEL),
    RecordKind("broker_registration", cluster_records.apply_registration, cluster_records.registrations_of),
    RecordKind("broker_state", cluster_records.apply_broker_state, cluster_records.broker_states_of),
    RecordKind("broker_cordon", cluster_records.apply_cordon, cluster_records.cordons_of, OPERATIONS_LEVEL),
    RecordKind("unregister_broker", cluster_records.apply_unregister, None, OPERATIONS_LEVEL),
    RecordKind("topic", topic_records.apply_topic, topic_records.topics_of),
    RecordKind("topic_schema", topic_records.apply_schema, topic_records.schemas_of, TYPED_TOPICS_LEVEL),
    RecordKind(
        "topic_schema_state",
        topic_records.apply_schema_state,
        topic_records.schema_states_of,
        PENDING_SCHEMAS_LEVEL,
    ),
    RecordKind("topic_config", topic_records.apply_config, topic_records.configs_of),
    RecordKind("partition", topic_records.apply_partition, topic_records.partitions_of),
    RecordKind("topic_deletion", topic_records.apply_deletion, None),
    RecordKind("producer_id_block", cluster_records.apply_block, cluster_records.block_of),
    RecordKind(
        "user_scram_credential", security_records.apply_credential, security_records.credentials_of, SECURITY_LEVEL
    ),
    RecordKind("access_rule", security_records.apply_rule, security_records.rules_of, SECURITY_LEVEL),
    RecordKind("quota", security_records.apply_quota, security_records.quotas_of, SECURITY_LEVEL),
    RecordKind("delegation_token", security_records.apply_token, security_records.tokens_of, SECURITY_LEVEL),
    RecordKind(
        "broker_setting", cluster_records.apply_broker_setting, cluster_records.broker_settings_of, OPERATIONS_LEVEL
    ),
)
KINDS = {kind.field: kind for kind in _KINDS}


def apply_record(image: MetadataImage, offset: int, record: records_pb2.MetadataRecord) -> None:
    """Apply a record. Raises KeyError and CorruptMessage for a record that no controller wrote."""
    field = record.WhichOneof("record")
    kind = KINDS.get(field or "")
    if kind is None:
        raise AssertionError(f"the image has no rule for the record {field}")
    kind.apply(image, offset, getattr(record, kind.field))
    image.end_offset = offset + 1


def apply_decision(
    image: MetadataImage, base_offset: int, end_offset: int, records: Iterable[records_pb2.MetadataRecord]
) -> None:
    """Apply one decision. A control batch has no records, and only moves `end_offset`."""
    for index, record in enumerate(records):
        apply_record(image, base_offset + index, record)
    image.end_offset = end_offset


def records_of(image: MetadataImage) -> Iterator[records_pb2.MetadataRecord]:
    """Records that build `image` when they are applied in this order to an empty one."""
    for kind in _KINDS:
        if kind.of is not None:
            yield from kind.of(image)


def check_level_of(record: records_pb2.MetadataRecord, level: int) -> None:
    """Raises LevelNotReached where a later level than this one, the cluster's, brought the record."""
    kind = KINDS[record.WhichOneof("record") or ""]
    check_reached(level, kind.level, f"the record {kind.field} cannot be written: it came")
