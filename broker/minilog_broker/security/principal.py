"""Principals: whom a call comes from. Written `User:alice`, as in access rules, or `Broker:<cluster>:<id>`."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

_BROKER_NAME = re.compile(r"broker:([a-z0-9-]{1,63}):([0-9]{1,7})", re.ASCII)


class PrincipalKind(enum.Enum):
    """The word before the colon."""

    USER = "User"
    BROKER = "Broker"


@dataclass(frozen=True, slots=True)
class Principal:
    """`name`: of a broker `<cluster>:<id>`."""

    kind: PrincipalKind
    name: str

    @classmethod
    def user(cls, name: str) -> Principal:
        return cls(PrincipalKind.USER, name)

    @classmethod
    def of_broker_name(cls, name: str) -> Principal | None:
        """Of the common name of a certificate, `broker:<cluster>:<id>`; None for any other name."""
        found = _BROKER_NAME.fullmatch(name)
        return None if found is None else cls(PrincipalKind.BROKER, f"{found[1]}:{int(found[2])}")

    @property
    def cluster(self) -> str | None:
        """Of a broker."""
        return self.name.rpartition(":")[0] if self.kind is PrincipalKind.BROKER else None

    @property
    def broker_id(self) -> int | None:
        """Of a broker."""
        return int(self.name.rpartition(":")[2]) if self.kind is PrincipalKind.BROKER else None

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


ANONYMOUS = Principal.user("ANONYMOUS")
"""Who has not said who he is (Kafka's name for it)."""
