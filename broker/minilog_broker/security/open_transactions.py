"""How many transactions a principal has open on one broker, and how old they are together: what its quotas bound. Pure.

Whose a transaction is, its last writer says, with each call of his own: an enlisting, a sign of life. A registration is
none: the broker of a leader asks for it. So a broker that has just become coordinator knows it within one keep-alive.
Whether it is open still the coordinator knows, who is asked whenever somebody counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MAX_OWNERS = 100_000  # transactional ids, some 20 MB: the one heard of longest ago goes first

AgeMs = Callable[[str], float | None]
"""How long a transactional id has been open here; None where it is not."""


class OpenTransactions:
    """Of all principals of one broker; a principal is a text, as `User:alice`."""

    def __init__(self, max_owners: int = MAX_OWNERS) -> None:
        self._max_owners = max_owners
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._owned: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def heard(self, principal: str, transactional_id: str) -> None:
        """A writer of that principal has called."""
        if self._owners.get(transactional_id) != principal:
            self._forget(transactional_id)
            self._owned.setdefault(principal, {})[transactional_id] = None
        self._owners[transactional_id] = principal
        self._owners.move_to_end(transactional_id)
        if len(self._owners) > self._max_owners:
            self._forget(next(iter(self._owners)))

    def ages_ms(self, principal: str, age_ms: AgeMs) -> dict[str, float]:
        """Those of that principal that are open, and for how long; what is not open any more is forgotten."""
        found: dict[str, float] = {}
        for transactional_id in tuple(self._owned.get(principal, ())):
            age = age_ms(transactional_id)
            if age is None:
                self._forget(transactional_id)
            else:
                found[transactional_id] = age
        return found

    def _forget(self, transactional_id: str) -> None:
        principal = self._owners.pop(transactional_id, None)
        if principal is None:
            return
        owned = self._owned[principal]
        del owned[transactional_id]
        if not owned:
            del self._owned[principal]


def excess(ages_ms: dict[str, float], transactional_id: str, most: int | None, most_age_ms: int | None) -> str | None:
    """Why one more may not be opened, in words; None where it may, or where it is open already."""
    if transactional_id in ages_ms:
        return None
    if most is not None and len(ages_ms) >= most:
        return f"{len(ages_ms)} transactions are open, {most} are allowed (open_transactions)"
    together_ms = sum(ages_ms.values())
    if most_age_ms is not None and together_ms >= most_age_ms:
        return (
            f"{len(ages_ms)} open transactions are {together_ms:.0f} ms old together, "
            f"{most_age_ms} are allowed (open_transactions_age_ms)"
        )
    return None
