"""What of an answer its caller may not see, and what is done with it: a group and a transaction are of topics and of
other transactions, which have rules of their own.

    FetchOffsets          offsets of topics that he may not describe are left out
    DescribeGroup         those, committed and pending; of a transaction that he may not describe, whose it is
    DescribeTransaction   partitions of topics that he may not describe are left out
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minilog.v1 import coordinator_pb2

NO_PRODUCER = -1
SeesTopic = Callable[[bytes], bool]
SeesTransaction = Callable[[str], bool]


def redact(answer: Any, sees_topic: SeesTopic, sees_transaction: SeesTransaction) -> None:
    """`sees_topic` by its id, `sees_transaction` by its name. Of other answers nothing is taken out."""
    match answer:
        case coordinator_pb2.FetchOffsetsResponse():
            _keep(answer.offsets, lambda each: sees_topic(each.partition_id.topic_id))
        case coordinator_pb2.DescribeGroupResponse():
            _keep(answer.offsets, lambda each: sees_topic(each.partition_id.topic_id))
            for pending in answer.pending:
                _keep(pending.offsets, lambda each: sees_topic(each.partition_id.topic_id))
                if not sees_transaction(pending.transactional_id):
                    pending.transactional_id, pending.producer_id = "", NO_PRODUCER
            _keep(answer.pending, lambda each: bool(each.offsets))
        case coordinator_pb2.DescribeTransactionResponse():
            for producer in answer.producers:
                _keep(producer.partitions, lambda each: sees_topic(each.topic_id))


def _keep(entries: Any, is_seen: Callable[[Any], bool]) -> None:
    kept = [each for each in entries if is_seen(each)]
    if len(kept) < len(entries):
        del entries[:]
        entries.extend(kept)
