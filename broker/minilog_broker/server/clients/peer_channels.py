"""Channels to other brokers. Where brokers have a listener of their own they are mutual TLS: this broker shows its
certificate, and the one that answers must be the broker that was meant, by the name in its certificate.

The name is `broker-<id>.<cluster>.minilog`, a DNS name among those of its certificate (`minilog cert create broker`):
what gRPC checks in the place of a host. So neither an address that was taken over nor another broker's certificate will
do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import grpc

from minilog.addresses import Address
from minilog.net.payload_stream import OpenedStream, open_stream, opened_within
from minilog.net.runtime import Runtime
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import SharedMemory
from minilog.security.channel_security import ChannelSecurity, PemFiles
from minilog.stream_messages import StreamMethod
from minilog_broker.server.clients.channels import MAX_FRAME_BYTES, PEER_WINDOW_BYTES
from minilog_broker.server.config import BrokerConfig
from minilog_broker.version import CLIENT_VERSION

CONNECT_TIMEOUT_S = 1.0

Peer: TypeAlias = tuple[int, Address]
"""A broker, and where it listens for others."""


def server_name(cluster_name: str, broker_id: int) -> str:
    """What the certificate of a broker has among its DNS names."""
    return f"broker-{broker_id}.{cluster_name}.minilog"


class PeerChannels:
    """Of one broker. Files are read anew for each channel: a certificate that was renewed counts at once."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config = config
        self._shared = SharedMemory()
        self._files = (
            None
            if config.inter_broker_listen is None
            else PemFiles(config.inter_broker_ssl_keystore_location, config.inter_broker_ssl_truststore_location)
        )

    def open(self, broker_id: int, address: Address) -> grpc.aio.Channel:
        """A channel of its own to a broker. Raises InvalidConfig where a file of the certificates is missing."""
        return self._runtime.open_channel(address, self._security(broker_id))

    async def open_stream(
        self, broker_id: int, address: Address, method: StreamMethod, partly: Callable[[], None] = lambda: None
    ) -> OpenedStream:
        """A stream to the broker whose port of calls is `address`. `partly` is called while a long message comes.
        Raises STREAM_ERRORS, TimeoutError among them after CONNECT_TIMEOUT_S."""

        def connection() -> StreamConnection:
            return StreamConnection(
                self._shared, most_frame_bytes=MAX_FRAME_BYTES, window_bytes=PEER_WINDOW_BYTES, partly=partly
            )

        async def connect() -> StreamConnection:
            stream_address = self._config.stream_address(address)
            return await self._runtime.connect(stream_address, connection, self._security(broker_id))

        return await opened_within(open_stream(connect, method, CLIENT_VERSION), CONNECT_TIMEOUT_S)

    def _security(self, broker_id: int) -> ChannelSecurity | None:
        name = server_name(self._config.cluster_name, broker_id)
        return None if self._files is None else ChannelSecurity(self._files, name)
