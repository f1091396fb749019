"""Who asks: a principal, as Kafka writes it.

User:alice             a user that has proven itself
User:ANONYMOUS         nobody has asked who it is
Broker:<cluster>:<id>  a broker of a cluster, by its certificate
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from minilog.errors import InvalidPrincipal

USER, BROKER = "User", "Broker"
EVERYBODY = "*"  # as the name of a user, in rules
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
        """Raises InvalidPrincipal where it is not KIND:NAME, of a kind that is known."""
        kind, colon, name = text.partition(":")
        if not colon or kind not in _KINDS:
            raise InvalidPrincipal(
                f"{text[:MAX_NAME_CHARACTERS]!r} is no principal: write User:NAME, such as User:alice"
            )
        check_name(name, f"principal {text[:MAX_NAME_CHARACTERS]!r}")
        return cls(kind, name)

    @classmethod
    def of_broker_name(cls, name: str) -> Principal | None:
        """Of the common name of a broker's certificate, `broker:<cluster>:<id>`; None for any other name."""
        found = _BROKER_NAME.fullmatch(name)
        return None if found is None else cls(BROKER, f"{found[1]}:{int(found[2])}")

    @property
    def cluster(self) -> str | None:
        """Of a broker."""
        return self.name.rpartition(":")[0] if self.kind == BROKER else None

    @property
    def broker_id(self) -> int | None:
        """Of a broker."""
        return int(self.name.rpartition(":")[2]) if self.kind == BROKER else None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")


def check_name(name: str, what: str) -> None:
    """Raises InvalidPrincipal for a name that is empty, too long, or would not be seen as it is: with control
    characters, or with spaces at its ends."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise InvalidPrincipal(
            f"{what}: a name has 1 to {MAX_NAME_CHARACTERS} characters that can be printed, and no spaces at its ends"
        )


def user_of(text: str) -> Principal:
    """The user that a rule or a quota is of. Raises InvalidPrincipal; brokers need no rules, and have no quotas."""
    principal = Principal.parse(text)
    if principal.kind != USER:
        raise InvalidPrincipal(f"{text!r} is no user: write User:NAME, such as User:alice")
    return principal
