"""Settings of running brokers: the controller keeps them, and each broker answers with its own effective ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from minilog.admin.controller_client import ControllerClient
from minilog.effective import EffectiveSetting, Origin, Source
from minilog.errors import BrokerNotAvailable, ResourceNotFound, UnsupportedVersion, error_from_wire
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.types import BrokerSetting
from minilog.v1 import admin_pb2, admin_pb2_grpc, metadata_pb2, metadata_pb2_grpc

_PAUSE_S = 0.05


class BrokerSettingsAdmin:
    """The methods of Admin: minilog.aio.admin describes them."""

    def __init__(self, cluster: NetworkClient, controller: ControllerClient) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.config.request_timeout_ms
        self._controller = controller

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
        response = await self._controller.decide(
            "alter settings of brokers",
            lambda channel, s: admin_pb2_grpc.AdminServiceStub(channel).AlterBrokerSettings(request, timeout=s),
        )
        return parsed_settings(response.former)

    async def describe(self) -> list[BrokerSetting]:
        request = admin_pb2.DescribeBrokerSettingsRequest(client=self._cluster.identity, timeout_ms=self._timeout_ms)
        response = await self._controller.decide(
            "describe settings of brokers",
            lambda channel, s: admin_pb2_grpc.AdminServiceStub(channel).DescribeBrokerSettings(request, timeout=s),
            changes=False,
        )
        return parsed_settings(response.settings)

    async def running(self, broker_id: int) -> list[EffectiveSetting]:
        request = metadata_pb2.GetBrokerConfigRequest(client=self._cluster.identity, broker_id=broker_id)
        deadline_s = self._cluster.deadline()
        while True:
            answer = await self._ask(request, deadline_s)
            if answer is not None:
                if (error := error_from_wire(answer.error)) is not None:
                    raise error
                return list(map(_effective_setting, answer.settings))
            if now_s() >= deadline_s:
                raise BrokerNotAvailable(
                    f"broker {broker_id} does not answer within request.timeout.ms={self._timeout_ms}, and it alone "
                    "knows its effective settings: see minilog cluster health"
                )
            await asyncio.sleep(_PAUSE_S)

    async def _ask(
        self, request: metadata_pb2.GetBrokerConfigRequest, deadline_s: float
    ) -> metadata_pb2.GetBrokerConfigResponse | None:
        """The broker's answer, None where it cannot be reached now."""
        answer = await self._cluster.refresh([], deadline_s)
        if not any(broker.broker_id == request.broker_id for broker in (*answer.brokers, *answer.unreachable_brokers)):
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


def parsed_settings(messages: Iterable[admin_pb2.BrokerSetting]) -> list[BrokerSetting]:
    return [
        BrokerSetting(message.broker_id if message.HasField("broker_id") else None, message.name, message.value)
        for message in messages
    ]


def _effective_setting(setting: metadata_pb2.RunningSetting) -> EffectiveSetting:
    """The setting. Raises UnsupportedVersion for a source that only a later version knows."""
    try:
        source = Source(setting.source)
    except ValueError:
        raise UnsupportedVersion(
            f"setting {setting.name} comes from {setting.source!r}, which this version does not know: use the version "
            "of the broker"
        ) from None
    return EffectiveSetting(setting.name, setting.value, Origin(source, setting.where))
