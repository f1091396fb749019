"""The truth about what may be gone of one partition, and what must be: deleting records (trimming.py, KIP-107).

Nothing else moves a log start here: topics have no retention. A question is *granted* where its offset is at or below
the last stable offset of the leader that it reaches; any other is refused, and deletes nothing.

    V1       no log starts above what was granted: only below it may anything be lost
    KIP-107  an answer is at or above what was asked for, and at or below what was granted
    KIP-107  below what was answered nothing is left on any replica that could be elected (ISR, eligible leaders), and
             none of them hands any of it to a reader: at once, and after every election and every new life
"""

from __future__ import annotations

from dataclasses import dataclass

from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.invariants.violation import Violation

RULE = "KIP-107"


@dataclass(slots=True)
class TrimTruth:
    """See the module's text. `granted` and `answered`: the greatest log start of which that was said."""

    key: PartitionKey
    granted: int = 0
    answered: int = 0

    def _fail(self, rule: str, text: str, node_id: int) -> Violation:
        return Violation(rule, f"partition {self.key.partition}: {text}", nodes=(node_id,), key=self.key)

    def asked(self, offset: int, stable: int) -> bool:
        """A leader is asked to delete what is below `offset`, when its LSO is `stable`; whether it may."""
        if offset <= stable:
            self.granted = max(self.granted, offset)
        return offset <= stable

    def say(self, node_id: int, offset: int, low_watermark: int) -> None:
        """A leader answers: nothing below `low_watermark` comes back."""
        if not offset <= low_watermark <= self.granted:
            text = f"node {node_id} answers {low_watermark} where {offset} was asked for, and {self.granted} granted"
            raise self._fail(RULE, text, node_id)
        self.answered = max(self.answered, low_watermark)

    def check_start(self, node_id: int, start: int) -> None:
        """Of any replica's log."""
        if start > self.granted:
            text = f"node {node_id} has its log start at {start}, records were to go below {self.granted} only"
            raise self._fail("V1", text, node_id)

    def check_electable(self, node_id: int, start: int, what: str) -> None:
        """Of a replica that could be elected."""
        if start < self.answered:
            text = f"node {node_id}, {what}, has its log start at {start}; it was answered that all below "
            raise self._fail(RULE, f"{text}{self.answered} is deleted", node_id)

    def check_sent(self, node_id: int, end: int) -> None:
        """A replica that could be elected hands a reader a batch that ends at `end`."""
        if end <= self.answered:
            text = (
                f"node {node_id} sends records below {end}; it was answered that all below {self.answered} is deleted"
            )
            raise self._fail(RULE, text, node_id)
