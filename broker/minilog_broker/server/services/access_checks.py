"""The rights to write records, to read them and to see topics. Each entry of a message is checked by itself, so that a
refused topic does not affect others. One event of the audit log has all refusals of one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minilog.errors import MinilogError, UnknownTopicOrPartition, wire_error
from minilog.net.coordinators_of import INTERNAL_TOPIC_NAMES
from minilog.partition_key import PartitionKey
from minilog.security.access_rules import CLUSTER_NAME
from minilog.v1 import data_pb2, metadata_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.printable import shortened
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.refusals import Refusals, unknown_topic
from minilog_broker.server.access.table import by_id


class DataAccess:
    """The checks of produce and fetch. The image has the names of topics. An unknown topic is refused, for no rule
    covers it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def refuses_write(
        self, refusals: Refusals, key: PartitionKey, transaction: TransactionalWrite | None
    ) -> MinilogError | None:
        """The refusal of a batch, None where the caller may write it."""
        if refusals.are_of_everybody:
            return None
        refusal = self._refusal(refusals, Operation.WRITE, key.topic_id)
        if refusal is None and transaction is not None:
            name = transaction.transactional_id
            refusal = refusals.of(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name)
        return refusal

    def take_out_refused(self, caller: Caller, request: data_pb2.FetchRequest) -> data_pb2.FetchResponse:
        """Leave the positions that the caller may read in `request`. The response has the refusals of the others."""
        answer = data_pb2.FetchResponse()
        if caller.is_everybody:
            return answer
        allowed = []
        with caller.refusals() as refusals:
            for position in request.positions:
                refusal = self._refusal(refusals, Operation.READ, position.partition_id.topic_id)
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

    def _refusal(self, refusals: Refusals, operation: Operation, topic_id: bytes) -> MinilogError | None:
        return refusals.of(operation, ResourceKind.TOPIC, by_id(self._image, topic_id))


def check_may_write(caller: Caller) -> None:
    """Raises AuthorizationFailed unless the caller may write to any topic: only such callers get producer ids (Kafka's
    rule since 3.0)."""
    question = (Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, CLUSTER_NAME)
    if caller.may(*question) or caller.may_any(Operation.WRITE, ResourceKind.TOPIC):
        return  # an honest producer has no refusal in the audit log, though it has no rule for the cluster
    if (refusal := caller.judge(*question)) is not None:
        raise refusal


class TopicsAsked:
    """The topics in the answer to one request for metadata. Any client may look for a coordinator, and so sees internal
    topics. `first_use(name)`: the answer where such a topic does not exist yet."""

    def __init__(
        self, image: MetadataImage, caller: Caller, refusals: Refusals, first_use: Callable[[str], MinilogError | None]
    ) -> None:
        self._image = image
        self._caller = caller
        self._refusals = refusals
        self._first_use = first_use

    def of(self, request: metadata_pb2.GetMetadataRequest) -> Iterator[TopicImage | metadata_pb2.TopicMetadata]:
        """The topics, and the answers for topics that do not exist or that the caller may not know. A request for all
        topics has no refusals. The image may change between two results."""
        if request.all_topics:
            for topic in list(self._image.topics.values()):
                if topic.internal or self._caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
                    yield topic
            return
        yield from map(self._named, request.topic_names)
        yield from map(self._of_id, request.topic_ids)

    def _named(self, name: str) -> TopicImage | metadata_pb2.TopicMetadata:
        topic = self._image.topic(name)
        is_internal = name in INTERNAL_TOPIC_NAMES or (topic is not None and topic.internal)
        error: MinilogError
        if not is_internal and not self._caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            self._refusals.hide(Operation.DESCRIBE, ResourceKind.TOPIC, name)
            error = UnknownTopicOrPartition(
                f"topic {shortened(name)} does not exist, or {self._caller.principal} may not describe it "
                "(minilog acl add)"
            )
        elif topic is not None:
            return topic
        else:
            error = self._first_use(name) or UnknownTopicOrPartition(
                f"topic {shortened(name)} does not exist: create it, or see `minilog topic list`"
            )
        return metadata_pb2.TopicMetadata(error=wire_error(error), name=name)

    def _of_id(self, topic_id: bytes) -> TopicImage | metadata_pb2.TopicMetadata:
        topic = self._image.topics.get(topic_id)
        if topic is not None and topic.internal:
            return topic
        error = self._refusals.of(Operation.DESCRIBE, ResourceKind.TOPIC, by_id(self._image, topic_id))
        if topic is not None and error is None:
            return topic
        return metadata_pb2.TopicMetadata(error=wire_error(error or unknown_topic(topic_id)), topic_id=topic_id)
