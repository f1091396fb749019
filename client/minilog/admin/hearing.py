"""Which brokers know of a change of users, rules or tokens: by what they have told the controller. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from minilog.v1 import metadata_pb2

NOT_HEARD_WITHIN_MS = 5_000  # a broker that is cut off is fenced by then, and refuses clients


@dataclass(frozen=True, slots=True)
class Hearing:
    """`missing`: brokers that have not told that they know of it. `is_worth_waiting`: one of them runs."""

    missing: list[int]
    is_worth_waiting: bool


def hearing(answer: metadata_pb2.GetMetadataResponse, metadata_offset: int) -> Hearing:
    """By the active controller's metadata, of a change whose answer had `metadata_offset`."""
    brokers = [*answer.brokers, *answer.unreachable_brokers]
    missing = [
        broker
        for broker in brokers
        if not broker.HasField("metadata_offset") or broker.metadata_offset < metadata_offset
    ]
    runs = any(broker.state == metadata_pb2.BROKER_STATE_RUNNING for broker in missing)
    return Hearing(sorted(broker.broker_id for broker in missing), runs)
