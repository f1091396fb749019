"""Which brokers know a change of users, rules or tokens, by their reports to the controller. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from minilog.v1 import metadata_pb2

NOT_HEARD_WITHIN_MS = 5_000  # a broker that is cut off is fenced by then, and refuses clients


@dataclass(frozen=True, slots=True)
class Hearing:
    """`missing` has the brokers that have not reported that they know the change. With `is_worth_waiting`, one of them
    runs."""

    missing: list[int]
    is_worth_waiting: bool


def hearing(answer: metadata_pb2.GetMetadataResponse, metadata_offset: int) -> Hearing:
    """Which brokers know the change with this `metadata_offset`, by the active controller's metadata."""
    brokers = [*answer.brokers, *answer.unreachable_brokers]
    missing = [
        broker
        for broker in brokers
        if not broker.HasField("metadata_offset") or broker.metadata_offset < metadata_offset
    ]
    runs = any(broker.state == metadata_pb2.BROKER_STATE_RUNNING for broker in missing)
    return Hearing(sorted(broker.broker_id for broker in missing), runs)
