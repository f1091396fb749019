"""The cost of a call beside the call itself: partitions that it creates, adds or deletes, producer ids, and what queues
write. Pure.

The count is that of KIP-599: a deletion counts the deleted partitions, an enlargement the added ones, and a mere
validation nothing. The call is charged before its work, by the facts of that time. The charge for refused parts of the
answer is given back.

What a queue writes for leases, renewals and settlements is known afterwards. A lease waits for that debt. Settlements
and renewals do not: they are for records that were leased, and a lock must not end because of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minilog.security.quota_keys import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, PRODUCER_ID_RATE
from minilog_broker.controller.image import MetadataImage

_ADMIN = "/minilog.v1.AdminService"
_LEASE = "/minilog.v1.QueueService/Lease"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one call under the quota `key`: an amount for each result of its answer. `has_more`: the service
    charges what it writes. The call waits until what was written for those before is paid."""

    key: str
    amounts: tuple[int, ...]
    has_more: bool = False

    @property
    def total(self) -> int:
        return sum(self.amounts)

    def unused(self, answer: Any) -> int:
        """The amounts of results that have an error."""
        results = getattr(answer, "results", (answer,))
        if len(results) != len(self.amounts):
            return 0
        return sum(amount for amount, result in zip(self.amounts, results, strict=True) if result.HasField("error"))


def cost_of(path: str, request: Any, image: MetadataImage, default_partitions: int) -> Cost | None:
    """The cost of a call, None for the call alone. `default_partitions`: of a topic that is created without a
    number."""
    if path in _GIVING_PRODUCER_IDS:
        return Cost(PRODUCER_ID_RATE, (1,))
    if path == _LEASE:
        return Cost(PRODUCER_BYTE_RATE, (0,), has_more=True)
    amounts = _MUTATIONS.get(path)
    if amounts is None or getattr(request, "validate_only", False):
        return None
    return Cost(CONTROLLER_MUTATION_RATE, tuple(amounts(request, image, default_partitions)))


def _created(request: Any, image: MetadataImage, default_partitions: int) -> Iterable[int]:
    for entry in request.topics:
        yield max(0, entry.num_partitions) if entry.HasField("num_partitions") else default_partitions


def _added(request: Any, image: MetadataImage, default_partitions: int) -> Iterable[int]:
    for entry in request.topics:
        topic = image.topic(entry.name)
        more = entry.HasField("num_partitions") and topic is not None
        yield max(0, entry.num_partitions - topic.partition_count) if more and topic is not None else 0


def _deleted(request: Any, image: MetadataImage, default_partitions: int) -> Iterable[int]:
    for entry in request.topics:
        topic = image.topic(entry.name) if entry.name else image.topics.get(entry.topic_id)
        yield 0 if topic is None else topic.partition_count


_Amounts = Callable[[Any, MetadataImage, int], Iterable[int]]
_MUTATIONS: Mapping[str, _Amounts] = {
    f"{_ADMIN}/CreateTopics": _created,
    f"{_ADMIN}/AlterTopics": _added,
    f"{_ADMIN}/DeleteTopics": _deleted,
}
_GIVING_PRODUCER_IDS = ("/minilog.v1.MetadataService/InitProducerId", "/minilog.v1.TransactionService/Enlist")
