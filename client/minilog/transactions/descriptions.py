"""What coordinators tell people of transactions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.types import EnlistedProducer, TopicPartition, TransactionDescription, TransactionListing
from minilog.v1 import coordinator_pb2


def transaction_listing(told: coordinator_pb2.TransactionListing) -> TransactionListing:
    """One line of a list."""
    return TransactionListing(
        told.transactional_id,
        _word(coordinator_pb2.TransactionState.Name(told.state), "TRANSACTION_STATE_"),
        told.generation,
        told.last_committed_generation if told.HasField("last_committed_generation") else None,
        told.producer_count,
    )


def transaction_description(
    told: coordinator_pb2.DescribeTransactionResponse, names: Mapping[bytes, str]
) -> TransactionDescription:
    """`names`: of topics, by their ids."""
    return TransactionDescription(
        transaction_listing(told.listing),
        attempt_id=told.attempt_id.hex(),
        run_id=_text(told.run_id),
        timeout_ms=told.timeout_ms,
        expires=told.expires,
        updated_ms=told.updated_us // 1000,
        silent_ms=told.silent_ms if told.HasField("silent_ms") else None,
        producers=[_producer(each, names) for each in told.producers],
    )


def _producer(told: coordinator_pb2.EnlistedProducer, names: Mapping[bytes, str]) -> EnlistedProducer:
    partitions = [
        TopicPartition(names[each.topic_id], each.partition) for each in told.partitions if each.topic_id in names
    ]
    return EnlistedProducer(
        told.producer_id,
        told.generation,
        told.task if told.HasField("task") else None,
        _word(coordinator_pb2.ProducerFate.Name(told.fate), "PRODUCER_FATE_"),
        sorted(partitions),
    )


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def _text(run_id: bytes) -> str:
    """Spark's is text, a program's is not."""
    text = run_id.decode("ascii", errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else run_id.hex()
