"""Producer ids: each is given once in the life of a cluster, and only from a block whose allocation is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.v1 import common_pb2, coordinator_pb2
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

RULE = "V14"  # two producers of one id would be taken for one that repeats itself
_OK = common_pb2.ERROR_CODE_NONE


class Producers:
    """Which producer ids were told, to whom, and from which blocks."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._given: dict[int, str] = {}
        self._blocks: dict[int, str] = {}
        self._answered: dict[str, Callable[[Said, Any], None]] = {
            "/minilog.v1.MetadataService/InitProducerId": self._initialized,
            "/minilog.v1.TransactionService/Enlist": self._enlisted,
            "/minilog.v1.PeerService/AllocateProducerIds": self._allocated,
        }

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        look = self._answered.get(call.method)
        if look is not None and answers and message.error.code == _OK:
            look(call, message)

    def _initialized(self, call: Said, message: Any) -> None:
        self._give(message.producer_id, call)

    def _enlisted(self, call: Said, message: Any) -> None:
        if message.outcome == coordinator_pb2.ENLIST_OUTCOME_ENLISTED:
            self._give(message.producer_id, call)

    def _give(self, producer_id: int, call: Said) -> None:
        whom = f"{call.client} by {call.host}"
        before = self._given.setdefault(producer_id, whom)
        if before is not whom:
            raise Violation(RULE, f"producer id {producer_id} is given to {whom}, and was given to {before}")
        self._check_committed(producer_id + 1, call)

    def _allocated(self, call: Said, message: Any) -> None:
        before = self._blocks.setdefault(message.first_producer_id, call.client)
        self._blocks[message.first_producer_id] = call.client
        if before != call.client:
            text = f"the producer ids from {message.first_producer_id} on are given to {call.client} and to {before}"
            raise Violation(RULE, text)
        self._check_committed(message.first_producer_id + message.count, call)

    def _check_committed(self, end: int, call: Said) -> None:
        metadata = self._truth.metadata
        if end > metadata.next_producer_id and all(end > later for later in metadata.later_producer_ids()):
            text = f"{call.host} gives producer ids below {end}; committed are those below {metadata.next_producer_id}"
            raise Violation(RULE, text)
