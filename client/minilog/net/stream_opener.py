"""Opens the streams of one client to one broker, and reports the result to the client."""

from __future__ import annotations

import ssl

from minilog.addresses import Address, address_text
from minilog.client_config import client_version
from minilog.errors import MinilogError
from minilog.net.network_client import NetworkClient
from minilog.net.payload_stream import OpenedStream, open_stream
from minilog.net.reachability import reason_of
from minilog.net.stream_connection import ConnectionEnded, StreamConnection
from minilog.net.stream_frames import SharedMemory
from minilog.stream_messages import StreamMethod

_MOST_FRAME_BYTES = (1 << 32) - 1  # the credit of a consumer bounds a frame
_WINDOW_BYTES = 4 << 20  # received bytes that are not taken; a consumer takes all for which it gave credit


class BrokerOpener:
    """Opens streams of one method to one broker (it is a minilog.net.stream.Opener).

    `address` is the address of the broker's port of calls. `shared` is the memory for the small frames of this client.
    """

    def __init__(
        self,
        cluster: NetworkClient,
        address: Address,
        stream_address: Address,
        method: StreamMethod,
        shared: SharedMemory,
    ) -> None:
        self._cluster = cluster
        self._address, self._stream_address = address, stream_address
        self._method = method
        self._shared = shared

    async def open(self) -> OpenedStream:
        """Open a stream. Raises the errors of open_stream. Raises AuthenticationFailed if the broker does not know this
        client, or if this client does not trust the broker's certificate."""
        session = await self._cluster.session(self._address)
        try:
            stream = await open_stream(self._connect, self._method, client_version(), session)
        except ssl.SSLCertVerificationError as error:
            raise self._cluster.not_believed(self._stream_address, str(error)) from error
        self._cluster.connected(self._address)
        return stream

    async def not_opened(self, within_s: float) -> None:
        self._not_connected(f"no connection within {within_s:g} s")

    def failed(self, error: MinilogError | OSError) -> None:
        self._cluster.stream_refused(self._address, error)
        if isinstance(error, OSError) and not isinstance(error, ConnectionEnded):
            self._not_connected(reason_of(error))

    def _not_connected(self, reason: str) -> None:
        port = address_text(self._stream_address).rpartition(":")[2]
        self._cluster.stream_not_connected(self._address, f"port of streams {port}: {reason}")

    async def _connect(self) -> StreamConnection:
        return await self._cluster.connect(self._stream_address, self._connection)

    def _connection(self) -> StreamConnection:
        return StreamConnection(self._shared, most_frame_bytes=_MOST_FRAME_BYTES, window_bytes=_WINDOW_BYTES)
