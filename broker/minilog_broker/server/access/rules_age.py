"""The age limit of a broker's users and rules: a broker uses them for one session after a controller's last answer.

A controller's answer to a heartbeat has the end of the metadata log. The answer counts when the broker has replayed all
of that. Then the image is no older than the heartbeat. A right may have been taken away without the broker's knowledge
more than broker.session.timeout.ms later. So its listeners with rules refuse every call but health, end every stream
and begin no session. Other brokers serve meanwhile. With `stale.access.rules.enable` the broker goes on by its last
rules. Rules that no controller has confirmed in this life never count.
"""

from __future__ import annotations

from minilog.errors import BrokerNotAvailable


class RulesAge:
    """The age of the rules of one broker. Times are monotonic milliseconds, and come in. `most_ms`: the limit, infinite
    where the operator has allowed that."""

    def __init__(self, broker_id: int, most_ms: float) -> None:
        self._broker_id = broker_id
        self._most_ms = most_ms
        self._as_of_ms: float | None = None

    def confirmed(self, as_of_ms: float) -> None:
        """Note that the image has all decisions from before `as_of_ms`."""
        self._as_of_ms = as_of_ms if self._as_of_ms is None else max(self._as_of_ms, as_of_ms)

    def age_s(self, now_ms: float) -> float:
        """The age in seconds, infinite where no controller was heard in this life."""
        return float("inf") if self._as_of_ms is None else (now_ms - self._as_of_ms) / 1000.0

    def left_s(self, now_ms: float) -> float:
        """The time until the rules are too old; infinite where they are already, or never will be."""
        left_s = self._most_ms / 1000.0 - self.age_s(now_ms)
        return left_s if left_s > 0 else float("inf")

    def refusal(self, now_ms: float) -> BrokerNotAvailable | None:
        """The refusal of a client's call, None where the rules are young enough."""
        if self._as_of_ms is None:
            return BrokerNotAvailable(
                f"broker {self._broker_id} is starting, and does not know the users and rules yet: ask another "
                f"broker, or try again"
            )
        if now_ms < self._as_of_ms + self._most_ms:
            return None
        return BrokerNotAvailable(
            f"broker {self._broker_id} has heard no controller for {self.age_s(now_ms):.1f} s, and its users and rules "
            f"may be out of date: ask another broker, and make sure that broker {self._broker_id} reaches a majority "
            f"of the voters"
        )

    def check(self, now_ms: float) -> None:
        """Raises BrokerNotAvailable where the rules are too old."""
        if (refusal := self.refusal(now_ms)) is not None:
            raise refusal
