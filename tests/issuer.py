"""An issuer of tokens for tests: a real https server on a free port, which answers as it is told, and well or badly."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import pathlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog_broker.security.certificates import (
    CURVE,
    Authority,
    Signing,
    authority_certificate,
    certificate_pem,
    issue,
    key_pem,
    server_identity,
)

HOST = "127.0.0.1"
NAME, AUDIENCE = "https://issuer.example", "minilog"
Handler: TypeAlias = http.server.BaseHTTPRequestHandler
Answer: TypeAlias = Callable[[Handler], None]


def jwks(**keys: ec.EllipticCurvePrivateKey) -> str:
    """A JWK set of the public ones, by kid."""
    public = ((kid, jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)) for kid, key in keys.items())
    return json.dumps({"keys": [{**each, "kid": kid, "use": "sig"} for kid, each in public]})


def token(key: ec.EllipticCurvePrivateKey, kid: str, **claims: Any) -> str:
    """One that this issuer could have made, if the key is its own."""
    now = int(time.time())
    told = {"sub": "reader", "iss": NAME, "aud": AUDIENCE, "iat": now, "exp": now + 600, **claims}
    return jwt.encode(told, key, "ES256", headers={"kid": kid})


def document(text: str | bytes, status: int = 200) -> Answer:
    """Answers with it, as a server should."""
    content = text if isinstance(text, bytes) else text.encode()

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def raw(*parts: bytes, pause_s: float = 0.0) -> Answer:
    """Answers with these bytes, as they are, and slowly."""

    def answer(handler: Handler) -> None:
        with contextlib.suppress(OSError):  # who waits for it has gone
            for part in parts:
                handler.wfile.write(part)
                time.sleep(pause_s)

    return answer


class Issuer:
    """`answer` may be another at any time. `asked`: what was asked for, and the headers. Use as a context manager."""

    def __init__(self, folder: pathlib.Path, host: str = HOST, *, signs_itself: bool = False) -> None:
        self.answer: Answer = document(jwks())
        self.asked: list[tuple[str, dict[str, str]]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.truststore = folder / "authority.pem"
        self._keystore = folder / "issuer.pem"
        self._make_certificate(host, signs_itself=signs_itself)
        issuer = self

        class Asked(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append((self.path, dict(self.headers)))
                issuer.answer(self)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Asked)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who asked went away: it is meant
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._keystore)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )  # the thread of each connection shakes hands

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._server.server_address[1]}/jwks"

    def _make_certificate(self, host: str, *, signs_itself: bool) -> None:
        keys = [ec.generate_private_key(CURVE()) for _ in range(2)]
        signing = Signing(x509.random_serial_number(), datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1))
        authority = Authority(authority_certificate(keys[0], signing), keys[0])
        certificate = issue(server_identity([host]), keys[1].public_key(), authority, signing)
        if signs_itself:
            self._keystore.write_bytes(key_pem(keys[0]) + certificate_pem(authority.certificate))
        else:
            self._keystore.write_bytes(key_pem(keys[1]) + certificate_pem(certificate))
        self.truststore.write_bytes(certificate_pem(authority.certificate))

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def running_issuer(folder: pathlib.Path, **options: Any) -> Iterator[Issuer]:
    """One that answers until the end of the block."""
    with Issuer(folder, **options) as issuer:
        yield issuer
