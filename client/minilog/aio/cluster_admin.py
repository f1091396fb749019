"""The calls of Admin for the cluster: its brokers, voters, leaders and level, and what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from minilog.admin.controller_client import ControllerClient, call_of
from minilog.admin.health import ClusterHealth, is_from_controller, is_running, judge
from minilog.admin.messages import (
    broker_loads,
    describe_reassignments,
    directory_id_bytes,
    partition_errors,
    reassignment_messages,
    topic_partitions,
)
from minilog.errors import BrokerNotAvailable, MinilogError, TimedOut, VotersNotReady
from minilog.limits import MAX_ADMIN_PARTITIONS, parts_of
from minilog.net.metadata_cache import metadata_request
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.types import BrokerLoad, PartitionReassignment, TopicPartition, VoterChange
from minilog.v1 import admin_pb2, metadata_pb2, metadata_pb2_grpc

_PAUSE_S = 0.05
_CONTROLLER_S = 5.0  # an election takes less, so a controller without an answer by then is missing
_CONNECT_S = 1.0  # the time for a connection to one broker, in a question for its reachability


class ClusterAdmin:
    """The methods of Admin for the cluster. minilog.aio.admin describes them."""

    def __init__(self, cluster: NetworkClient, controller: ControllerClient) -> None:
        self._cluster = cluster
        self._controller = controller
        self._timeout_ms = cluster.config.request_timeout_ms

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, MinilogError | None]:
        errors: dict[TopicPartition, MinilogError | None] = {}
        for part in [()] if partitions is None else parts_of(list(partitions), MAX_ADMIN_PARTITIONS):
            request = admin_pb2.ElectLeadersRequest(
                client=self._cluster.identity,
                timeout_ms=self._timeout_ms,
                topics=topic_partitions(part),
            )
            response = await self._controller.decide("elect leaders", call_of("ElectLeaders", request))
            errors |= partition_errors(response.results)
        return errors

    async def reassign(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> dict[TopicPartition, MinilogError | None]:
        errors: dict[TopicPartition, MinilogError | None] = {}
        wanted = reassignment_messages(reassignments, throttle_bytes_per_second)
        for part in parts_of(wanted, MAX_ADMIN_PARTITIONS):
            request = admin_pb2.AlterPartitionReassignmentsRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, reassignments=part
            )
            response = await self._controller.decide(
                "reassign replicas", call_of("AlterPartitionReassignments", request)
            )
            errors |= partition_errors(response.results)
        return errors

    async def reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        return describe_reassignments(await self._all_topics("list reassignments"))

    async def brokers(self) -> list[BrokerLoad]:
        return broker_loads(await self._all_topics("list brokers"))

    async def _all_topics(self, what: str) -> metadata_pb2.GetMetadataResponse:
        """The metadata of all topics from the active controller, which has its own decisions first."""
        request = metadata_request(self._cluster.identity, None)
        deadline_s = self._cluster.deadline()
        while True:
            answer: metadata_pb2.GetMetadataResponse | None = await self._controller.ask(
                lambda channel, s: metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=s),
                deadline_s,
            )
            if answer is not None and not answer.error.code:
                return answer
            await self._controller.pause(what, deadline_s, maybe_done=False)

    async def cordon(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_CORDON)

    async def uncordon(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_UNCORDON)

    async def decommission(self, broker_id: int, *, throttle_bytes_per_second: int | None = None) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_DECOMMISSION, throttle_bytes_per_second)

    async def forget(self, broker_id: int) -> None:
        await self._alter_broker(broker_id, admin_pb2.BROKER_CHANGE_FORGET)

    async def _alter_broker(
        self, broker_id: int, change: admin_pb2.BrokerChange.ValueType, throttle_bytes_per_second: int | None = None
    ) -> None:
        request = admin_pb2.AlterBrokerRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            broker_id=broker_id,
            change=change,
            throttle_bytes_per_second=throttle_bytes_per_second or 0,
        )
        await self._controller.decide("change a broker", call_of("AlterBroker", request))

    async def replace_voter(self, broker_id: int, *, lost_directory_id: str | None = None) -> tuple[str, str]:
        request = admin_pb2.ReplaceVoterRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            broker_id=broker_id,
            lost_directory_id=directory_id_bytes(lost_directory_id),
        )
        response = await self._controller.decide("replace a voter", call_of("ReplaceVoter", request))
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
            timeout_ms=self._timeout_ms,
            broker_id=broker_id,
            change=change,
        )
        deadline_s = self._cluster.deadline()
        while True:
            try:
                response = await self._controller.decide("change the voters", call_of("AlterVoter", request))
            except VotersNotReady:  # the new voter still fetches, or the change before is not committed
                if now_s() >= deadline_s:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return VoterChange(response.changed, list(response.voter_ids))

    async def upgrade_level(self, level: int | None = None) -> tuple[int, int]:
        request = admin_pb2.UpgradeLevelRequest(client=self._cluster.identity, timeout_ms=self._timeout_ms, level=level)
        response = await self._controller.decide("raise the level", call_of("UpgradeLevel", request))
        return response.former_level, response.level

    async def health(self) -> ClusterHealth:
        request = metadata_request(self._cluster.identity, None)
        within_s = min(self._cluster.deadline(), now_s() + _CONTROLLER_S)
        answer = None
        with contextlib.suppress(BrokerNotAvailable, TimedOut):
            answer = await self._controller.ask(
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
