"""SecurityService: users, access rules, quotas and delegation tokens. The active controller answers after the commit.

This broker draws the secret of a delegation token, where it is the controller. The log gets the secret's verifiers, and
the client gets the secret, once. The four calls for tokens need a session that a password or an issuer's token began. A
client with only a delegation token makes no second one, which would outlive the first (Kafka's rule).
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable
from typing import TypeVar

from minilog.errors import (
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    error_class,
    wire_error,
)
from minilog.security.access_rules import CLUSTER_NAME
from minilog.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism
from minilog.security.secret import Secret
from minilog.v1 import security_pb2, security_pb2_grpc
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.delegation_tokens import NewToken, Requester, no_such_token
from minilog_broker.security import audit
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.server.access.caller import Caller, Proof
from minilog_broker.server.services.calls import decision
from minilog_broker.server.shells.controller_shell import ControllerShell

SECRET_BYTES = 32
TOKEN_ID_BYTES = 16
_Decided = TypeVar(
    "_Decided",
    security_pb2.CreateDelegationTokenResponse,
    security_pb2.RenewDelegationTokenResponse,
    security_pb2.ExpireDelegationTokenResponse,
    security_pb2.DescribeDelegationTokensResponse,
)
_NOT_ALLOWED = {
    Proof.NONE: "a listener in the clear has no logins: delegation tokens need security.protocol=SASL_SSL",
    Proof.CERTIFICATE: "this listener takes certificates and no tokens: tokens need security.protocol=SASL_SSL",
    Proof.DELEGATION_TOKEN: "a client that logged in with a delegation token cannot manage tokens: log in by password",
}


class SecurityService(security_pb2_grpc.SecurityServiceServicer):
    """The gRPC service for security. Each call waits for the controller's answer, or for its error."""

    def __init__(self, controller: ControllerShell) -> None:
        self.controller = controller

    AlterUsers = decision(security_pb2.AlterUsersResponse, Controller.alter_users)
    DescribeUsers = decision(security_pb2.DescribeUsersResponse, Controller.describe_users)
    CreateAccessRules = decision(security_pb2.CreateAccessRulesResponse, Controller.create_access_rules)
    DeleteAccessRules = decision(security_pb2.DeleteAccessRulesResponse, Controller.delete_access_rules)
    DescribeAccessRules = decision(security_pb2.DescribeAccessRulesResponse, Controller.describe_access_rules)
    AlterQuotas = decision(security_pb2.AlterQuotasResponse, Controller.alter_quotas)
    DescribeQuotas = decision(security_pb2.DescribeQuotasResponse, Controller.describe_quotas)

    # The caller is in the place of gRPC's context (server/access/caller.py).

    async def CreateDelegationToken(  # type: ignore[override]  # noqa: N802
        self, request: security_pb2.CreateDelegationTokenRequest, caller: Caller
    ) -> security_pb2.CreateDelegationTokenResponse:
        kind = security_pb2.CreateDelegationTokenResponse
        if (refused := _refusal(kind, caller, Operation.CREATE)) is not None:
            return refused
        secret = secrets.token_bytes(SECRET_BYTES)
        credentials: tuple[ScramCredential, ...] = ()
        if self.controller.is_active:  # another broker refuses the call, and need not compute
            credentials = await asyncio.to_thread(_credentials, secret)
        wanted = NewToken(
            token_id=secrets.token_hex(TOKEN_ID_BYTES),
            owner=str(caller.principal),
            credentials=credentials,
            renewers=tuple(request.renewers),
            max_lifetime_ms=request.max_lifetime_ms if request.HasField("max_lifetime_ms") else None,
        )
        answer = await self._decided(kind, lambda core, ticket, now: core.create_token(ticket, wanted, now))
        if not answer.error.code:
            answer.hmac = secret
        return answer_told(caller, Operation.CREATE, wanted.token_id, answer)

    async def RenewDelegationToken(  # type: ignore[override]  # noqa: N802
        self, request: security_pb2.RenewDelegationTokenRequest, caller: Caller
    ) -> security_pb2.RenewDelegationTokenResponse:
        kind = security_pb2.RenewDelegationTokenResponse
        if (refused := _refusal(kind, caller, Operation.ALTER)) is not None:
            return refused
        requester = Requester(str(caller.principal))
        answer = await self._decided(kind, lambda core, ticket, now: core.renew_token(ticket, request, requester, now))
        return answer_told(caller, Operation.ALTER, request.token_id, answer)

    async def ExpireDelegationToken(  # type: ignore[override]  # noqa: N802
        self, request: security_pb2.ExpireDelegationTokenRequest, caller: Caller
    ) -> security_pb2.ExpireDelegationTokenResponse:
        kind = security_pb2.ExpireDelegationTokenResponse
        if (refused := _refusal(kind, caller, Operation.DELETE)) is not None:
            return refused
        requester = Requester(str(caller.principal), caller.may(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME))
        answer = await self._decided(kind, lambda core, ticket, now: core.expire_token(ticket, request, requester, now))
        return answer_told(caller, Operation.DELETE, request.token_id, answer)

    async def DescribeDelegationTokens(  # type: ignore[override]  # noqa: N802
        self, request: security_pb2.DescribeDelegationTokensRequest, caller: Caller
    ) -> security_pb2.DescribeDelegationTokensResponse:
        kind = security_pb2.DescribeDelegationTokensResponse
        if (refused := _refusal(kind, caller, Operation.DESCRIBE)) is not None:
            return refused
        requester = Requester(str(caller.principal), caller.may(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME))
        return await self._decided(
            kind, lambda core, ticket, now: core.describe_tokens(ticket, request, requester, now)
        )

    async def _decided(self, kind: type[_Decided], ask: Callable[[Controller, object, int], None]) -> _Decided:
        now_ms = self.controller.wall_ms()
        return await self.controller.decide(kind, lambda core, ticket: ask(core, ticket, now_ms))


def _credentials(secret: bytes) -> tuple[ScramCredential, ...]:
    """The credentials of the password, which is the secret in base64. They have as many iterations as any user has, so
    that an exchange does not show whether a token exists. Some 20 ms."""
    password = Secret(base64.b64encode(secret).decode("ascii"))
    return tuple(
        ScramCredential.derive(mechanism, password, salt=secrets.token_bytes(SALT_BYTES), iterations=DEFAULT_ITERATIONS)
        for mechanism in ScramMechanism
    )


def _refusal(kind: type[_Decided], caller: Caller, operation: Operation) -> _Decided | None:
    """The refusal of a call for tokens, None where the caller may have tokens."""
    if caller.proof is Proof.SESSION:
        return None
    error = DelegationTokenRequestNotAllowed(_NOT_ALLOWED[caller.proof])
    caller.tell(operation, "delegation-token:", audit.Decision.DENIED, str(error))
    return kind(error=wire_error(error))


def answer_told(caller: Caller, operation: Operation, token_id: str, answer: _Decided) -> _Decided:
    """The answer for the client, after an event of the audit log with the true answer. The client gets the same answer
    for a token of another owner as for a missing token. A broker that does not decide has no event."""
    if answer.error.code and error_class(answer.error.code).retriable:
        return answer
    made = audit.Decision.DENIED if answer.error.code else audit.Decision.ALLOWED
    reason = answer.error.message or "the caller owns the token, may renew it, or may alter the cluster"
    caller.tell(operation, f"delegation-token:{token_id}", made, reason)
    if error_class(answer.error.code) is DelegationTokenOwnerMismatch:
        answer.error.CopyFrom(wire_error(no_such_token(token_id)))
    return answer
