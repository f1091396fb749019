"""A client's side of security: the security of its channels, and the meaning of a broker's refusal."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import grpc

from minilog.addresses import Address, address_text
from minilog.client_config import ClientConfig
from minilog.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerNotAvailable,
    InvalidConfig,
    MinilogError,
    error_from_wire,
)
from minilog.net.running_time import running_within
from minilog.net.runtime import Runtime
from minilog.net.session_channel import SessionChannel
from minilog.net.sessions import ClientSessions
from minilog.security.certificate_end import certificate_end
from minilog.security.channel_security import ChannelSecurity, PemFiles
from minilog.security.mechanisms import Mechanism, OAuthBearer, Scram
from minilog.security.protocols import OAUTHBEARER, SecurityProtocol
from minilog.security.scram import LoginKind, salted_password
from minilog.security.secret import Secret
from minilog.v1 import authentication_pb2, authentication_pb2_grpc

if TYPE_CHECKING:  # it loads Arrow
    from minilog.net.stream_connection import StreamConnection

_EXCHANGE_S = 5.0
_CERTIFICATE_WORDS = ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed", "Hostname Verification Check failed")


class ClientSecurity:
    """The security of one client, on one event loop. With security.protocol=PLAINTEXT it does nothing."""

    def __init__(self, config: ClientConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._files = PemFiles(config.ssl_keystore_location, config.ssl_truststore_location)
        self._protocol = SecurityProtocol(config.security_protocol)
        is_sasl = self._protocol is SecurityProtocol.SASL_SSL
        self._sessions = ClientSessions(self._exchange) if is_sasl else None
        self._salted = functools.lru_cache(maxsize=8)(salted_password)  # brokers of one cluster have the same salt

    def open_channel(self, address: Address) -> grpc.aio.Channel:
        """A new channel to a broker. Raises InvalidConfig if a file is missing."""
        if self._protocol is SecurityProtocol.PLAINTEXT:
            return self._runtime.open_channel(address)
        channel = self._runtime.open_channel(address, ChannelSecurity(self._files))
        if self._sessions is None:
            return channel
        return cast("grpc.aio.Channel", SessionChannel(channel, address, self._sessions))

    async def session(self, address: Address) -> bytes:
        """A session with the broker whose port of calls is `address`. Empty if the settings need no session. Raises
        MinilogError."""
        return b"" if self._sessions is None else await self._sessions.session(address)

    async def connect(self, address: Address, protocol: Callable[[], StreamConnection]) -> StreamConnection:
        """A connection to a port of streams. Raises OSError, and InvalidConfig if a file is missing."""
        is_plain = self._protocol is SecurityProtocol.PLAINTEXT
        return await self._runtime.connect(address, protocol, None if is_plain else ChannelSecurity(self._files))

    def forget_session(self, address: Address) -> None:
        """Note that the broker refuses the session. The client will get a new one."""
        if self._sessions is not None:
            self._sessions.forget(address)

    def refusal(self, address: Address, error: grpc.aio.AioRpcError) -> MinilogError | None:
        """The error of a failed call if the cause is the client's identity, or the broker's certificate. Else None."""
        details = str(error.details())
        if self._sessions is not None and (failure := self._sessions.failures.get(address)) is not None:
            return failure
        match error.code():
            case grpc.StatusCode.PERMISSION_DENIED:
                return AuthorizationFailed(details)
            case grpc.StatusCode.UNAUTHENTICATED if self._sessions is None:
                return AuthenticationFailed(details)
            case grpc.StatusCode.UNAUTHENTICATED if self._sessions is not None:
                self._sessions.forget(address)
                return BrokerNotAvailable(details)
        if any(words in details for words in _CERTIFICATE_WORDS):
            return self.not_believed(address, details)
        return None

    @staticmethod
    def not_believed(address: Address, reason: str) -> AuthenticationFailed:
        """The error for a broker whose certificate is not believed."""
        return AuthenticationFailed(
            f"the certificate of the broker at {address_text(address)} is not believed: see "
            f"ssl.truststore.location, and the names in the certificate ({reason})"
        )

    def ended_certificate(self) -> AuthenticationFailed | None:
        """The error for this client's own certificate if it has ended. Brokers close such connections, and TLS does not
        tell the reason each time."""
        file = self._config.ssl_keystore_location
        if self._protocol is not SecurityProtocol.SSL or not file:
            return None
        try:
            end = certificate_end(pathlib.Path(file).read_bytes())
        except OSError:
            return None  # the next connection meets the same, and says so
        if end is None or end.timestamp() * 1e6 > self._runtime.wall_us():
            return None
        return AuthenticationFailed(
            f"this client's certificate in ssl.keystore.location={file} ended at {end:%Y-%m-%d %H:%M:%S} UTC: put a "
            "new one there. The next attempt reads the file again"
        )

    def certificate_version(self) -> int:
        """Another number after the file of this client's certificate has changed."""
        file = self._config.ssl_keystore_location
        if self._protocol is SecurityProtocol.SSL and file:
            with contextlib.suppress(OSError):
                return pathlib.Path(file).stat().st_mtime_ns
        return 0

    @staticmethod
    def own_certificate_refused(address: Address, error: OSError) -> AuthenticationFailed:
        """The error of a broker that does not accept this client's certificate."""
        return AuthenticationFailed(
            f"the broker at {address_text(address)} does not accept this client's certificate: see "
            f"ssl.keystore.location, and whether the certificate has ended ({error})"
        )

    async def close(self) -> None:
        if self._sessions is not None:
            await self._sessions.close()

    def _mechanism(self) -> Mechanism:
        config = self._config
        if config.sasl_mechanism != OAUTHBEARER:
            nonce = self._runtime.unique_bytes(24).hex()
            kind = LoginKind.DELEGATION_TOKEN if config.sasl_tokenauth else LoginKind.PASSWORD
            name, password = config.sasl_username, config.sasl_password
            return Scram(config.sasl_mechanism, name, password, nonce, self._salted, kind)
        file = config.sasl_oauthbearer_token_file
        try:
            return OAuthBearer(Secret(pathlib.Path(file).read_text().strip()))
        except OSError as error:
            raise InvalidConfig(f"sasl.oauthbearer.token.file={file} cannot be read: {error.strerror}") from None

    async def _exchange(self, address: Address) -> tuple[bytes, float]:
        """Do one exchange with a broker. Returns the session, and for how many seconds the broker accepts it.

        Raises MinilogError."""
        channel = self._runtime.open_channel(address, ChannelSecurity(self._files))
        try:
            async with running_within(_EXCHANGE_S):
                return await self._converse(channel)
        except TimeoutError:
            raise BrokerNotAvailable(f"the broker at {address[0]}:{address[1]} did not answer in time") from None
        except grpc.aio.AioRpcError as error:
            sentence = f"the broker at {address[0]}:{address[1]} does not authenticate: {error.details()}"
            if any(words in str(error.details()) for words in _CERTIFICATE_WORDS):
                raise AuthenticationFailed(f"{sentence}; see ssl.truststore.location") from error
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise AuthenticationFailed(f"{sentence}: is its security.protocol SASL_SSL?") from error
            raise BrokerNotAvailable(sentence) from error
        finally:
            await channel.close(None)

    async def _converse(self, channel: grpc.aio.Channel) -> tuple[bytes, float]:
        mechanism = self._mechanism()
        call: Any = authentication_pb2_grpc.AuthenticationServiceStub(channel).Authenticate()
        content: bytes | None = mechanism.first()
        name = self._config.sasl_mechanism
        while content is not None:
            await call.write(authentication_pb2.AuthenticateRequest(mechanism=name, content=content))
            answer = await call.read()
            if not isinstance(answer, authentication_pb2.AuthenticateResponse):
                raise AuthenticationFailed("the broker has ended the exchange")
            if (error := error_from_wire(answer.error)) is not None:
                raise error
            content = await mechanism.respond(answer.content)
            name = ""
            if answer.session:
                return answer.session, answer.lifetime_ms / 1000.0
        raise AuthenticationFailed("the broker has given no session")
