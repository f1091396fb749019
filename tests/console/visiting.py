"""A console as users start it, and a visitor that has cookies and sends forms, without a browser."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from tests import programs
from tests.cluster import HOST, free_ports
from tests.programs import Process

_START_S = 20.0


@dataclass(frozen=True)
class Page:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Visitor:
    """A visitor that follows no redirect by itself."""

    port: int
    tls: ssl.SSLContext | None = None
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, target: str, headers: Mapping[str, str] | None = None) -> Page:
        return self._ask("GET", target, None, headers or {})

    def send(
        self,
        target: str,
        form: Mapping[str, str],
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Send a form, with the token of this visitor's pages where none is given."""
        form_token = self.form_token("/login", f"{target}?{urlencode(form)}", "/") if token is None else token
        return self._ask("POST", target, urlencode({**form, "form_token": form_token}), headers or {})

    def form_token(self, *targets: str) -> str:
        """The form token of the first of these pages that has one."""
        for target in targets:
            if match := re.search(r'name="form_token" value="([0-9a-f]+)"', self.get(target).text):
                return match[1]
        return ""

    def log_in(self, user: str, password: str, kind: str = "user", to: str = "/") -> Page:
        return self.send("/login", {"user": user, "password": password, "kind": kind, "next": to})

    def _ask(self, method: str, target: str, body: str | None, headers: Mapping[str, str]) -> Page:
        kind = http.client.HTTPConnection(HOST, self.port, timeout=40)
        if self.tls is not None:
            kind = http.client.HTTPSConnection(HOST, self.port, timeout=40, context=self.tls)
        with contextlib.closing(kind) as connection:
            given = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), **headers}
            if body is not None:
                given["content-type"] = "application/x-www-form-urlencoded"
            connection.request(method, target, body, given)
            answer = connection.getresponse()
            for cookie in answer.headers.get_all("set-cookie", []):
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value.strip('"')
            return Page(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())


@dataclass
class RunningConsole:
    """A console's process, its port and its log."""

    process: Process
    port: int
    log: pathlib.Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@contextlib.contextmanager
def running_console(directory: pathlib.Path, *arguments: str) -> Iterator[RunningConsole]:
    """A console that listens, for the length of the block."""
    [port] = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"console-{port}.log"
    command: Sequence[str] = ["console", "--listen", f"{HOST}:{port}", *arguments]
    with log.open("wb") as out, pathlib.Path("/dev/null").open("rb") as nothing:
        process = programs.start(list(command), [nothing.fileno(), out.fileno(), out.fileno()])
    try:
        deadline_s = time.monotonic() + _START_S
        while "minilog console:" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        yield RunningConsole(process, port, log)
    finally:
        process.kill()
        process.wait()
