"""The calls of SecurityService: each is asked of the controller until one decides, in parts that a request may have."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from minilog.addresses import Address
from minilog.admin.controller_client import ControllerClient
from minilog.admin.hearing import hearing
from minilog.admin.security import (
    DelegationToken,
    Quota,
    QuotaAlteration,
    TokenInformation,
    UserAlteration,
    UserDeletion,
    UserDescription,
    UserUpsertion,
    checked_period_ms,
    created_token,
    deletion_message,
    described_user,
    quota_message,
    quotas_from_wire,
    token_from_wire,
    upsertion_message,
)
from minilog.errors import InvalidArgument, MinilogError, TimedOut
from minilog.limits import MAX_ACCESS_FILTERS, MAX_SECURITY_CHANGES, parts_of
from minilog.net.metadata_cache import metadata_request
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.security.access_rules import AccessRule, AccessRuleFilter, filter_to_wire, rule_from_wire, rule_to_wire
from minilog.security.scram import SALT_BYTES
from minilog.v1 import metadata_pb2, metadata_pb2_grpc, security_pb2, security_pb2_grpc

_Answer = TypeVar(
    "_Answer",
    security_pb2.AlterUsersResponse,
    security_pb2.DescribeUsersResponse,
    security_pb2.CreateAccessRulesResponse,
    security_pb2.DeleteAccessRulesResponse,
    security_pb2.DescribeAccessRulesResponse,
    security_pb2.AlterQuotasResponse,
    security_pb2.DescribeQuotasResponse,
    security_pb2.CreateDelegationTokenResponse,
    security_pb2.RenewDelegationTokenResponse,
    security_pb2.ExpireDelegationTokenResponse,
    security_pb2.DescribeDelegationTokensResponse,
)


_REPLAYED_WITHIN_S = 1.0
_PAUSE_S = 0.02
_HEARD_PAUSE_S = 0.1  # brokers tell it with their heartbeats


class SecurityAdmin:
    """The methods of Admin: minilog.aio.admin describes them."""

    def __init__(self, cluster: NetworkClient, controller: ControllerClient) -> None:
        self._cluster = cluster
        self._controller = controller
        self._timeout_ms = cluster.config.request_timeout_ms
        self._changed_at = 0  # where the metadata log ended behind the last change that was made here

    async def alter_users(self, alterations: Iterable[UserAlteration]) -> None:
        for part in parts_of([await _user_message(alteration) for alteration in alterations], MAX_SECURITY_CHANGES):
            request = security_pb2.AlterUsersRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, alterations=part
            )
            await self._ask("alter users", security_pb2.AlterUsersResponse, request)

    async def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        wanted = [[]] if names is None else parts_of(sorted(set(names)), MAX_SECURITY_CHANGES)
        users: list[UserDescription] = []
        for part in wanted:
            request = security_pb2.DescribeUsersRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, names=part
            )
            response = await self._ask("describe users", security_pb2.DescribeUsersResponse, request, changes=False)
            users += map(described_user, response.users)
        return users

    async def create_access_rules(self, rules: Iterable[AccessRule]) -> int:
        created = 0
        for part in parts_of([rule_to_wire(rule) for rule in rules], MAX_SECURITY_CHANGES):
            request = security_pb2.CreateAccessRulesRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, rules=part
            )
            response = await self._ask("create access rules", security_pb2.CreateAccessRulesResponse, request)
            created += response.created_count
        return created

    async def delete_access_rules(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        deleted: list[AccessRule] = []
        for part in parts_of([filter_to_wire(rule_filter) for rule_filter in filters], MAX_ACCESS_FILTERS):
            request = security_pb2.DeleteAccessRulesRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, filters=part
            )
            response = await self._ask("delete access rules", security_pb2.DeleteAccessRulesResponse, request)
            deleted += map(rule_from_wire, response.deleted)
        return deleted

    async def describe_access_rules(self, wanted: AccessRuleFilter | None = None) -> list[AccessRule]:
        request = security_pb2.DescribeAccessRulesRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            filter=filter_to_wire(wanted or AccessRuleFilter()),
        )
        kind = security_pb2.DescribeAccessRulesResponse
        response = await self._ask("describe access rules", kind, request, changes=False)
        return [rule_from_wire(rule) for rule in response.rules]

    async def alter_quotas(self, alterations: Iterable[QuotaAlteration]) -> list[Quota]:
        former: list[Quota] = []
        for part in parts_of([quota_message(alteration) for alteration in alterations], MAX_SECURITY_CHANGES):
            request = security_pb2.AlterQuotasRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, alterations=part
            )
            response = await self._ask("alter quotas", security_pb2.AlterQuotasResponse, request)
            former += quotas_from_wire(response.former)
        return former

    async def describe_quotas(self, entity: str | None = None) -> list[Quota]:
        request = security_pb2.DescribeQuotasRequest(
            client=self._cluster.identity, timeout_ms=self._timeout_ms, entity=entity
        )
        response = await self._ask("describe quotas", security_pb2.DescribeQuotasResponse, request, changes=False)
        return quotas_from_wire(response.quotas)

    async def create_delegation_token(
        self, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        request = security_pb2.CreateDelegationTokenRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            renewers=renewers,
            max_lifetime_ms=checked_period_ms(max_lifetime_ms, "max_lifetime_ms"),
        )
        kind = security_pb2.CreateDelegationTokenResponse
        answer = await self._ask("create a delegation token", kind, request)
        await self._known_to_all(answer.metadata_offset)
        return created_token(answer)

    async def _known_to_all(self, metadata_offset: int) -> None:
        """Wait until the brokers that run have replayed so much: who shows a new token would be refused by one that has
        not. One that does not say so within a second is waited for no longer."""
        request = metadata_request(self._cluster.identity, ())
        brokers = [(broker.host, broker.port) for broker in self._cluster.cache.brokers.values()]

        async def ask(address: Address) -> None:
            until_s = now_s() + _REPLAYED_WITHIN_S
            while (left_s := until_s - now_s()) > 0:
                with contextlib.suppress(MinilogError):  # the token is made, whatever is wrong with this broker
                    answer = await self._cluster.call(address, lambda channel: _metadata(channel, request, left_s))
                    if answer is not None and answer.metadata_offset >= metadata_offset:
                        return
                await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*map(ask, brokers))

    async def renew_delegation_token(self, token_id: str, renew_period_ms: int | None = None) -> int:
        request = security_pb2.RenewDelegationTokenRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            token_id=token_id,
            renew_period_ms=checked_period_ms(renew_period_ms, "renew_period_ms"),
        )
        kind = security_pb2.RenewDelegationTokenResponse
        return (await self._ask("renew a delegation token", kind, request)).expiry_timestamp_ms

    async def expire_delegation_token(self, token_id: str, expiry_period_ms: int | None = None) -> int:
        request = security_pb2.ExpireDelegationTokenRequest(
            client=self._cluster.identity,
            timeout_ms=self._timeout_ms,
            token_id=token_id,
            expiry_period_ms=checked_period_ms(expiry_period_ms, "expiry_period_ms"),
        )
        kind = security_pb2.ExpireDelegationTokenResponse
        return (await self._ask("expire a delegation token", kind, request)).expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[TokenInformation]:
        tokens: list[TokenInformation] = []
        for part in [[]] if owners is None else parts_of(sorted(set(owners)), MAX_SECURITY_CHANGES):
            request = security_pb2.DescribeDelegationTokensRequest(
                client=self._cluster.identity, timeout_ms=self._timeout_ms, owners=part
            )
            kind = security_pb2.DescribeDelegationTokensResponse
            response = await self._ask("describe delegation tokens", kind, request, changes=False)
            tokens += map(token_from_wire, response.tokens)
        return tokens

    async def _ask(self, what: str, kind: type[_Answer], request: Any, *, changes: bool = True) -> _Answer:
        method = kind.__name__.removesuffix("Response")

        def make(channel: Any, seconds: float) -> Any:
            return getattr(security_pb2_grpc.SecurityServiceStub(channel), method)(request, timeout=seconds)

        answer = await self._controller.decide(what, make, changes=changes)
        assert isinstance(answer, kind)
        if changes:
            self._changed_at = max(self._changed_at, answer.metadata_offset)
        return answer

    async def not_heard_by(self, within_ms: int) -> list[int]:
        request = metadata_request(self._cluster.identity, ())
        deadline_s = now_s() + within_ms / 1000.0
        while True:
            answer = await self._controller.ask(lambda channel, s: _metadata(channel, request, s), deadline_s)
            if answer is not None and not answer.error.code:
                heard = hearing(answer, self._changed_at)
                if not heard.is_worth_waiting or now_s() >= deadline_s:
                    return heard.missing
            elif now_s() >= deadline_s:
                raise TimedOut(f"no controller answered within {within_ms} ms which brokers know a change: try again")
            await asyncio.sleep(_HEARD_PAUSE_S)


def _metadata(
    channel: Any, request: metadata_pb2.GetMetadataRequest, seconds: float
) -> Awaitable[metadata_pb2.GetMetadataResponse]:
    call: Awaitable[metadata_pb2.GetMetadataResponse] = metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(
        request, timeout=seconds
    )
    return call


async def _user_message(wanted: UserAlteration) -> security_pb2.UserAlteration:
    match wanted:
        case UserUpsertion():  # on a thread: a million iterations take half a second
            return await asyncio.to_thread(upsertion_message, wanted, os.urandom(SALT_BYTES))
        case UserDeletion():
            return deletion_message(wanted)
        case _:
            raise InvalidArgument(f"alter_users was given {wanted!r}: give UserUpsertion or UserDeletion")
