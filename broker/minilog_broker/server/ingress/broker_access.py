"""Security of one broker: its listeners with their gates, its sessions, and the current rules of the metadata.

    PLAINTEXT        a listener of clients in the clear: every client may do everything
    SSL, SASL_SSL    a listener with rules: operations that no rule allows are refused; brokers have another listener
                     then, with mutual TLS

There may be several listeners of clients (client_listeners.py). Each has a gate of its own, and all have the same
users, rules, sessions and quotas. Brokers may have a listener of their own also where all of clients are in the clear.
A listener with rules lets no client in before a controller was heard, or after none was heard for too long
(access/rules_age.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.addresses import parse_address
from minilog.security.channel_security import read_pem
from minilog.security.protocols import OAUTHBEARER, SecurityProtocol
from minilog.v1 import authentication_pb2_grpc
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.audit import WINDOW_MS, Audit, AuditEvent, AuditLog, to_structlog
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import USER
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.scram_exchange import ScramUsers
from minilog_broker.server.access.server_mechanism import ServerMechanism
from minilog_broker.server.access.sessions import LoginSessions
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.client_listeners import ClientListener, file_settings
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.ingress.rules.client_gate import ClientGate
from minilog_broker.server.ingress.rules.gate import OpenGate, PeerGate
from minilog_broker.server.ingress.transport.port import Listener, Service
from minilog_broker.server.ingress.transport.server_credentials import ServerFiles
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.services.authentication_service import AuthenticationService

if TYPE_CHECKING:
    from minilog_broker.server.access.bearer_exchange import Keys
    from minilog_broker.server.access.jwks_endpoint import JwksEndpoint, KeysLook

_LOOK_S = 1.0
_LOOKS_A_FLUSH = WINDOW_MS // 1000


@dataclass(frozen=True, slots=True)
class ClientEntrance:
    """A listener of clients by its name, which is empty for that of `--listen`, and the services of this listener
    alone."""

    name: str
    listener: Listener
    services: tuple[Service, ...]


class BrokerAccess:
    """The listeners of one broker, with the parts that decide on their callers.

    Raises InvalidConfig where a file is missing.
    """

    def __init__(self, options: BrokerOptions, image: MetadataImage, wall_us: Callable[[], int]) -> None:
        config = options.config
        most_ms = math.inf if config.stale_access_rules_enable else config.broker_session_timeout_ms
        self._age = RulesAge(options.broker_id, most_ms)
        self._wall_us = wall_us
        self._audit_log = AuditLog(to_structlog())
        self._changed = asyncio.Event()
        self._options = options
        self._image = image
        self._super_users = frozenset(config.super_users)
        self._listeners = options.client_listeners()
        self._users = ScramUsers(image, config.sasl_scram_users_file, wall_us, _common_secret(config))
        self._key_endpoint = _key_endpoint(config, self._audit)
        self._keys = self._key_endpoint or _key_file(config)
        is_sasl = any(listener.protocol is SecurityProtocol.SASL_SSL for listener in self._listeners)
        self._sessions = LoginSessions(secrets.token_bytes) if is_sasl else None
        self._rules = Authorizer(image.access_rules, self._super_users)
        self._policy = Policy(image, lambda: self._rules, self._audit, Quotas(), config.num_partitions)
        self._authenticating: AuthenticationService | None = None
        self._reauth_ms = float(config.connections_max_reauth_ms)
        self._gates = {listener.name: self._gate(listener) for listener in self._listeners if not listener.is_open}

    def _gate(self, listener: ClientListener) -> ClientGate:
        sessions = self._sessions if listener.protocol is SecurityProtocol.SASL_SSL else None
        return ClientGate(self._policy, sessions, self._age, listener.name)

    def client_listeners(self) -> tuple[ClientEntrance, ...]:
        """The listeners of clients. Brokers use the one without a name, too, where they have none of their own. Raises
        InvalidConfig where a file cannot be read."""
        authentication = self._authentication()
        entrances = []
        for client in self._listeners:
            if client.is_open:
                listener = Listener(client.address, OpenGate(client.name))
            else:
                files = ServerFiles(client.keystore, client.truststore, file_settings(client, self._options.config))
                listener = Listener(client.address, self._gates[client.name], files)
            is_sasl = client.protocol is SecurityProtocol.SASL_SSL
            entrances.append(ClientEntrance(client.name, listener, authentication if is_sasl else ()))
        return tuple(entrances)

    def peer_listener(self) -> Listener | None:
        """The listener for brokers alone, if there is one."""
        config = self._options.config
        if config.inter_broker_listen is None:
            return None
        files = ServerFiles(
            config.inter_broker_ssl_keystore_location,
            config.inter_broker_ssl_truststore_location,
            ("inter.broker.ssl.keystore.location", "inter.broker.ssl.truststore.location"),
        )
        gate = PeerGate(config.cluster_name, self._image, self._audit)
        return Listener(parse_address(config.inter_broker_listen), gate, files)

    def _authentication(self) -> tuple[Service, ...]:
        """The service for logins. All listeners have the same one, so that a client that guesses waits on all of
        them."""
        if self._sessions is None:
            return ()
        lifetime_ms = self._reauth_ms
        service = AuthenticationService(self._begin, self._sessions, lifetime_ms, self._audit, self._age)
        self._authenticating = service
        return ((authentication_pb2_grpc.add_AuthenticationServiceServicer_to_server, service),)

    def _begin(self, mechanism: str) -> ServerMechanism:
        if mechanism == OAUTHBEARER and self._keys is not None:
            from minilog_broker.server.access.bearer_exchange import BearerExchange

            return BearerExchange(self._keys, self._wall_us)
        return self._users.begin(mechanism)

    def reconfigured(self, config: BrokerConfig) -> None:
        """Take a new configuration of the running broker: the lifetime of new sessions, and the number of partitions
        that a new topic without one counts for in quotas."""
        self._policy.default_partitions = config.num_partitions
        self._reauth_ms = float(config.connections_max_reauth_ms)
        if self._authenticating is not None:
            self._authenticating.lifetime_ms = self._reauth_ms

    def changed(self) -> None:
        """Take new users, rules or delegation tokens of the image."""
        if not self._gates:
            return
        self._rules = Authorizer(self._image.access_rules, self._super_users)
        self._changed.set()
        if gone := self._users.take_changed():
            for gate in self._gates.values():
                gate.users_changed(lambda principal: principal.kind == USER and principal.name in gone)
        if ended := self._users.take_changed_tokens():
            for gate in self._gates.values():
                gate.tokens_changed(ended)

    def confirmed(self, as_of_ms: float) -> None:
        """Note that a controller was heard (RulesAge)."""
        self._age.confirmed(as_of_ms)

    def rules_age_s(self) -> float | None:
        """The age of the users and rules; None where all listeners are in the clear."""
        return self._age.age_s(now_ms()) if self._gates else None

    def look_at_keys(self) -> KeysLook | None:
        """The state of the fetched keys of tokens, None without an endpoint."""
        return None if self._key_endpoint is None else self._key_endpoint.look()

    async def watch(self) -> None:
        """End streams with their sessions, fetch keys of tokens, and flush the audit log, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._key_endpoint is not None:
                tasks.create_task(self._key_endpoint.run())
            await self._watch()

    async def _watch(self) -> None:
        looks = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_S, self._age.left_s(now_ms()))):
                    await self._changed.wait()
            looks += 1
            have_changed = self._changed.is_set()
            self._changed.clear()
            for gate in self._gates.values():
                if have_changed:
                    await gate.rules_changed()
                gate.end_streams_of_ended_sessions()
                gate.end_streams_of_old_rules()
            if looks % _LOOKS_A_FLUSH == 0:
                self._audit_log.flush(self._wall_us() // 1000)

    def audit(self, event: AuditEvent) -> None:
        """Write an event to the audit log."""
        self._audit(event)

    def close(self) -> None:
        """Write the numbers of events that the audit log left out."""
        self._audit_log.close(self._wall_us() // 1000)

    def _audit(self, event: AuditEvent) -> None:
        self._audit_log.record(event, self._wall_us() // 1000)


def _common_secret(config: BrokerConfig) -> bytes:
    """A secret that all brokers of a cluster have, and no client: the authority of the brokers' own certificates."""
    file = config.inter_broker_ssl_truststore_location
    return config.cluster_name.encode() + (read_pem(file, "inter.broker.ssl.truststore.location") if file else b"")


def _key_file(config: BrokerConfig) -> Keys | None:
    if not config.sasl_oauthbearer_jwks_file:
        return None
    # The import loads cryptography, so it is here, for brokers that need it.
    from minilog_broker.server.access.bearer_exchange import KeyFile, bearer_settings

    return KeyFile(config.sasl_oauthbearer_jwks_file, bearer_settings(config))


def _key_endpoint(config: BrokerConfig, audit: Audit) -> JwksEndpoint | None:
    if not config.sasl_oauthbearer_jwks_endpoint_url:
        return None
    from minilog_broker.server.access.bearer_exchange import bearer_settings
    from minilog_broker.server.access.jwks_endpoint import JwksEndpoint

    return JwksEndpoint(config, bearer_settings(config), audit)
