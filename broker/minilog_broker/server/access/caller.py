"""The caller of a call. Unary calls of services get it in the place of gRPC's context, and streams have it as `caller`.

A caller remembers its allowed questions. After a change of rules all of them are asked again. A stream whose caller has
lost a right ends (ingress/rules/gate.py).
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
    """The proof of a caller's name."""

    NONE = enum.auto()  # a listener in the clear, or one without logins
    CERTIFICATE = enum.auto()
    SESSION = enum.auto()  # one that began with a password or an issuer's token
    DELEGATION_TOKEN = enum.auto()  # a session that began with a delegation token


class Rules(Protocol):
    """The rights and quotas at the time of each question."""

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
        """Note the refused names of one message in the audit log. `about`: the further subjects of the message."""

    def tell(self, caller: Caller, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """Note a decision of a service in the audit log."""

    def charge(self, principal: Principal, key: str, amount: float) -> None:
        """Charge an amount to a quota."""

    def give_back(self, principal: Principal, key: str, amount: float) -> None:
        """Return a part of a charge."""

    def owed_ms(self, principal: Principal, key: str) -> float:
        """The time until the debt under a quota is paid."""

    def cost(self, path: str, request: Any) -> Cost | None:
        """The charge of a call beside the call itself."""

    def quota(self, principal: Principal, key: str) -> int | None:
        """The quota of a principal, None where there is none."""


class Caller:
    """The principal of a call, with its host and its rights. `rules` answers each question by the rules of that time.
    `listener`: the name of the call's listener, empty for the one without a name."""

    is_everybody = False
    """True on a listener without logins, where nothing is refused."""

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
        self._has_more = False  # some allowed questions are not remembered

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the caller may do the operation."""
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
        """Whether the caller may do the operation on any name."""
        return self._rules.is_allowed_any(self.principal, self.host, operation, kind)

    def judge(self, operation: Operation, kind: ResourceKind, name: str) -> MinilogError | None:
        """The refusal, which also goes to the audit log; None where it is allowed."""
        with self.refusals() as refusals:
            return refusals.of(operation, kind, name)

    def refusals(self, about: Sequence[str] = ()) -> Refusals:
        """A collector of the refusals of one message. `about`: the further subjects of the message."""
        return Refusals(self, about)

    def tell_denied(
        self, operation: Operation, kind: ResourceKind, names: Sequence[str], reason: str, about: Sequence[str]
    ) -> None:
        """Note the refused names of one message in the audit log."""
        self._rules.denied(self, operation, kind, names, reason, about)

    def tell(self, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """Note a decision of a service for this caller in the audit log."""
        self._rules.tell(self, operation, resource, decision, reason)

    def charge(self, key: str, amount: float) -> None:
        """Charge an amount to a quota (minilog.security.quota_keys)."""
        self._rules.charge(self.principal, key, amount)

    def give_back(self, key: str, amount: float) -> None:
        """Return a part of a charge."""
        self._rules.give_back(self.principal, key, amount)

    def owed_s(self, key: str) -> float:
        """The seconds in which the caller may do nothing that counts under this quota."""
        return self._rules.owed_ms(self.principal, key) / 1000.0

    def cost(self, request: Any) -> Cost | None:
        """The charge of this call beside the call itself."""
        return self._rules.cost(self.path, request)

    def most(self, key: str) -> int | None:
        """The limit of a quota for things at a time, None without a limit."""
        return self._rules.quota(self.principal, key)

    def rules_changed(self) -> bool:
        """Forget lost rights after a change of rules. True where the caller certainly has all its former rights."""
        lost = {right for right in self._allowed if not self._rules.is_allowed(self.principal, self.host, *right)}
        self._allowed -= lost
        return not lost and not self._has_more


class _NoRules:
    """The rules of a place where all is allowed."""

    def is_allowed(self, *question: object) -> bool:
        return True

    def is_allowed_any(self, *question: object) -> bool:
        return True

    def denied(self, *arguments: object) -> None:
        """Does nothing: no call is refused."""

    def tell(self, *arguments: object) -> None:
        """Does nothing: there is no audit log."""

    def charge(self, *arguments: object) -> None:
        """Does nothing: there are no quotas."""

    def give_back(self, *arguments: object) -> None:
        """Does nothing: there are no quotas."""

    def owed_ms(self, *arguments: object) -> float:
        return 0.0

    def cost(self, *arguments: object) -> Cost | None:
        return None

    def quota(self, *arguments: object) -> int | None:
        return None


NO_RULES = _NoRules()
"""The rules of a listener in the clear, and of brokers, whose rights are in the table alone."""


class Everybody(Caller):
    """The caller on a listener in the clear, which has no identities."""

    is_everybody = True

    def __init__(self, listener: str = "") -> None:
        super().__init__(ANONYMOUS, "", "", NO_RULES, listener)


def has_quotas(caller: Caller) -> bool:
    """Whether a caller has quotas: only one that has logged in. Else strangers, who are all one, would slow down each
    other's logins."""
    return not caller.is_everybody and caller.principal != ANONYMOUS
