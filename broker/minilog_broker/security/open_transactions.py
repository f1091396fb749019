"""The number of open transactions of a principal on one broker, and the sum of their ages. Quotas bound both. Pure.

The owner of a transaction is the principal of its last writer. Each call of a writer names it: an enlisting or a sign
of life. A registration does not, since the broker of a leader sends it. So a new coordinator knows the owner within one
keep-alive. Each count asks the coordinator whether a transaction is still open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MAX_OWNERS = 100_000  # transactional ids, some 20 MB: the one with the oldest call goes first

AgeMs = Callable[[str], float | None]
"""The age of a transactional id's open transaction here, None where none is open."""


class OpenTransactions:
    """The owners of the transactions of one broker. An owner is the text of a principal, such as `User:alice`."""

    def __init__(self, max_owners: int = MAX_OWNERS) -> None:
        self._max_owners = max_owners
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._owned: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def heard(self, principal: str, transactional_id: str) -> None:
        """Note a call of a writer of that principal."""
        if self._owners.get(transactional_id) != principal:
            self._forget(transactional_id)
            self._owned.setdefault(principal, {})[transactional_id] = None
        self._owners[transactional_id] = principal
        self._owners.move_to_end(transactional_id)
        if len(self._owners) > self._max_owners:
            self._forget(next(iter(self._owners)))

    def ages_ms(self, principal: str, age_ms: AgeMs) -> dict[str, float]:
        """The open transactions of that principal with their ages. Those that are no more open are dropped."""
        ages_ms: dict[str, float] = {}
        for transactional_id in tuple(self._owned.get(principal, ())):
            age = age_ms(transactional_id)
            if age is None:
                self._forget(transactional_id)
            else:
                ages_ms[transactional_id] = age
        return ages_ms

    def _forget(self, transactional_id: str) -> None:
        principal = self._owners.pop(transactional_id, None)
        if principal is None:
            return
        owned = self._owned[principal]
        del owned[transactional_id]
        if not owned:
            del self._owned[principal]


def excess(ages_ms: dict[str, float], transactional_id: str, most: int | None, most_age_ms: int | None) -> str | None:
    """Why the quotas do not allow one more transaction, in words. None where they do, or where it is open already."""
    if transactional_id in ages_ms:
        return None
    if most is not None and len(ages_ms) >= most:
        return f"{len(ages_ms)} transactions are open, and {most} are allowed (open_transactions)"
    together_ms = sum(ages_ms.values())
    if most_age_ms is not None and together_ms >= most_age_ms:
        return (
            f"{len(ages_ms)} open transactions are {together_ms:.0f} ms old together, and "
            f"{most_age_ms} ms are allowed (open_transactions_age_ms)"
        )
    return None
