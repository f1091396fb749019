"""Channels to other brokers. Where brokers have a listener of their own, the channels are mutual TLS. This broker shows
its certificate, and the name in the other certificate must be that of the broker that this one calls.

The name is `broker-<id>.<cluster>.minilog`, one of the DNS names of the certificate (`minilog cert create broker`).
gRPC checks it in the place of a host. So neither a stolen address nor another broker's certificate is enough.
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
"""A broker's id, and its address for other brokers."""


def server_name(cluster_name: str, broker_id: int) -> str:
    """The name of a broker among the DNS names of its certificate."""
    return f"broker-{broker_id}.{cluster_name}.minilog"


class PeerChannels:
    """The channels of one broker. It reads the files for each channel, so that a renewed certificate counts at once."""

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
        """A new channel to a broker. Raises InvalidConfig where a file of the certificates is missing."""
        return self._runtime.open_channel(address, self._security(broker_id))

    async def open_stream(
        self, broker_id: int, address: Address, method: StreamMethod, partly: Callable[[], None] = lambda: None
    ) -> OpenedStream:
        """A stream to the broker whose port of calls is `address`. `partly` is called while a long message comes.
        Raises STREAM_ERRORS, such as TimeoutError after CONNECT_TIMEOUT_S."""

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
