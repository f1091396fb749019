"""What a life serves of transactions: as server/{transaction,group,marker}_service.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minilog.errors import InvalidArgument, MinilogError, wire_error
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import AnswerMarkers
from minilog_broker.server.services.coordinator_checks import check_commit, check_end, check_partitions
from minilog_broker.server.services.marker_checks import check_markers, markers_request
from tests.simulation.coordinating import CoordinatorPart
from tests.simulation.network import Respond

if TYPE_CHECKING:
    from tests.simulation.life import Life

METHODS = frozenset(
    (
        "Enlist",
        "RegisterPartitions",
        "KeepAlive",
        "EndTransaction",
        "AbortAttempt",
        "AbortTransaction",
        "CommitOffsets",
        "FetchOffsets",
        "WriteMarkers",
    )
)


def answer_markers(effect: AnswerMarkers) -> None:
    """Carry out AnswerMarkers."""
    assert callable(effect.ticket)
    error = None if effect.error is None else wire_error(effect.error)
    effect.ticket(coordinator_pb2.WriteMarkersResponse(error=error))


class TransactionServing:
    """See the module's text."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def serve(self, method: str, request: Any, respond: Respond) -> None:
        match method:
            case "Enlist":
                self._enlist(request, respond)
            case "WriteMarkers":
                self._write_markers(request, respond)
            case "CommitOffsets" | "FetchOffsets":
                self._of_group(method, request, respond)
            case _:
                self._of_transaction(method, request, respond)

    def _enlist(self, request: coordinator_pb2.EnlistRequest, respond: Respond) -> None:
        life, kind = self._life, coordinator_pb2.EnlistResponse

        def with_id(found: int | MinilogError) -> None:
            if not isinstance(found, int):
                respond(kind(error=wire_error(found)))
                return

            def ask(part: CoordinatorPart) -> None:
                assert isinstance(part.core, TransactionCoordinator)
                part.core.enlist(respond, request, found, part.moment())

            life.coordinating.ask(TRANSACTIONS_TOPIC_NAME, request.transactional_id, kind, respond, ask)

        try:
            life.coordinating.of(TRANSACTIONS_TOPIC_NAME, request.transactional_id)
        except MinilogError as error:
            respond(kind(error=wire_error(error)))
        else:
            life.link.next_producer_id(with_id)

    def _of_transaction(self, method: str, request: Any, respond: Respond) -> None:
        kinds: dict[str, type[Any]] = {
            "RegisterPartitions": coordinator_pb2.RegisterPartitionsResponse,
            "KeepAlive": coordinator_pb2.KeepAliveResponse,
            "EndTransaction": coordinator_pb2.EndTransactionResponse,
            "AbortAttempt": coordinator_pb2.AbortAttemptResponse,
            "AbortTransaction": coordinator_pb2.AbortTransactionResponse,
        }
        kind = kinds[method]

        def ask(part: CoordinatorPart) -> None:
            core = part.core
            assert isinstance(core, TransactionCoordinator)
            handlers: dict[str, Any] = {
                "RegisterPartitions": core.register,
                "KeepAlive": core.keep_alive,
                "EndTransaction": core.end,
                "AbortAttempt": core.abort,
                "AbortTransaction": core.abort_by_command,
            }
            handlers[method](respond, request, part.moment())

        try:
            if method == "RegisterPartitions":
                check_partitions(request.partitions)
            elif method == "EndTransaction":
                check_end(request)
        except InvalidArgument as error:
            respond(kind(error=wire_error(error)))
            return
        self._life.coordinating.ask(TRANSACTIONS_TOPIC_NAME, request.transactional_id, kind, respond, ask)

    def _of_group(self, method: str, request: Any, respond: Respond) -> None:
        commits = method == "CommitOffsets"
        kind: type[Any] = coordinator_pb2.CommitOffsetsResponse if commits else coordinator_pb2.FetchOffsetsResponse

        def ask(part: CoordinatorPart) -> None:
            assert isinstance(part.core, GroupCoordinator)
            if commits:
                part.core.commit(respond, request, part.moment())
            else:
                part.core.fetch(respond, request)

        try:
            if commits:
                check_commit(request)
            else:
                check_partitions(request.partitions)
        except InvalidArgument as error:
            respond(kind(error=wire_error(error)))
            return
        self._life.coordinating.ask(GROUPS_TOPIC_NAME, request.group_id, kind, respond, ask)

    def _write_markers(self, request: coordinator_pb2.WriteMarkersRequest, respond: Respond) -> None:
        life = self._life
        key = PartitionKey(request.partition_id.topic_id, request.partition_id.partition)
        try:
            check_markers(life.image, request)
        except MinilogError as error:
            respond(coordinator_pb2.WriteMarkersResponse(error=wire_error(error)))
            return
        if key.topic_id == life.image.topic_ids.get(GROUPS_TOPIC_NAME):
            life.coordinating.write_group_markers(request, respond)
            return
        life.touch(key)
        life.manager.write_markers(key, markers_request(request, respond, life.node.now_us), life.now_ms)
        life.replicas.run()
