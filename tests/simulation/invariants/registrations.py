"""What coordinators of transactions have committed, as far as it says who may write and who may win. V15.

V15   a producer has records in a partition only where it was registered there before
V15   who wins in a generation was named by one request to commit it, all of them by the same
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from minilog_broker.coordinators.transactions.records import Fate, TransactionKey, TransactionProducer
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.invariants.violation import Violation


@dataclass(slots=True)
class Registrations:
    """See the module's text. `may_win`: whether one request named these, of a transactional id and its generation."""

    may_win: Callable[[str, int, AbstractSet[int]], bool]
    _winners: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    _partitions: set[tuple[int, PartitionKey]] = field(default_factory=set)
    _seen: dict[tuple[int, PartitionKey], int] = field(default_factory=dict)

    def look(self, node_id: int, key: PartitionKey, end: int, state: Callable[[], Mapping[Any, Any]]) -> None:
        """The coordinator in partition `key`, on a node, has taken in all decisions up to `end`."""
        if self._seen.get((node_id, key)) == end:
            return
        self._seen[node_id, key] = end
        for name, value in state().items():
            if (
                isinstance(name, TransactionKey)
                and isinstance(value, TransactionProducer)
                and name.producer_id is not None
            ):
                self._partitions.update((name.producer_id, each.partition) for each in value.partitions)
                if value.fate is Fate.COMMITTING:
                    self._wins(node_id, key, name, name.producer_id, value.generation)

    def _wins(self, node_id: int, key: PartitionKey, name: TransactionKey, producer_id: int, generation: int) -> None:
        winners = self._winners.setdefault((name.owner, generation), set())
        if producer_id in winners:
            return
        winners.add(producer_id)
        if not self.may_win(name.owner, generation, winners):
            text = (
                f"the coordinator on node {node_id} commits {name} in generation {generation}: no request named all of "
            )
            raise Violation("V15", f"{text}{sorted(winners)}", nodes=(node_id,), key=key)

    def check(self, producer_id: int, key: PartitionKey) -> None:
        """A producer has records there."""
        if (producer_id, key) not in self._partitions:
            text = f"partition {key.partition}: producer {producer_id} writes, and was never registered there"
            raise Violation("V15", text, key=key)
