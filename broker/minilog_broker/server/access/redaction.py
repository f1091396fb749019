"""The removal of parts of an answer that its caller may not see. A group or a transaction has parts about topics and
about other transactions, which have rules of their own.

    FetchOffsets          without offsets of topics that the caller may not describe
    DescribeGroup         the same, committed and pending; without the owner of a transaction that it may not describe
    DescribeQueue         without partitions of topics that the caller may not describe
    DescribeTransaction   without partitions of topics that the caller may not describe
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minilog.v1 import coordinator_pb2, queue_pb2

NO_PRODUCER = -1
SeesTopic = Callable[[bytes], bool]
SeesName = Callable[[str], bool]


def redact(answer: Any, sees_topic: SeesTopic, sees_transaction: SeesName, sees_topic_named: SeesName) -> None:
    """Remove the hidden parts of an answer. `sees_topic` takes a topic's id, the others take a name. Other answers stay
    whole."""
    match answer:
        case coordinator_pb2.FetchOffsetsResponse():
            _keep(answer.offsets, lambda committed: sees_topic(committed.partition_id.topic_id))
        case coordinator_pb2.DescribeGroupResponse():
            _keep(answer.offsets, lambda committed: sees_topic(committed.partition_id.topic_id))
            for pending in answer.pending:
                _keep(pending.offsets, lambda offset: sees_topic(offset.partition_id.topic_id))
                if not sees_transaction(pending.transactional_id):
                    pending.transactional_id, pending.producer_id = "", NO_PRODUCER
            _keep(answer.pending, lambda pending: bool(pending.offsets))
            for member in answer.members:
                _keep(member.topics, sees_topic_named)
                for partitions in (member.assigned, member.revoking, member.target):
                    _keep(partitions, lambda partition_id: sees_topic(partition_id.topic_id))
        case queue_pb2.DescribeQueueResponse():
            _keep(answer.partitions, lambda partition: sees_topic(partition.partition_id.topic_id))
            _keep(answer.redriven, lambda partition: sees_topic(partition.letters_partition_id.topic_id))
        case coordinator_pb2.DescribeTransactionResponse():
            for producer in answer.producers:
                _keep(producer.partitions, lambda partition: sees_topic(partition.topic_id))


def _keep(entries: Any, is_seen: Callable[[Any], bool]) -> None:
    kept = [entry for entry in entries if is_seen(entry)]
    if len(kept) < len(entries):
        del entries[:]
        entries.extend(kept)
