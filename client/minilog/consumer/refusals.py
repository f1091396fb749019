"""The brokers that do not let this client in (AuthenticationFailed). Pure.

    refused     the password, token or certificate does not count any more: the next poll without records raises that,
                and so does each later one when its time is over
    let in      the client has logged in again: nothing is raised
    forgotten   no attempt was refused for a while, since the client wants nothing of that broker any more

The client tries again all the time, as Kafka's does. So a consumer goes on when somebody has corrected the cause.
"""

from __future__ import annotations

from minilog.errors import MinilogError

ALL = 0
"""Stands for all brokers, where none gives metadata. No broker has this id."""
_LASTS_MS = 10_000.0  # brokers refuse within 3 s, and a client tries again after 1 s


class BrokerRefusals:
    """The refusals that a consumer knows, by broker. Times are in milliseconds."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[MinilogError, float]] = {}
        self._news: MinilogError | None = None

    def refused(self, broker_id: int, refusal: MinilogError, now_ms: float) -> None:
        """Note a refusal."""
        self._last[broker_id] = refusal, now_ms
        self._news = refusal

    def let_in(self, broker_id: int) -> None:
        """Forget the refusal of this broker."""
        if (last := self._last.pop(broker_id, None)) is not None and last[0] is self._news:
            self._news = None

    def raise_first(self, now_ms: float, *, is_over: bool) -> None:
        """For a poll without records: raise a refusal that no poll has raised, or any if the poll's time `is_over`."""
        self._last = {broker_id: last for broker_id, last in self._last.items() if now_ms - last[1] < _LASTS_MS}
        refusal, self._news = self._news, None
        if refusal is None and is_over:
            refusal = next((refused for refused, _ in self._last.values()), None)
        if refusal is not None:
            raise type(refusal)(str(refusal))
