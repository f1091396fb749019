"""How old the users and rules of a broker may be: it goes by them for a session behind a controller's last word.

A controller that answers a heartbeat names the end of the metadata log, and the answer counts when all of that is
replayed: what this broker knows is then no older than the heartbeat. More than broker.session.timeout.ms later a
right may have been taken away without this broker's knowledge. So listeners where rules count refuse every call but
health, end every stream and begin no session, and other brokers serve meanwhile. Where `stale.access.rules.enable` is
set it serves by what it knew last; what no controller has confirmed in this life is not gone by even so.
"""

from __future__ import annotations

from minilog.errors import BrokerNotAvailable


class RulesAge:
    """Of one broker. Times are monotonic milliseconds, and come in. `most_ms`: how old they may be, infinite where an
    operator has allowed that."""

    def __init__(self, broker_id: int, most_ms: float) -> None:
        self._broker_id = broker_id
        self._most_ms = most_ms
        self._as_of_ms: float | None = None

    def confirmed(self, as_of_ms: float) -> None:
        """All that was decided before is known here."""
        self._as_of_ms = as_of_ms if self._as_of_ms is None else max(self._as_of_ms, as_of_ms)

    def age_s(self, now_ms: float) -> float:
        """Infinite where no controller was heard in this life."""
        return float("inf") if self._as_of_ms is None else (now_ms - self._as_of_ms) / 1000.0

    def left_s(self, now_ms: float) -> float:
        """Until they are too old; infinite where they are already, or never will be."""
        left_s = self._most_ms / 1000.0 - self.age_s(now_ms)
        return left_s if left_s > 0 else float("inf")

    def refusal(self, now_ms: float) -> BrokerNotAvailable | None:
        """Why clients are not served; None where they are."""
        if self._as_of_ms is None:
            return BrokerNotAvailable(
                f"broker {self._broker_id} is starting, and does not know yet which users and rules there are: ask "
                f"another broker, or again"
            )
        if now_ms < self._as_of_ms + self._most_ms:
            return None
        return BrokerNotAvailable(
            f"broker {self._broker_id} has heard no controller for {self.age_s(now_ms):.1f} s, and users and rules may "
            f"be others by now: ask another broker, and see that broker {self._broker_id} reaches a majority of the "
            f"voters"
        )

    def check(self, now_ms: float) -> None:
        """Raises BrokerNotAvailable where they are too old."""
        if (refusal := self.refusal(now_ms)) is not None:
            raise refusal
