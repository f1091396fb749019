"""Users of a secured cluster: their rules, the settings of their clients, and sessions by hand."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc

from minilog import Admin
from minilog.admin.security import UserUpsertion
from minilog.errors import AuthenticationFailed, error_from_wire
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.security.mechanisms import Scram
from minilog.security.scram import salted_password
from minilog.security.secret import Secret
from minilog.v1 import authentication_pb2, authentication_pb2_grpc
from tests.integration.moving import wait_until
from tests.secured import SecuredCluster

PASSWORD = "correct horse battery staple"
OPEN = "open"


def rule(
    name: str,
    operation: Operation,
    topic: str = OPEN,
    *,
    kind: ResourceKind = ResourceKind.TOPIC,
    permission: Permission = Permission.ALLOW,
) -> AccessRule:
    return AccessRule(f"User:{name}", "*", operation, kind, topic, Pattern.LITERAL, permission)


def user(cluster: SecuredCluster, admin: Admin, name: str, *rules: AccessRule) -> dict[str, Any]:
    """A user with these rules; the settings of its clients, once all brokers know of it."""
    admin.alter_users([UserUpsertion(name, PASSWORD)])
    if rules:
        admin.create_access_rules(rules)
    settings = {**cluster.client, "sasl.username": name, "sasl.password": PASSWORD, "request.timeout.ms": 5000}
    for port in cluster.ports.values():
        wait_until(lambda port=port: logs_in({**settings, "bootstrap.servers": f"127.0.0.1:{port}"}))  # type: ignore[misc]
    return settings


def logs_in(settings: dict[str, Any]) -> bool:
    try:
        with Admin(settings) as client:
            client.list_topics()
    except AuthenticationFailed:
        return False
    return True


def session_of(cluster: SecuredCluster, name: str, password: str = PASSWORD, broker_id: int = 1) -> bytes:
    """A session by hand."""

    async def exchange() -> bytes:
        roots = (cluster.folder / "clients.pem").read_bytes()
        address = f"127.0.0.1:{cluster.ports[broker_id]}"
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots)) as channel:
            call: Any = authentication_pb2_grpc.AuthenticationServiceStub(channel).Authenticate()
            client = Scram("SCRAM-SHA-512", name, Secret(password), uuid.uuid4().hex, salted_password)
            content: bytes | None = client.first()
            mechanism = "SCRAM-SHA-512"
            while content is not None:
                await call.write(authentication_pb2.AuthenticateRequest(mechanism=mechanism, content=content))
                answer = await call.read()
                if (error := error_from_wire(answer.error)) is not None:
                    raise error
                content = await client.respond(answer.content)
                if answer.session:
                    return bytes(answer.session)
            raise AssertionError("no session")

    return asyncio.run(exchange())


def said(session: bytes) -> tuple[tuple[str, bytes], ...]:
    return (("minilog-session-bin", session),)
