"""The principal of a call, written as Kafka writes it.

User:alice             a user that has proven its name
User:ANONYMOUS         a client that has not logged in
Broker:<cluster>:<id>  a broker of a cluster, by its certificate
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from minilog.errors import InvalidPrincipal

USER, BROKER = "User", "Broker"
EVERYBODY = "*"  # in the place of a user's name, in rules
MAX_NAME_CHARACTERS = 255
_KINDS = (USER, BROKER)
_BROKER_NAME = re.compile(r"broker:([a-z0-9-]{1,63}):([0-9]{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Principal:
    """`str` is what `parse` reads."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The principal of a text. Raises InvalidPrincipal where the text is not KIND:NAME with a valid kind."""
        kind, colon, name = text.partition(":")
        if not colon or kind not in _KINDS:
            raise InvalidPrincipal(
                f"{text[:MAX_NAME_CHARACTERS]!r} is not a principal: write User:NAME, such as User:alice"
            )
        check_name(name, f"principal {text[:MAX_NAME_CHARACTERS]!r}")
        return cls(kind, name)

    @classmethod
    def of_broker_name(cls, name: str) -> Principal | None:
        """The principal of the common name of a broker's certificate, `broker:<cluster>:<id>`. None for other names."""
        match = _BROKER_NAME.fullmatch(name)
        return None if match is None else cls(BROKER, f"{match[1]}:{int(match[2])}")

    @property
    def cluster(self) -> str | None:
        """The cluster of a broker, None for a user."""
        return self.name.rpartition(":")[0] if self.kind == BROKER else None

    @property
    def broker_id(self) -> int | None:
        """The id of a broker, None for a user."""
        return int(self.name.rpartition(":")[2]) if self.kind == BROKER else None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")


def check_name(name: str, what: str) -> None:
    """Raises InvalidPrincipal for a name that is empty or too long, has control characters, or has spaces at its
    ends."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise InvalidPrincipal(
            f"{what}: a name has 1 to {MAX_NAME_CHARACTERS} printable characters, and no spaces at its ends"
        )


def user_of(text: str) -> Principal:
    """The user of a rule or a quota. Raises InvalidPrincipal for a broker, which has neither rules nor quotas."""
    principal = Principal.parse(text)
    if principal.kind != USER:
        raise InvalidPrincipal(f"{text!r} is not a user: write User:NAME, such as User:alice")
    return principal
