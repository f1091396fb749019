"""Settings of brokers that count while they run: the controller keeps them, and each broker says what it runs with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from minilog.effective import EffectiveSetting, Origin, Source
from minilog.errors import BrokerNotAvailable, ResourceNotFound, UnsupportedVersion, error_from_wire
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.v1 import admin_pb2, admin_pb2_grpc, metadata_pb2, metadata_pb2_grpc

_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One of them, as it was typed. `broker_id`: None: of all brokers that have none of that name of their own."""

    broker_id: int | None
    name: str
    value: str


class Decide(Protocol):
    """Ask the controller, by `make(channel, seconds)`, until one answers; the answer, or its error is raised."""

    def __call__(self, what: str, make: Any, *, changes: bool = True) -> Awaitable[Any]: ...


class BrokerSettingsAdmin:
    """See minilog.Admin for the meaning of everything."""

    def __init__(self, cluster: NetworkClient, request_timeout_ms: int, decide: Decide) -> None:
        self._cluster = cluster
        self._timeout_ms = request_timeout_ms
        self._decide = decide

    async def alter(
        self, broker_id: int | None, set_configs: Mapping[str, str], unset_configs: Iterable[str]
    ) -> list[BrokerSetting]:
        request = admin_pb2.AlterBrokerSettingsRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            broker_id=broker_id,
            set_configs=set_configs,
            unset_configs=list(unset_configs),
        )
        response = await self._decide(
            "alter settings of brokers",
            lambda channel, s: admin_pb2_grpc.AdminServiceStub(channel).AlterBrokerSettings(request, timeout=s),
        )
        return told_settings(response.former)

    async def describe(self) -> list[BrokerSetting]:
        request = admin_pb2.DescribeBrokerSettingsRequest(client=self._cluster.identity, timeout_ms=self._timeout_ms)
        response = await self._decide(
            "describe settings of brokers",
            lambda channel, s: admin_pb2_grpc.AdminServiceStub(channel).DescribeBrokerSettings(request, timeout=s),
            changes=False,
        )
        return told_settings(response.settings)

    async def running(self, broker_id: int) -> list[EffectiveSetting]:
        request = metadata_pb2.GetBrokerConfigRequest(client=self._cluster.identity, broker_id=broker_id)
        deadline_s = self._cluster.deadline()
        while True:
            answer = await self._ask(request, deadline_s)
            if answer is not None:
                if (error := error_from_wire(answer.error)) is not None:
                    raise error
                return list(map(_told_running, answer.settings))
            if now_s() >= deadline_s:
                raise BrokerNotAvailable(
                    f"broker {broker_id} does not answer within request.timeout.ms={self._timeout_ms}, and it alone "
                    "can tell what it runs with: see minilog cluster health"
                )
            await asyncio.sleep(_PAUSE_S)

    async def _ask(
        self, request: metadata_pb2.GetBrokerConfigRequest, deadline_s: float
    ) -> metadata_pb2.GetBrokerConfigResponse | None:
        """None where the broker cannot be reached now."""
        answer = await self._cluster.refresh([], deadline_s)
        if not any(each.broker_id == request.broker_id for each in (*answer.brokers, *answer.unreachable_brokers)):
            raise ResourceNotFound(f"broker {request.broker_id} has never registered: see minilog cluster describe")
        address = self._cluster.address(request.broker_id)
        within_s = max(0.001, min(1.0, deadline_s - now_s()))
        if address is None or not await self._cluster.is_reachable(address, within_s):
            return None
        timeout_s = max(0.001, deadline_s - now_s())
        return await self._cluster.call(
            address,
            lambda channel: metadata_pb2_grpc.MetadataServiceStub(channel).GetBrokerConfig(request, timeout=timeout_s),
        )


def told_settings(told: Iterable[admin_pb2.BrokerSetting]) -> list[BrokerSetting]:
    return [
        BrokerSetting(each.broker_id if each.HasField("broker_id") else None, each.name, each.value) for each in told
    ]


def _told_running(told: metadata_pb2.RunningSetting) -> EffectiveSetting:
    """Raises UnsupportedVersion where a later version names a source that this one does not know."""
    try:
        source = Source(told.source)
    except ValueError:
        raise UnsupportedVersion(
            f"where {told.name} comes from, {told.source!r}, this version does not know: use the version of the broker"
        ) from None
    return EffectiveSetting(told.name, told.value, Origin(source, told.where))
