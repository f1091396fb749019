"""The rights of callers, by the current rules and quotas.

Refusals by rules go to the audit log here. This module knows nothing of gRPC. So the listeners (ingress/), and other
code that acts for a user, hold the same policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilog.errors import MinilogError
from minilog.security.quota_keys import DEFAULT_ENTITY
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.audit import ALTERING, Audit, AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import Principal
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.about import alters_nothing
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.costs import Cost, cost_of
from minilog_broker.server.access.redaction import redact
from minilog_broker.server.access.refusals import ById
from minilog_broker.server.access.table import ROWS, AllOf, Asked, LeftOut, Row
from minilog_broker.server.runtime.timer import now_ms


class Policy:
    """The rights of callers by the current rules. `authorizer` gives these rules. `quotas`: the buckets of all
    listeners of a broker. `default_partitions`: of a topic that is created without a number."""

    def __init__(
        self,
        image: MetadataImage,
        authorizer: Callable[[], Authorizer],
        audit: Audit,
        quotas: Quotas,
        default_partitions: int = 1,
    ) -> None:
        self._image = image
        self._authorizer = authorizer
        self._audit = audit
        self._quotas = quotas
        self.default_partitions = default_partitions

    def refused(self, event: AuditEvent) -> None:
        """Note a call in the audit log that gets no answer of a service."""
        self._audit(event)

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the current rules allow the operation."""
        return self._authorizer().is_allowed(principal, host, operation, kind, name)

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the current rules allow the operation on any name."""
        return self._authorizer().is_allowed_any(principal, host, operation, kind)

    def denied(
        self,
        caller: Caller,
        operation: Operation,
        kind: ResourceKind,
        names: Sequence[str],
        reason: str,
        about: Sequence[str],
    ) -> None:
        """Note refusals in the audit log. Existing topics come before names that a caller has made up."""
        if kind is ResourceKind.TOPIC:
            names = sorted(names, key=lambda name: name not in self._image.topic_ids)
        resources = (*(f"{kind.value}:{name}" for name in names), *about)
        self._tell(caller, operation, resources, Decision.DENIED, reason)

    def tell(self, caller: Caller, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """Note a decision in the audit log."""
        self._audit(
            AuditEvent(str(caller.principal), caller.host, caller.path, operation.value, resource, decision, reason)
        )

    def quota(self, principal: Principal, key: str) -> int | None:
        """The quota of the principal, else the quota of all principals without one."""
        for entity in (str(principal), DEFAULT_ENTITY):
            if (value := self._image.quotas.get(entity, {}).get(key)) is not None:
                return value
        return None

    def charge(self, principal: Principal, key: str, amount: float) -> None:
        """Charge an amount to the current quota."""
        self._quotas.charge(str(principal), key, self.quota(principal, key), amount, now_ms())

    def give_back(self, principal: Principal, key: str, amount: float) -> None:
        """Return a part of a charge."""
        self._quotas.give_back(str(principal), key, amount)

    def owed_ms(self, principal: Principal, key: str) -> float:
        """The time until the debt under the current quota is paid."""
        return self._quotas.owed_ms(str(principal), key, self.quota(principal, key), now_ms())

    def cost(self, path: str, request: Any) -> Cost | None:
        """The cost of a call, by the current topics."""
        return cost_of(path, request, self._image, self.default_partitions)

    def check(self, path: str, caller: Caller, request: Any) -> None:
        """Judge all names of a message, so that the audit log has all refusals. Raises AuthorizationFailed for the
        first one."""
        if not (parts := _parts(ROWS[path])):
            return  # the service checks the names
        judged = [(part, list(part.names(request, self._image))) for part in parts]
        about = [subject for part, _ in judged if isinstance(part, Asked) for subject in part.about(request)]
        refused: MinilogError | None = None
        with caller.refusals(about) as refusals:
            for part, names in judged:
                for name in names:
                    if isinstance(part, LeftOut):
                        refusals.of(Operation.DESCRIBE, ResourceKind.TOPIC, name)
                    else:
                        refusal = refusals.of(part.operation, part.kind, name)
                        refused = refused or refusal
        if refused is not None:
            raise refused
        for part, names in () if alters_nothing(request) else judged:
            if isinstance(part, Asked) and part.operation in ALTERING and names:
                plain = (name.name if isinstance(name, ById) else name for name in names)
                resources = (*(f"{part.kind.value}:{name}" for name in plain), *about)
                self._tell(caller, part.operation, resources, Decision.ALLOWED, "a rule allows it")

    def redact(self, caller: Caller, answer: Any) -> None:
        """Remove the parts of an answer that the caller may not describe."""

        def sees_topic(topic_id: bytes) -> bool:
            topic = self._image.topics.get(topic_id)
            return topic is not None and caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name)

        def sees_transaction(name: str) -> bool:
            return caller.may(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, name)

        def sees_topic_named(name: str) -> bool:
            return caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)

        redact(answer, sees_topic, sees_transaction, sees_topic_named)

    def _tell(
        self, caller: Caller, operation: Operation, resources: Sequence[str], decision: Decision, reason: str
    ) -> None:
        first, *others = resources
        principal, path = str(caller.principal), caller.path
        self._audit(AuditEvent(principal, caller.host, path, operation.value, first, decision, reason, tuple(others)))


def _parts(row: Row) -> tuple[Asked | LeftOut, ...]:
    """The checks of a row before a service gets the message."""
    if isinstance(row, AllOf):
        return row.parts
    return (row,) if isinstance(row, Asked) else ()
