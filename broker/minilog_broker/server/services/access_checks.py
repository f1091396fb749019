"""Who may write and read records: asked for each entry of a message, so that a topic that is not allowed harms no
other."""

from __future__ import annotations

from minilog.errors import MinilogError, wire_error
from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.table import topic_name, unknown_topic


class DataAccess:
    """Names of topics come from the image. One that is not known is refused: whose it is cannot be asked."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def refuses_write(
        self, caller: Caller, key: PartitionKey, transaction: TransactionalWrite | None
    ) -> MinilogError | None:
        """None where the batch may be written."""
        if caller.is_everybody:
            return None
        refusal = self._refusal(caller, Operation.WRITE, key.topic_id)
        if refusal is None and transaction is not None:
            name = transaction.transactional_id
            refusal = caller.refusal(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)
        return refusal

    def take_out_refused(self, caller: Caller, request: data_pb2.FetchRequest) -> data_pb2.FetchResponse:
        """The positions that may be read are left in `request`; the answers for the others."""
        answer = data_pb2.FetchResponse()
        if caller.is_everybody:
            return answer
        allowed = []
        for position in request.positions:
            refusal = self._refusal(caller, Operation.READ, position.partition_id.topic_id)
            if refusal is None:
                allowed.append(position)
            else:
                answer.runs.add(
                    partition_id=position.partition_id,
                    position_number=position.position_number,
                    leader_epoch=position.leader_epoch,
                    error=wire_error(refusal),
                )
        if answer.runs:
            del request.positions[:]
            request.positions.extend(allowed)
        return answer

    def _refusal(self, caller: Caller, operation: Operation, topic_id: bytes) -> MinilogError | None:
        name = topic_name(self._image, topic_id)
        if name is None or not caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            return unknown_topic(topic_id)  # an id tells nobody that there is such a topic, nor its name
        return caller.refusal(operation, ResourceKind.TOPIC, name)
