"""A cluster with everything on, as `minilog up --secure` has it: TLS, users, rules, a listener of brokers' own."""

from __future__ import annotations

import contextlib
import pathlib
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from minilog import Admin
from minilog_broker.server.clients.peer_channels import server_name
from minilog_tools.local_security import CLUSTER_NAME, LocalSecurity, open_security
from tests.cluster import HOST, STREAM_PORT_OFFSET, Cluster, broker_name, free_ports, pairs_of
from tests.proxy import CUT, Proxy
from tests.streams_by_hand import Place


class SecuredCluster(Cluster):
    """`client` is its first user. Where it is `proxied`, links among brokers can be spoiled, those to clients not."""

    def __init__(
        self,
        directory: pathlib.Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        proxied: bool = False,
    ) -> None:
        super().__init__(directory, brokers, settings)
        self.peer_ports = dict(zip(self.ports, free_ports(brokers), strict=True))
        listen_ports = self.peer_ports
        if proxied:
            listen_ports = dict(zip(self.ports, free_ports(brokers), strict=True))
            self.proxy = Proxy(
                {broker_name(each): pairs_of(self.peer_ports[each], listen_ports[each]) for each in self.ports}
            )
        self.security: LocalSecurity = open_security(directory, list(self.ports), self.bootstrap_servers)
        for broker_id, port in listen_ports.items():
            said = self.security.settings(broker_id, f"{HOST}:{port}")
            said["inter.broker.advertised.address"] = f"{HOST}:{self.peer_ports[broker_id]}"
            self.arguments[broker_id] = [word for name, value in said.items() for word in ("--set", f"{name}={value}")]

    def cut_off(self, broker_id: int) -> None:
        """No other broker hears it, nor it any, until the proxy heals; clients hear all."""
        assert self.proxy is not None
        for other in set(self.ports) - {broker_id}:
            self.proxy.set_rule_both_ways(broker_name(broker_id), broker_name(other), CUT)

    @property
    def client(self) -> dict[str, Any]:
        return {**self.security.client_settings(), "bootstrap.servers": self.bootstrap_servers}

    @property
    def voter_list(self) -> str:
        return ",".join(f"{each}@{HOST}:{self.peer_ports[each]}" for each in self.voters)

    @property
    def folder(self) -> pathlib.Path:
        """Keys and certificates."""
        return self.directory / "security"

    def states(self) -> dict[int, str]:
        with Admin({**self.client, "request.timeout.ms": 2000}) as admin:
            return {broker.id: broker.state for broker in admin.describe_cluster().brokers}

    def client_channel(self, broker_id: int = 1) -> grpc.Channel:
        """TLS to the clients' listener, and nobody who is known."""
        roots = (self.folder / "clients.pem").read_bytes()
        return grpc.secure_channel(f"{HOST}:{self.ports[broker_id]}", grpc.ssl_channel_credentials(roots))

    def client_place(self, broker_id: int = 1) -> Place:
        """The same listener's port of streams."""
        context = ssl.create_default_context(cafile=str(self.folder / "clients.pem"))
        return Place(self.ports[broker_id] + STREAM_PORT_OFFSET, context)

    def peer_channel(self, broker_id: int, keystore: bytes | None) -> grpc.Channel:
        """To the brokers' listener of a broker, with this key and certificate."""
        roots = (self.folder / "brokers.pem").read_bytes()
        shown = () if keystore is None else (keystore, keystore)
        credentials = grpc.ssl_channel_credentials(roots, *shown)
        name = ("grpc.ssl_target_name_override", server_name(CLUSTER_NAME, broker_id))
        return grpc.secure_channel(f"{HOST}:{self.peer_ports[broker_id]}", credentials, options=[name])

    def peer_place(self, broker_id: int, keystore: pathlib.Path | None) -> Place:
        """The port of streams beside it, with the key and certificate in this file."""
        context = ssl.create_default_context(cafile=str(self.folder / "brokers.pem"))
        if keystore is not None:
            context.load_cert_chain(keystore)
        port = self.peer_ports[broker_id] + STREAM_PORT_OFFSET
        return Place(port, context, server_name(CLUSTER_NAME, broker_id))

    def keystore_file_of(self, broker_id: int) -> pathlib.Path:
        """See `keystore_of`."""
        return self.folder / f"broker-{broker_id}.pem"

    def keystore_of(self, broker_id: int) -> bytes:
        """Its key and certificate for the other brokers."""
        return self.keystore_file_of(broker_id).read_bytes()


@contextlib.contextmanager
def running_secured_cluster(
    directory: pathlib.Path, brokers: int = 3, settings: Mapping[str, str] | None = None, *, proxied: bool = False
) -> Iterator[SecuredCluster]:
    """One that runs, and whose processes are gone afterwards."""
    cluster = SecuredCluster(directory, brokers, settings, proxied=proxied)
    try:
        cluster.start()
        cluster.wait_running()
        yield cluster
    finally:
        cluster.end()
