"""What a life serves of deleting records: as server/services/data_service.py. The judge hears of each question and
answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.errors import wire_error
from minilog.v1 import data_pb2
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import AnswerDeleteRecords
from tests.simulation.network import Respond
from tests.simulation.touched import TrimAnswered, TrimAsked

if TYPE_CHECKING:
    from tests.simulation.life import Life


@dataclass(slots=True)
class _Call:
    """Answered when all its entries are."""

    respond: Respond
    results: list[data_pb2.DeleteRecordsResult]
    missing: int


@dataclass(frozen=True, slots=True)
class _Ticket:
    """Where the answer to one entry goes."""

    call: _Call
    key: PartitionKey
    offset: int
    result: data_pb2.DeleteRecordsResult


class TrimServing:
    """See the module's text. `waiting`: entries that are not answered."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.waiting = 0

    def serve(self, request: data_pb2.DeleteRecordsRequest, respond: Respond) -> None:
        life = self._life
        results = [data_pb2.DeleteRecordsResult(partition_id=entry.partition_id) for entry in request.entries]
        call = _Call(respond, results, len(results))
        for entry, result in zip(request.entries, results, strict=True):
            key = PartitionKey(entry.partition_id.topic_id, entry.partition_id.partition)
            life.touch(key)
            life.touched.trims_asked.append(TrimAsked(life.node.node_id, key, entry.before_offset))
            self.waiting += 1
            ticket = _Ticket(call, key, entry.before_offset, result)
            wanted = DeleteRecordsRequest(ticket, entry.before_offset, life.now_ms + request.timeout_ms)
            life.manager.delete_records(key, entry.leader_epoch, wanted, life.now_ms)
        life.replicas.run()

    def answer(self, effect: AnswerDeleteRecords) -> None:
        """Carry out AnswerDeleteRecords."""
        ticket, life = effect.ticket, self._life
        assert isinstance(ticket, _Ticket)
        self.waiting -= 1
        life.touch(ticket.key)
        if effect.error is None:
            said = TrimAnswered(life.node.node_id, ticket.key, ticket.offset, effect.low_watermark)
            life.touched.trims_answered.append(said)
        else:
            ticket.result.error.CopyFrom(wire_error(effect.error))
        ticket.result.low_watermark = effect.low_watermark
        ticket.call.missing -= 1
        if not ticket.call.missing:
            ticket.call.respond(data_pb2.DeleteRecordsResponse(results=ticket.call.results))
