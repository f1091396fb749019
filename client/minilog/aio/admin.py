"""The admin client for asyncio. Changes go to the active controller, and follow it when it moves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from google.protobuf.message import Message

from minilog.admin.broker_settings import BrokerSettingsAdmin
from minilog.admin.delete_records import END, delete_records
from minilog.admin.health import ClusterHealth, is_from_controller, is_running, judge
from minilog.admin.hearing import NOT_HEARD_WITHIN_MS
from minilog.admin.messages import (
    CREATION_ID_BYTES,
    broker_loads,
    describe_cluster,
    describe_reassignments,
    describe_topic,
    directory_id_bytes,
    new_topic,
    partition_errors,
    parts_of_topics,
    reassignment_messages,
    split_results,
    topic_alteration,
    topic_partitions,
)
from minilog.admin.security import (
    DelegationToken,
    Quota,
    QuotaAlteration,
    TokenInformation,
    UserAlteration,
    UserDescription,
)
from minilog.admin.security_admin import SecurityAdmin
from minilog.aio.group_admin import GroupAdmin
from minilog.aio.queue_admin import QueueAdmin
from minilog.config import parse_config
from minilog.effective import EffectiveSetting
from minilog.errors import (
    BrokerNotAvailable,
    InvalidSchema,
    InvalidUpdateVersion,
    MinilogError,
    NotController,
    TimedOut,
    UnknownOutcome,
    VotersNotReady,
    error_from_wire,
)
from minilog.limits import MAX_ADMIN_PARTITIONS, MAX_ADMIN_TOPICS, parts_of
from minilog.net.lookups import answered_offsets, list_offsets, list_topics
from minilog.net.metadata_cache import metadata_request, no_topic
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import OffsetsQuery
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime, now_s
from minilog.place_words import named_place
from minilog.security.access_rules import AccessRule, AccessRuleFilter
from minilog.transactions.admin import TransactionAdmin
from minilog.types import (
    BrokerLoad,
    BrokerSetting,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupPosition,
    NewTopic,
    OffsetSpec,
    PartitionReassignment,
    QueueDescription,
    QueueListing,
    Redriven,
    SchemaStep,
    SizesFrom,
    TopicAlteration,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    VoterChange,
)
from minilog.v1 import admin_pb2, admin_pb2_grpc, metadata_pb2, metadata_pb2_grpc

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas

_log = logging.getLogger(__name__)
_Response = TypeVar(
    "_Response", admin_pb2.CreateTopicsResponse, admin_pb2.DeleteTopicsResponse, admin_pb2.AlterTopicsResponse
)
# Responses that refuse the request as a whole if the broker is not the controller.
_Decision = TypeVar(
    "_Decision",
    admin_pb2.ElectLeadersResponse,
    admin_pb2.AlterPartitionReassignmentsResponse,
    admin_pb2.ReplaceVoterResponse,
    admin_pb2.AlterVoterResponse,
)
_Answer = TypeVar("_Answer")
_PAUSE_S = 0.05
_CONTROLLER_S = 5.0  # an election takes less, so a controller without an answer by then is missing
_CONNECT_S = 1.0  # the time for a connection to one broker, in a question for its reachability
_LOST_HINT = ". An earlier attempt of this call got no answer, and may have done it"
_EVOLVE_TIMES = 5  # if so many clients evolve one schema at the same time, each gets its turn
_DESCRIBE_OFFSETS_S = 3.0  # a description without a partition's offsets is better than none


class Admin:
    """Creates, changes and describes. The methods have the meaning of minilog.Admin's. Use it on one event loop."""

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._given, self._config = dict(config), parse_config(config)
        self._cluster = NetworkClient(self._config, runtime)
        self._groups = GroupAdmin(self._cluster, self.list_offsets)
        self._queues = QueueAdmin(self._cluster)
        self._transactions = TransactionAdmin(self._cluster)
        self._broker_settings = BrokerSettingsAdmin(self._cluster, self._config.request_timeout_ms, self._decide)
        self._security = SecurityAdmin(
            self._cluster, self._config.request_timeout_ms, self._decide, self._ask_controller
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, str]:
        created: dict[str, str] = {}
        runtime = self._cluster.runtime
        for part in parts_of_topics([new_topic(topic, runtime.unique_bytes(CREATION_ID_BYTES)) for topic in topics]):
            request = admin_pb2.CreateTopicsRequest(
                client=self._cluster.identity,
                timeout_ms=self._config.request_timeout_ms,
                topics=part,
                validate_only=validate_only,
            )
            created |= await self._change("create topics", _call_of("CreateTopics", request))
        return created

    async def delete_topics(self, names: Iterable[str]) -> None:
        for part in parts_of([admin_pb2.TopicDeletion(name=name) for name in names], MAX_ADMIN_TOPICS):
            request = admin_pb2.DeleteTopicsRequest(
                client=self._cluster.identity, timeout_ms=self._config.request_timeout_ms, topics=part
            )
            await self._change("delete topics", _call_of("DeleteTopics", request))

    async def alter_topics(self, alterations: Iterable[TopicAlteration]) -> None:
        for part in parts_of_topics([topic_alteration(alteration) for alteration in alterations]):
            request = admin_pb2.AlterTopicsRequest(
                client=self._cluster.identity, timeout_ms=self._config.request_timeout_ms, topics=part
            )
            await self._change("alter topics", _call_of("AlterTopics", request))

    async def alter_topic(
        self,
        name: str,
        *,
        num_partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
        schema: TopicSchema | None = None,
    ) -> None:
        configs, unset = dict(set_configs or {}), list(unset_configs)
        await self.alter_topics([TopicAlteration(name, num_partitions, configs, unset, schema)])

    async def evolve_schema(
        self, topic: str, change: Callable[[TopicSchema], TopicSchema], *, is_pending: bool = False
    ) -> TopicSchema:
        from minilog.typed.schema.evolution import proposal  # it loads Arrow, so only calls with a schema import it

        step = SchemaStep.PENDING if is_pending else SchemaStep.LATEST
        for attempt in range(1, _EVOLVE_TIMES + 1):
            schemas = await self._schemas(topic)
            proposed = proposal(schemas, change)
            if proposed is schemas.latest:
                return proposed
            try:
                await self.alter_topics([TopicAlteration(topic, schema=proposed, schema_step=step)])
            except (
                InvalidUpdateVersion
            ) as error:  # another client was first: make the same change of the latest version
                if attempt == _EVOLVE_TIMES:
                    raise
                _log.debug(
                    "another client was first, so the client makes version %d of the schema of %s again: %s",
                    proposed.version,
                    topic,
                    error,
                )
            else:
                return proposed
        raise AssertionError("the last attempt returns or raises")

    async def _schemas(self, topic: str) -> TopicSchemas:
        """The schemas, not older than this client's own changes. Raises InvalidSchema if the topic has none."""
        await self._cluster.refresh([topic])
        cached = self._cluster.cache.topics.get(topic)
        if cached is None:
            raise no_topic(topic)
        if cached.schemas is None:
            raise InvalidSchema(f"topic {topic!r} has no schema: its records are keys and values")
        return cached.schemas

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, MinilogError | None]:
        errors: dict[TopicPartition, MinilogError | None] = {}
        for part in [()] if partitions is None else parts_of(list(partitions), MAX_ADMIN_PARTITIONS):
            request = admin_pb2.ElectLeadersRequest(
                client=self._cluster.identity,
                timeout_ms=self._config.request_timeout_ms,
                topics=topic_partitions(part),
            )
            response = await self._decide("elect leaders", _call_of("ElectLeaders", request))
            errors |= partition_errors(response.results)
        return errors

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> dict[TopicPartition, MinilogError | None]:
        errors: dict[TopicPartition, MinilogError | None] = {}
        wanted = reassignment_messages(reassignments, throttle_bytes_per_second)
        for part in parts_of(wanted, MAX_ADMIN_PARTITIONS):
            request = admin_pb2.AlterPartitionReassignmentsRequest(
                client=self._cluster.identity, timeout_ms=self._config.request_timeout_ms, reassignments=part
            )
            response = await self._decide("reassign replicas", _call_of("AlterPartitionReassignments", request))
            errors |= partition_errors(response.results)
        return errors

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        return describe_reassignments(await self._all_topics("list reassignments"))

    async def list_brokers(self) -> list[BrokerLoad]:
        return broker_loads(await self._all_topics("list brokers"))

    async def _all_topics(self, what: str) -> metadata_pb2.GetMetadataResponse:
        """The metadata of all topics from the active controller, which has its own decisions first."""
        request = metadata_request(self._cluster.identity, None)
        deadline_s = self._cluster.deadline()
        while True:
            answer: metadata_pb2.GetMetadataResponse | None = await self._ask_controller(
                lambda channel, s: metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=s),
                deadline_s,
            )
            if answer is not None and not answer.error.code:
                return answer
            await self._again(what, deadline_s, maybe_done=False)

    async def cordon_broker(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_CORDON)

    async def uncordon_broker(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_UNCORDON)

    async def decommission_broker(self, broker_id: int, *, throttle_bytes_per_second: int | None = None) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_DECOMMISSION, throttle_bytes_per_second)

    async def forget_broker(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_FORGET)

    async def _alter_broker(
        self, broker_id: int, change: admin_pb2.BrokerChange.ValueType, throttle_bytes_per_second: int | None = None
    ) -> None:
        request = admin_pb2.AlterBrokerRequest(
            client=self._cluster.identity,
            timeout_ms=self._config.request_timeout_ms,
            broker_id=broker_id,
            change=change,
            throttle_bytes_per_second=throttle_bytes_per_second or 0,
        )
        await self._decide("change a broker", _call_of("AlterBroker", request))

    async def replace_voter(self, broker_id: int, *, lost_directory_id: str | None = None) -> tuple[str, str]:
        request = admin_pb2.ReplaceVoterRequest(
            client=self._cluster.identity,
            timeout_ms=self._config.request_timeout_ms,
            broker_id=broker_id,
            lost_directory_id=directory_id_bytes(lost_directory_id),
        )
        response = await self._decide("replace a voter", _call_of("ReplaceVoter", request))
        return response.lost_directory_id.hex(), response.directory_id.hex()

    async def add_voter(self, broker_id: int) -> VoterChange:
        return await self._alter_voter(broker_id, admin_pb2.VOTER_CHANGE_ADD)

    async def remove_voter(self, broker_id: int) -> VoterChange:
        return await self._alter_voter(broker_id, admin_pb2.VOTER_CHANGE_REMOVE)

    async def move_voter(self, broker_id: int) -> VoterChange:
        return await self._alter_voter(broker_id, admin_pb2.VOTER_CHANGE_MOVE)

    async def _alter_voter(self, broker_id: int, change: admin_pb2.VoterChange.ValueType) -> VoterChange:
        request = admin_pb2.AlterVoterRequest(
            client=self._cluster.identity,
            timeout_ms=self._config.request_timeout_ms,
            broker_id=broker_id,
            change=change,
        )
        deadline_s = self._cluster.deadline()
        while True:
            try:
                response = await self._decide("change the voters", _call_of("AlterVoter", request))
            except VotersNotReady:  # the new voter still fetches, or the change before is not committed
                if now_s() >= deadline_s:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return VoterChange(response.changed, list(response.voter_ids))

    async def upgrade_level(self, level: int | None = None) -> tuple[int, int]:
        request = admin_pb2.UpgradeLevelRequest(
            client=self._cluster.identity, timeout_ms=self._config.request_timeout_ms, level=level
        )
        response = await self._decide("raise the level", _call_of("UpgradeLevel", request))
        return response.former_level, response.level

    async def alter_broker_settings(
        self,
        broker_id: int | None,
        *,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
    ) -> list[BrokerSetting]:
        return await self._broker_settings.alter(broker_id, dict(set_configs or {}), unset_configs)

    async def describe_broker_settings(self) -> list[BrokerSetting]:
        return await self._broker_settings.describe()

    async def broker_config(self, broker_id: int) -> list[EffectiveSetting]:
        return await self._broker_settings.running(broker_id)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        return await list_topics(self._cluster, internal=internal)

    async def describe_cluster(self) -> ClusterDescription:
        return describe_cluster(await self._cluster.refresh([]))

    async def cluster_health(self) -> ClusterHealth:
        request = metadata_request(self._cluster.identity, None)
        within_s = min(self._cluster.deadline(), now_s() + _CONTROLLER_S)
        answer = None
        with contextlib.suppress(BrokerNotAvailable, TimedOut):
            answer = await self._ask_controller(
                lambda channel, s: metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=s),
                within_s,
            )
        if answer is None or answer.error.code:  # without a controller, any broker's metadata serves
            answer = await self._cluster.refresh(None)
            if not is_from_controller(answer) and not await self._is_controlled():
                answer.controller_id = -1
        tried = (self._try_broker(broker.broker_id) for broker in answer.brokers if is_running(broker))
        await asyncio.gather(*tried, return_exceptions=True)  # a broker that refuses this client is reached
        return judge(answer, self._cluster.cache.unreachable_addresses())

    async def _try_broker(self, broker_id: int) -> None:
        """Find out whether this client reaches both ports of the broker."""
        from minilog.net.stream_trial import try_stream  # it loads Arrow

        address = self._cluster.address(broker_id)
        if address is not None and await self._cluster.is_reachable(address, _CONNECT_S):
            await try_stream(self._cluster, broker_id, _CONNECT_S)

    async def _is_controlled(self) -> bool:
        """Whether the controller in the metadata answers. If this client cannot reach it, the metadata of the other
        brokers decides."""
        cache = self._cluster.cache
        address = self._cluster.address(cache.controller_id)
        if cache.controller_id in cache.unreachable or cache.controller_id in cache.unreachable_addresses():
            return True
        return address is not None and await self._cluster.is_reachable(address, _CONTROLLER_S)

    async def describe_topics(
        self,
        names: Iterable[str] | Callable[[str], bool] | None = None,
        *,
        missing_ok: bool = False,
        sizes: Callable[[TopicPartition], SizesFrom] | None = None,
        replica_ends: bool = False,
    ) -> list[TopicDescription]:
        chosen: Callable[[str], bool] = names if callable(names) else lambda name: True
        wanted = None if names is None or callable(names) else list(names)
        cached = self._cluster.cache.topics
        before = [cached[name].described for name in (cached if wanted is None else wanted) if name in cached]
        early = self._offsets_query([topic for topic in before if chosen(topic.name)], sizes, replica_ends)
        answer = await self._cluster.refresh_and_ask(wanted, early)
        topics = {topic.name: topic for topic in answer.topics if not topic.error.code and chosen(topic.name)}
        order = sorted(topics) if wanted is None else [name for name in wanted if name in topics or not missing_ok]
        for name in order:
            if name not in topics:
                raise no_topic(name)
        query = self._offsets_query(topics.values(), sizes, replica_ends)
        query.results = {partition: result for partition, result in early.results.items() if partition in query.wanted}
        if query.missing():
            await self._cluster.complete(query, min(self._cluster.deadline(), now_s() + _DESCRIBE_OFFSETS_S))
        return [describe_topic(topics[name], query.results, query.last_errors) for name in order]

    def _offsets_query(
        self,
        topics: Iterable[metadata_pb2.TopicMetadata],
        sizes: Callable[[TopicPartition], SizesFrom] | None,
        replica_ends: bool,
    ) -> OffsetsQuery:
        partitions = [
            TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions
        ]
        sizes_by_partition = {} if sizes is None else {partition: sizes(partition) for partition in partitions}
        return OffsetsQuery(
            self._cluster.cache, dict.fromkeys(partitions, "latest"), sizes_by_partition, with_replicas=replica_ends
        )

    async def list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int | None]:
        times = {partition: at for partition, at in wanted.items() if isinstance(at, int)}
        ends = await list_offsets(self._cluster, {at: spec for at, spec in wanted.items() if at not in times})
        if not times:
            return ends
        from minilog.aio.first_records import offsets_for_times  # it reads records: loaded for times alone

        offsets = {**ends, **await offsets_for_times(self._cluster, times)}
        return {partition: offsets[partition] for partition in wanted}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not before:
            return {}
        before = {at: END if named_place(offset) == "latest" else offset for at, offset in before.items()}
        emptied = [partition for partition, offset in before.items() if offset == END]
        ends = await answered_offsets(self._cluster, dict.fromkeys(emptied, "latest"))
        return await delete_records(self._cluster, before, ends)

    async def list_groups(self) -> list[GroupListing]:
        return await self._groups.list()

    async def describe_group(self, group_id: str) -> GroupDescription:
        return await self._groups.describe(group_id)

    async def seek_group(self, group_id: str, to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, int]:
        return await self._groups.seek(group_id, to)

    async def delete_group(self, group_id: str) -> None:
        await self._groups.delete(group_id)

    async def remove_group_member(self, group_id: str, member: str) -> None:
        await self._groups.remove_member(group_id, member)

    async def list_queues(self) -> list[QueueListing]:
        return await self._queues.list()

    async def describe_queue(self, queue: str) -> QueueDescription:
        return await self._queues.describe(queue)

    async def alter_queue(self, queue: str, *, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> None:
        await self._queues.alter(queue, set or {}, unset)

    async def delete_queue(self, queue: str) -> None:
        await self._queues.delete(queue)

    async def redrive_queue(self, queue: str, *, max_letters: int | None = None) -> Redriven:
        from minilog.aio.redrive import Redrive  # other calls need no Arrow

        return await Redrive(self._given, self._cluster, queue).run(max_letters)

    async def list_transactions(self) -> list[TransactionListing]:
        return await self._transactions.list()

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        return await self._transactions.describe(transactional_id)

    async def abort_transaction(self, transactional_id: str) -> int:
        return await self._transactions.abort(transactional_id)

    async def forget_transaction(self, transactional_id: str) -> None:
        await self._transactions.forget(transactional_id)

    async def alter_users(self, alterations: Iterable[UserAlteration]) -> None:
        await self._security.alter_users(alterations)

    async def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        return await self._security.describe_users(names)

    async def create_access_rules(self, rules: Iterable[AccessRule]) -> int:
        return await self._security.create_access_rules(rules)

    async def delete_access_rules(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        return await self._security.delete_access_rules(filters)

    async def describe_access_rules(self, wanted: AccessRuleFilter | None = None) -> list[AccessRule]:
        return await self._security.describe_access_rules(wanted)

    async def not_heard_by(self, within_ms: int = NOT_HEARD_WITHIN_MS) -> list[int]:
        return await self._security.not_heard_by(within_ms)

    async def alter_quotas(self, alterations: Iterable[QuotaAlteration]) -> list[Quota]:
        return await self._security.alter_quotas(alterations)

    async def describe_quotas(self, entity: str | None = None) -> list[Quota]:
        return await self._security.describe_quotas(entity)

    async def create_delegation_token(
        self, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        return await self._security.create_delegation_token(renewers, max_lifetime_ms)

    async def renew_delegation_token(self, token_id: str, renew_period_ms: int | None = None) -> int:
        return await self._security.renew_delegation_token(token_id, renew_period_ms)

    async def expire_delegation_token(self, token_id: str, expiry_period_ms: int | None = None) -> int:
        return await self._security.expire_delegation_token(token_id, expiry_period_ms)

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[TokenInformation]:
        return await self._security.describe_delegation_tokens(owners)

    async def _change(self, what: str, make: Callable[[Any, float], Awaitable[_Response]]) -> dict[str, str]:
        """Ask the active controller until it answers for all topics. Raises the first topic's error."""
        deadline_s = self._cluster.deadline()
        maybe_done = False
        while True:
            response = await self._ask_controller(make, deadline_s)
            if response is None:
                maybe_done = True
            else:
                self._cluster.cache.must_show(response.metadata_offset)
                done, failed = split_results(response.results)
                moved = any(isinstance(error, NotController) for error in failed.values())
                if not moved and not failed:
                    return {name: str(uuid.UUID(bytes=i)) if len(i) == 16 else i.hex() for name, i in done.items()}
                if not moved:
                    raise _first(failed, maybe_done=maybe_done)
                maybe_done = True  # a controller that was deposed meanwhile does not know the outcome
            await self._again(what, deadline_s, maybe_done=maybe_done)

    async def _decide(
        self, what: str, make: Callable[[Any, float], Awaitable[_Decision]], *, changes: bool = True
    ) -> _Decision:
        """Ask the active controller until it decides. Raises the error of the request as a whole."""
        deadline_s = self._cluster.deadline()
        maybe_done = False
        while True:
            response = await self._ask_controller(make, deadline_s)
            error = None if response is None else error_from_wire(response.error)
            if response is not None and not isinstance(error, NotController):
                if error is not None:
                    raise type(error)(f"{error}{_LOST_HINT}") if maybe_done else error
                self._cluster.cache.must_show(response.metadata_offset)
                return response
            maybe_done = changes
            await self._again(what, deadline_s, maybe_done=maybe_done)

    async def _again(self, what: str, deadline_s: float, *, maybe_done: bool) -> None:
        """Pause before the next question to the controller. Raises if the time is over."""
        if now_s() >= deadline_s:
            message = f"no controller answered within request.timeout.ms={self._config.request_timeout_ms}: {what}"
            why = self._cluster.cache.why_unreachable(self._cluster.cache.controller_id)
            message += "" if why is None else f" ({why})"
            raise UnknownOutcome(f"{message}. It may be done all the same") if maybe_done else TimedOut(message)
        await asyncio.sleep(_PAUSE_S)

    async def _ask_controller(
        self, make: Callable[[Any, float], Awaitable[_Answer]], deadline_s: float
    ) -> _Answer | None:
        """The controller's answer, or None if the answer was lost. Raises BrokerNotAvailable without a controller."""
        while True:
            await self._cluster.refresh([], deadline_s)
            address = self._cluster.address(self._cluster.cache.controller_id)
            if address is not None and await self._cluster.is_reachable(address, min(1.0, deadline_s - now_s())):
                break
            if now_s() >= deadline_s:
                nobody = BrokerNotAvailable("there is no active controller now: try again")
                raise self._cluster.cache.why_unreachable(self._cluster.cache.controller_id) or nobody
            await asyncio.sleep(_PAUSE_S)
        timeout_s = max(0.001, deadline_s - now_s())
        return await self._cluster.call(address, lambda channel: make(channel, timeout_s))


def _call_of(method: str, request: Message) -> Callable[[Any, float], Awaitable[Any]]:
    """A function that makes one call of AdminService on a channel, within a number of seconds."""
    return lambda channel, seconds: getattr(admin_pb2_grpc.AdminServiceStub(channel), method)(request, timeout=seconds)


def _first(failed: Mapping[str, MinilogError], *, maybe_done: bool) -> MinilogError:
    name, error = next(iter(failed.items()))
    others = f" ({len(failed) - 1} more topics failed)" if len(failed) > 1 else ""
    hint = _LOST_HINT if maybe_done else ""
    return type(error)(f"topic {name!r}: {error}{others}{hint}")
