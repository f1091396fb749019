"""The https address of a document, as a setting has it.

Only https counts: an attacker that answers in the clear could choose the keys of tokens. An address with a name and a
password is refused, since settings are shown. So is one with a fragment, which no server sees. The query may be a
secret, and is never shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

EXPECTED: Final = "an https URL without a user or a fragment, such as https://issuer.example/jwks.json"
_TEXT = re.compile(r"[!-~]{1,2048}", re.ASCII)
_HOST = re.compile(r"[a-z0-9._:-]{1,253}", re.ASCII)
_DEFAULT_PORT = 443


@dataclass(frozen=True, slots=True)
class HttpsUrl:
    """`target`: path and query, as in a request. `str` shows no query."""

    host: str
    port: int
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The address of a text. Raises ValueError, which does not show the text."""
        if _TEXT.fullmatch(text) is None or "\\" in text or "#" in text:
            raise ValueError("it is not a URL, or has a fragment")
        parts = urlsplit(text)
        if parts.scheme != "https" or "@" in parts.netloc:
            raise ValueError("it is not https, or has a user")
        host, port = parts.hostname, _DEFAULT_PORT if parts.port is None else parts.port
        if host is None or _HOST.fullmatch(host) is None or port == 0:
            raise ValueError("it has no host")
        return cls(host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header of a request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORT else f"{host}:{self.port}"

    def __str__(self) -> str:
        path, question, _ = self.target.partition("?")
        return f"https://{self.authority}{path}{question and '?***'}"
