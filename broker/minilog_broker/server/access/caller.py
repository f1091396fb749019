"""Who makes a call, as services are handed it: in the place of gRPC's context by unary calls, as `caller` by streams.

A caller remembers what it was allowed. When rules change, it is asked for again for all of that: a stream whose caller
may not do any more what it was allowed is ended (ingress/gate.py).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Protocol

from minilog.errors import MinilogError
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.audit import Decision
from minilog_broker.security.principal import ANONYMOUS, Principal
from minilog_broker.server.access.costs import Cost
from minilog_broker.server.access.refusals import Refusals

# A stream has no more positions. What is not remembered is asked for each time, and a change of rules ends the stream.
_MOST_REMEMBERED, _LONGEST_NAME = 10_000, 255
Question = tuple[Operation, ResourceKind, str]


class Proof(enum.Enum):
    """By what a caller is known."""

    NONE = enum.auto()  # a listener in the clear, or nobody is asked
    CERTIFICATE = enum.auto()
    SESSION = enum.auto()  # that began with a password, or an issuer's token
    DELEGATION_TOKEN = enum.auto()  # a session, too


class Rules(Protocol):
    """The rules as they are when they are asked."""

    def is_allowed(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> bool: ...

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool: ...

    def denied(
        self,
        caller: Caller,
        operation: Operation,
        kind: ResourceKind,
        names: Sequence[str],
        reason: str,
        about: Sequence[str],
    ) -> None:
        """One message asked for these, and that is not allowed. `about`: what it was about besides."""

    def tell(self, caller: Caller, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """What a service has decided, to the audit log."""

    def charge(self, principal: Principal, key: str, amount: float) -> None:
        """Count it against a quota."""

    def give_back(self, principal: Principal, key: str, amount: float) -> None:
        """Of what was charged."""

    def owed_ms(self, principal: Principal, key: str) -> float:
        """For how long something of a quota is owed."""

    def cost(self, path: str, request: Any) -> Cost | None:
        """What a call is charged besides itself."""

    def quota(self, principal: Principal, key: str) -> int | None:
        """None: there is none."""


class Caller:
    """One who calls; `rules` are those of now, whenever they are asked. `listener`: the name of the one that the call
    came by, empty for that without a name."""

    is_everybody = False
    """Where nobody is asked who he is, and nothing is refused."""

    def __init__(
        self,
        principal: Principal,
        host: str,
        path: str,
        rules: Rules,
        listener: str = "",
        proof: Proof = Proof.NONE,
    ) -> None:
        self.proof = proof
        self.principal = principal
        self.listener = listener
        self.path = path
        self.host = host
        self._rules = rules
        self._allowed: set[Question] = set()
        self._has_more = False  # it was allowed what is not remembered

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether it is allowed."""
        question = (operation, kind, name)
        if question in self._allowed:
            return True
        if not self._rules.is_allowed(self.principal, self.host, *question):
            return False
        if len(self._allowed) >= _MOST_REMEMBERED or len(name) > _LONGEST_NAME:
            self._has_more = True
        else:
            self._allowed.add(question)
        return True

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is any name of which it is allowed."""
        return self._rules.is_allowed_any(self.principal, self.host, operation, kind)

    def judge(self, operation: Operation, kind: ResourceKind, name: str) -> MinilogError | None:
        """The reason of a refusal, which also goes to the audit log; None where it is allowed."""
        with self.refusals() as refusals:
            return refusals.of(operation, kind, name)

    def refusals(self, about: Sequence[str] = ()) -> Refusals:
        """To judge all names of a message, which is about these things besides."""
        return Refusals(self, about)

    def tell_denied(
        self, operation: Operation, kind: ResourceKind, names: Sequence[str], reason: str, about: Sequence[str]
    ) -> None:
        """What one message was refused for, to the audit log."""
        self._rules.denied(self, operation, kind, names, reason, about)

    def tell(self, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """What a service has decided for this caller, to the audit log."""
        self._rules.tell(self, operation, resource, decision, reason)

    def charge(self, key: str, amount: float) -> None:
        """Count so much against a quota (minilog.security.quota_keys)."""
        self._rules.charge(self.principal, key, amount)

    def give_back(self, key: str, amount: float) -> None:
        """Of what was charged."""
        self._rules.give_back(self.principal, key, amount)

    def owed_s(self, key: str) -> float:
        """For how many seconds nothing more that counts against this quota may be done."""
        return self._rules.owed_ms(self.principal, key) / 1000.0

    def cost(self, request: Any) -> Cost | None:
        """What this call is charged besides itself."""
        return self._rules.cost(self.path, request)

    def most(self, key: str) -> int | None:
        """How much it may have at a time; None: as much as it wants."""
        return self._rules.quota(self.principal, key)

    def rules_changed(self) -> bool:
        """The rules are others: is all that was allowed allowed still, for certain? What is not is forgotten."""
        lost = {each for each in self._allowed if not self._rules.is_allowed(self.principal, self.host, *each)}
        self._allowed -= lost
        return not lost and not self._has_more


class _NoRules:
    """All is allowed."""

    def is_allowed(self, *question: object) -> bool:
        return True

    def is_allowed_any(self, *question: object) -> bool:
        return True

    def denied(self, *told: object) -> None:
        """Nothing is."""

    def tell(self, *told: object) -> None:
        """There is no audit log."""

    def charge(self, *told: object) -> None:
        """Nothing is counted."""

    def give_back(self, *told: object) -> None:
        """Nothing was."""

    def owed_ms(self, *told: object) -> float:
        return 0.0

    def cost(self, *told: object) -> Cost | None:
        return None

    def quota(self, *told: object) -> int | None:
        return None


NO_RULES = _NoRules()
"""Of a listener in the clear, and of brokers, for whom the table alone decides."""


class Everybody(Caller):
    """Where there are no identities: a listener in the clear."""

    is_everybody = True

    def __init__(self, listener: str = "") -> None:
        super().__init__(ANONYMOUS, "", "", NO_RULES, listener)
