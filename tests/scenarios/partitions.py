"""Names of scenarios: `orders-0` is a partition of a topic of the coordinators, and an error has its class's."""

from __future__ import annotations

from minilog import errors
from minilog.partition_key import PartitionKey
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS

NAMES = {ORDERS: "orders", PAYMENTS: "payments"}


def topic_id(name: str) -> bytes:
    """Of a topic of those worlds, or of another."""
    return next((found for found, known in NAMES.items() if known == name), name.encode().rjust(16, b"-"))


def partition(name: str) -> PartitionKey:
    """`orders-0`."""
    topic, _, number = name.rpartition("-")
    return PartitionKey(topic_id(topic), int(number))


def partition_name(key: PartitionKey) -> str:
    """The reverse of `partition`."""
    name = NAMES.get(key.topic_id) or key.topic_id.decode().lstrip("-")
    return f"{name}-{key.partition}"


def error_named(name: str) -> errors.MinilogError:
    """An error by the name of its class."""
    found: errors.MinilogError = getattr(errors, name)("as the scenario says")
    return found
