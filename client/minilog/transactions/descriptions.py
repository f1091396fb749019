"""What coordinators tell people of transactions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.types import EnlistedProducer, TopicPartition, TransactionDescription, TransactionListing
from minilog.v1 import coordinator_pb2


def transaction_listing(message: coordinator_pb2.TransactionListing) -> TransactionListing:
    """One line of a list."""
    return TransactionListing(
        message.transactional_id,
        _word(coordinator_pb2.TransactionState.Name(message.state), "TRANSACTION_STATE_"),
        message.generation,
        message.last_committed_generation if message.HasField("last_committed_generation") else None,
        message.producer_count,
    )


def transaction_description(
    message: coordinator_pb2.DescribeTransactionResponse, names: Mapping[bytes, str]
) -> TransactionDescription:
    """`names`: of topics, by their ids."""
    return TransactionDescription(
        transaction_listing(message.listing),
        attempt_id=message.attempt_id.hex(),
        run_id=_text(message.run_id),
        timeout_ms=message.timeout_ms,
        expires=message.expires,
        updated_ms=message.updated_us // 1000,
        silent_ms=message.silent_ms if message.HasField("silent_ms") else None,
        producers=[_producer(producer, names) for producer in message.producers],
    )


def _producer(message: coordinator_pb2.EnlistedProducer, names: Mapping[bytes, str]) -> EnlistedProducer:
    partitions = [
        TopicPartition(names[partition.topic_id], partition.partition)
        for partition in message.partitions
        if partition.topic_id in names
    ]
    return EnlistedProducer(
        message.producer_id,
        message.generation,
        message.task if message.HasField("task") else None,
        _word(coordinator_pb2.ProducerFate.Name(message.fate), "PRODUCER_FATE_"),
        sorted(partitions),
    )


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def _text(run_id: bytes) -> str:
    """Spark's is text, a program's is not."""
    text = run_id.decode("ascii", errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else run_id.hex()
