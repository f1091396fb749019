"""Opens the streams of one client to one broker, and reports the result to the client."""

from __future__ import annotations

import ssl

from minilog.addresses import Address
from minilog.client_config import client_version
from minilog.errors import AuthenticationFailed, InvalidConfig, MinilogError
from minilog.net.network_client import NetworkClient
from minilog.net.payload_stream import OpenedStream, open_stream, opened_within
from minilog.net.reachability import reason_of, refuses_certificate
from minilog.net.stream_connection import StreamConnection
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
        self._is_open = False
        self._refusal: MinilogError | None = None  # another attempt meets it again, until somebody changes something

    async def open(self, within_s: float) -> OpenedStream:
        """Open a stream, after a login where the broker wants one. Raises the errors of open_stream and opened_within.

        Raises AuthenticationFailed if the broker refuses the login or the certificate of this client, or if this client
        does not trust the broker's certificate, and InvalidConfig if a file is missing. A broker may refuse a session,
        too: then the next attempt logs in."""
        try:
            session = await self._cluster.session(self._address)
        except (AuthenticationFailed, InvalidConfig) as error:
            self._refusal = error
            raise
        try:
            stream = await opened_within(open_stream(self._connect, self._method, client_version(), session), within_s)
        except ssl.SSLCertVerificationError as error:
            self._refusal = self._cluster.not_believed(self._stream_address, str(error))
            raise self._refusal from error
        except OSError as error:
            self._refusal = self._cluster.ended_certificate()
            if self._refusal is None and refuses_certificate(str(error)):
                self._refusal = self._cluster.own_certificate_refused(self._stream_address, error)
            if self._refusal is not None:
                raise self._refusal from error
            raise
        except (AuthenticationFailed, InvalidConfig) as error:
            self._refusal = None if session and isinstance(error, AuthenticationFailed) else error
            raise
        self._is_open = True
        self._cluster.stream_connected(self._address)
        return stream

    def not_opened(self, error: TimeoutError) -> None:
        self._not_connected(str(error))

    def failed(self, error: MinilogError | OSError) -> MinilogError | None:
        if error is self._refusal:
            return error
        if isinstance(error, AuthenticationFailed):
            self._cluster.session_refused(self._address)
        if not self._is_open:
            self._not_connected(reason_of(error) if isinstance(error, OSError) else f"{error.code}: {error}")
        return None

    def _not_connected(self, reason: str) -> None:
        self._cluster.stream_not_connected(self._address, self._stream_address, reason)

    async def _connect(self) -> StreamConnection:
        return await self._cluster.connect(self._stream_address, self._connection)

    def _connection(self) -> StreamConnection:
        return StreamConnection(self._shared, most_frame_bytes=_MOST_FRAME_BYTES, window_bytes=_WINDOW_BYTES)
