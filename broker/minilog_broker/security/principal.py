"""Who asks: a principal, as Kafka writes it.

User:alice             a user that has proven itself
User:ANONYMOUS         nobody has asked who it is
Broker:<cluster>:<id>  a broker of a cluster, by its certificate
"""

from __future__ import annotations

from dataclasses import dataclass

USER, BROKER = "User", "Broker"
EVERYBODY = "*"  # as the name of a user, in rules


@dataclass(frozen=True, slots=True)
class Principal:
    """`str` is how it is written in rules and logs."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
