"""One document by https, on a thread that may wait: bounded in bytes and time, and trusted by its certificate alone.

The fetch follows no redirection, which could lead to any host. It uses no proxy of the environment. Only the lookup of
the host's name has no bound here: the resolver of the machine bounds it.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time

from minilog_broker.security.https_url import HttpsUrl

CONNECT_S = 5.0  # to all addresses of the host together, and TLS
TOTAL_S = 10.0
MAX_DOCUMENT_BYTES = 256 << 10  # the same limit as for a file (security/bearer.py)
_MAX_BYTES = MAX_DOCUMENT_BYTES + (64 << 10)  # with status and headers


class FetchFailed(Exception):
    """There is no document. `str` has the reason, and nothing of the answer but its status."""


class _Incoming(io.RawIOBase):
    """The bytes of a connection until a time (time.monotonic), and at most _MAX_BYTES of them, however slowly they
    come."""

    def __init__(self, connection: ssl.SSLSocket, until_s: float) -> None:
        self._connection = connection
        self._until_s = until_s
        self._left = _MAX_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._connection.settimeout(_left_s(self._until_s))
        if not self._left:
            raise FetchFailed(f"the answer has more than {_MAX_BYTES} bytes")
        count = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count


class _Source:
    """The source of an answer for http.client, in the place of a socket."""

    def __init__(self, incoming: _Incoming) -> None:
        self._incoming = incoming

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._incoming)


def tls_context(truststore: str) -> ssl.SSLContext:
    """A context with TLS 1.2 at least, which checks the host's name.

    `truststore`: a PEM file with the trusted authorities; empty: those of the machine. Raises OSError (ssl.SSLError is
    one) where it cannot be used.
    """
    context = ssl.create_default_context(cafile=truststore or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def fetch(url: HttpsUrl, truststore: str) -> str:
    """The document. Takes at most TOTAL_S, and raises FetchFailed."""
    until_s = time.monotonic() + TOTAL_S
    try:
        context = tls_context(truststore)
    except OSError as error:
        raise FetchFailed(f"the authorities cannot be read: {_words(error)}") from None
    try:
        with _connected(url) as plain, context.wrap_socket(plain, server_hostname=url.host) as connection:
            connection.settimeout(_left_s(until_s))
            connection.sendall(_request(url))
            return _document(connection, until_s)
    except TimeoutError:
        raise FetchFailed(f"the host sent no whole answer in {TOTAL_S:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise FetchFailed(f"the certificate is not trusted: {error.verify_message}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(f"the host sent no whole answer: {_words(error)}") from None


def _words(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__


def _connected(url: HttpsUrl) -> socket.socket:
    """A connection to the first address that answers. Its time-out is the rest of CONNECT_S, for TLS."""
    until_s = time.monotonic() + CONNECT_S
    failure: OSError = OSError("the host has no address")
    for family, kind, protocol, _name, address in socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left_s(until_s))
            connection.connect(address)
            connection.settimeout(_left_s(until_s))
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _request(url: HttpsUrl) -> bytes:
    lines = (
        f"GET {url.target} HTTP/1.1",
        f"Host: {url.authority}",
        "Accept: application/jwk-set+json, application/json",
        "Accept-Encoding: identity",
        "User-Agent: minilog",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _document(connection: ssl.SSLSocket, until_s: float) -> str:
    source = _Source(_Incoming(connection, until_s))
    answer = http.client.HTTPResponse(source, method="GET")  # type: ignore[arg-type]  # makefile is all it asks for
    answer.begin()
    if answer.status != http.client.OK:
        raise FetchFailed(f"the answer has status {answer.status}, and not 200. The broker follows no redirection")
    content = answer.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise FetchFailed(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")
    if answer.length:
        raise FetchFailed("the host sent no whole answer: the connection ended before it")
    return content.decode("utf-8")
