"""MetadataService: any broker answers questions about the image, and the leader of a partition those about its log's
ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from minilog.addresses import Address
from minilog.errors import (
    BrokerNotAvailable,
    InvalidArgument,
    MinilogError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    wire_error,
)
from minilog.limits import parts_of
from minilog.security.access_rules import CLUSTER_NAME
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import common_pb2, metadata_pb2, metadata_pb2_grpc
from minilog.versions import PROTOCOL, check_protocol, range_from_wire
from minilog_broker.controller.image import BrokerRegistration, Cordon, TopicImage
from minilog_broker.controller.ledger import NOTHING_REPORTED, Reported
from minilog_broker.printable import shortened
from minilog_broker.quorum.voters import Voter
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.running_config import RunningConfig
from minilog_broker.server.runtime.turns import Turns, WorkPiece
from minilog_broker.server.services.access_checks import TopicsAsked, check_may_write
from minilog_broker.server.services.producer_ids import ProducerIds
from minilog_broker.server.shells.quorum_shell import QuorumShell
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.version import CLIENT_VERSION

PARTITIONS_AT_ONCE = 250  # described between two looks at the clock: some milliseconds


class MetadataService(metadata_pb2_grpc.MetadataServiceServicer):
    """The gRPC service for topics, brokers, the ends of logs, and producer ids.

    `image` is this broker's replay of the committed metadata log.
    """

    def __init__(
        self,
        quorum: QuorumShell,
        replicas: ReplicationShell,
        producer_ids: ProducerIds,
        internal_topics: InternalTopics,
        is_registered: Callable[[], bool],
        reported: Callable[[], Reported],
        turns: Turns,
        stream_port_offset: int,
        running: RunningConfig,
    ) -> None:
        self._running = running
        self._stream_port_offset = stream_port_offset
        self._reported = reported
        self._turns = turns
        self._is_registered = is_registered
        self._quorum = quorum
        self._image = quorum.image
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._internal_topics = internal_topics

    async def GetMetadata(  # noqa: N802
        self, request: metadata_pb2.GetMetadataRequest, context: object
    ) -> metadata_pb2.GetMetadataResponse:
        own_name = f"broker {self._quorum.broker_id} (version {CLIENT_VERSION})"
        refusal: MinilogError | None = protocol_refusal(request.client, own_name)
        if refusal is None and not self._is_registered():  # its image is still that of a former life, or of none
            refusal = BrokerNotAvailable("this broker is starting: ask another broker, or try again")
        if refusal is not None:
            return _identified(
                metadata_pb2.GetMetadataResponse(error=wire_error(refusal), controller_id=-1, metadata_offset=-1)
            )
        assert isinstance(context, Caller)
        reported = self._reported()
        sees_all = context.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
        answer = metadata_pb2.GetMetadataResponse(
            cluster_id=self._image.cluster_id or "",
            controller_id=self._quorum.leader_id,
            controller_epoch=self._quorum.epoch,
            # The offset at the begin: later parts of the answer may be newer, never older.
            metadata_offset=self._image.end_offset,
            voters=[
                _voter(
                    voter,
                    self._image.brokers.get(voter.broker_id),
                    has_address=self._image.has_voter_addresses,
                    sees_all=sees_all,
                )
                for voter in self._image.voters
            ],
            level=self._image.level,
            listener=context.listener,
        )
        _identified(answer)
        brokers = self._image.brokers.values()
        offset, cordons = self._stream_port_offset, self._image.cordons
        tell_brokers(answer, brokers, cordons, reported, stream_port_offset=offset, sees_all=sees_all)
        piece = await self._begin(request)
        with context.refusals() as refusals:
            topics = TopicsAsked(self._image, context, refusals, self._internal_topics.first_use)
            for topic in topics.of(request):
                description = answer.topics.add()
                if isinstance(topic, metadata_pb2.TopicMetadata):
                    description.CopyFrom(topic)
                    piece = await piece.next() if piece.is_over() else piece
                else:
                    piece = await self._describe(topic, description, reported, piece)
        return answer

    async def _begin(self, request: metadata_pb2.GetMetadataRequest) -> WorkPiece:
        """The first turn of an answer. A large answer waits for its turn, for many clients may ask for one at the same
        time."""
        image = self._image
        if request.all_topics and len(image.partitions) > PARTITIONS_AT_ONCE:
            return await self._turns.take()
        return self._turns.piece()

    async def _describe(
        self, topic: TopicImage, description: metadata_pb2.TopicMetadata, reported: Reported, piece: WorkPiece
    ) -> WorkPiece:
        """Describe a topic as it is at its turn. A topic that was deleted meanwhile is described as missing."""
        description.name, description.topic_id, description.internal = topic.name, topic.topic_id, topic.internal
        description.configs.update(self._image.shown_config(topic.topic_id))
        schemas = self._image.schemas.get(topic.topic_id)
        for schema in () if schemas is None else schemas.versions:
            piece = await piece.next() if piece.is_over() else piece
            is_pending = schemas is not None and schema.version > schemas.latest.version
            (description.pending_schemas if is_pending else description.schemas).append(schema_to_wire(schema))
        description.withdrawn_schemas.extend([] if schemas is None else sorted(schemas.withdrawn))
        for keys in parts_of(list(topic.partition_keys()), PARTITIONS_AT_ONCE):
            piece = await piece.next() if piece.is_over() else piece
            states = (self._image.partitions.get(key) for key in keys)
            description.partitions.extend([_partition(state, reported) for state in states if state is not None])
        if topic.topic_id not in self._image.topics:
            description.Clear()
            description.name, description.topic_id = topic.name, topic.topic_id
            description.error.CopyFrom(wire_error(UnknownTopicOrPartition(f"topic {topic.name} was deleted")))
        return piece

    async def ListOffsets(  # noqa: N802
        self, request: metadata_pb2.ListOffsetsRequest, context: object
    ) -> metadata_pb2.ListOffsetsResponse:
        results = await self._replicas.list_offsets(request.entries, self._turns.piece())
        return metadata_pb2.ListOffsetsResponse(results=results)

    async def InitProducerId(  # noqa: N802
        self, request: metadata_pb2.InitProducerIdRequest, context: object
    ) -> metadata_pb2.InitProducerIdResponse:
        try:
            assert isinstance(context, Caller)
            check_may_write(context)
            given = await self._producer_ids.next(context)
            name = given.name
            return metadata_pb2.InitProducerIdResponse(
                producer_id=name.producer_id, producer_epoch=name.producer_epoch, producer_proof=given.proof
            )
        except MinilogError as error:
            return metadata_pb2.InitProducerIdResponse(error=wire_error(error), producer_id=-1, producer_epoch=-1)

    async def GetBrokerConfig(  # noqa: N802
        self, request: metadata_pb2.GetBrokerConfigRequest, context: object
    ) -> metadata_pb2.GetBrokerConfigResponse:
        own_id = self._quorum.broker_id
        if request.broker_id != own_id:
            refusal = InvalidArgument(
                f"this is broker {own_id}, and only broker {request.broker_id} knows its own settings: ask that broker"
            )
            return metadata_pb2.GetBrokerConfigResponse(error=wire_error(refusal))
        settings = (
            metadata_pb2.RunningSetting(
                name=setting.name, value=setting.value, source=setting.origin.source.value, where=setting.origin.where
            )
            for setting in self._running.effective()
        )
        return metadata_pb2.GetBrokerConfigResponse(settings=settings)


def protocol_refusal(client: common_pb2.ClientIdentity, own_name: str) -> UnsupportedVersion | None:
    """The refusal of a client without a common version of the protocol."""
    version = shortened(client.client_version or "unknown")
    name = f"client {shortened(client.client_id)} (version {version})"
    try:
        check_protocol(PROTOCOL, own_name, range_from_wire(client.protocol), name)
    except UnsupportedVersion as error:
        return error
    return None


def _identified(answer: metadata_pb2.GetMetadataResponse) -> metadata_pb2.GetMetadataResponse:
    """The answer with the values by which the client judges this broker."""
    answer.protocol.CopyFrom(PROTOCOL.to_wire())
    answer.broker_version = CLIENT_VERSION
    return answer


def tell_brokers(
    answer: metadata_pb2.GetMetadataResponse,
    brokers: Iterable[BrokerRegistration],
    cordons: Mapping[int, Cordon],
    reported: Reported,
    *,
    stream_port_offset: int,
    sees_all: bool,
) -> None:
    """Add the brokers to the answer, each with its address on the answer's listener. Brokers without such a listener
    stand apart, and have no address."""
    for broker in brokers:
        address = broker.address_on(answer.listener)
        message = _broker(
            broker, address or ("", 0), reported, stream_port_offset=stream_port_offset, sees_all=sees_all
        )
        if (cordon := cordons.get(broker.broker_id)) is not None:
            message.cordoned, message.decommissioning = True, cordon.decommissioning
        (answer.unreachable_brokers if address is None else answer.brokers).append(message)


def _broker(
    broker: BrokerRegistration, address: Address, reported: Reported, *, stream_port_offset: int, sees_all: bool
) -> metadata_pb2.BrokerMetadata:
    """The description of a broker. Only callers that may see all of the cluster get the broker's epoch."""
    if broker.stopping:
        state = metadata_pb2.BROKER_STATE_STOPPING
    elif broker.fenced:
        state = metadata_pb2.BROKER_STATE_FENCED
    else:
        state = metadata_pb2.BROKER_STATE_RUNNING
    return metadata_pb2.BrokerMetadata(
        broker_id=broker.broker_id,
        host=address[0],
        port=address[1],
        stream_port=address[1] + stream_port_offset if address[0] else 0,
        rack=broker.rack,
        state=state,
        broker_epoch=broker.broker_epoch if sees_all else -1,
        no_space=broker.broker_id in reported.full,
        disk_stalled=broker.broker_id in reported.stalled,
        levels=broker.levels.to_wire(),
        version=broker.version,
        host_label=broker.host_label,
        metadata_offset=reported.replayed.get(broker.broker_id),
        metadata_is_late=broker.broker_id in reported.late,
    )


def _voter(
    voter: Voter, broker: BrokerRegistration | None, *, has_address: bool, sees_all: bool
) -> metadata_pb2.VoterMetadata:
    """`has_address`: the recorded address counts."""
    lost = broker is not None and broker.directory_id != voter.directory_id
    moved = has_address and broker is not None and broker.peer_address != (voter.host, voter.port)
    host, port = (voter.host, voter.port) if has_address and sees_all else ("", 0)
    directory_id = voter.directory_id if sees_all else b""
    return metadata_pb2.VoterMetadata(
        broker_id=voter.broker_id, directory_id=directory_id, lost=lost, host=host, port=port, moved=moved
    )


def _partition(state: PartitionState, reported: Reported = NOTHING_REPORTED) -> metadata_pb2.PartitionMetadata:
    return metadata_pb2.PartitionMetadata(
        partition=state.key.partition,
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        replicas=state.replicas,
        in_sync_replicas=state.in_sync_replicas,
        eligible_leaders=state.eligible_leaders,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        throttle_bytes_per_second=state.throttle_bytes_per_second,
        damaged_replicas=state.damaged_replicas,
        offline_replicas=reported.offline_of(state),
        copies_differ=reported.is_undecided(state),
        late_cleaning_replicas=reported.late_cleanings_of(state),
    )
