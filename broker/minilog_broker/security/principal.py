"""Who asks: a principal, as Kafka writes it.

User:alice             a user that has proven itself
User:ANONYMOUS         nobody has asked who it is
Broker:<cluster>:<id>  a broker of a cluster, by its certificate
"""

from __future__ import annotations

import re
from dataclasses import dataclass

USER, BROKER = "User", "Broker"
EVERYBODY = "*"  # as the name of a user, in rules
_BROKER_NAME = re.compile(r"broker:([a-z0-9-]{1,63}):([0-9]{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Principal:
    """`str` is how it is written in rules and logs."""

    kind: str
    name: str

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
