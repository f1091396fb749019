"""How a simulated client reaches brokers: questions to any, and streams with signs of life. As minilog.aio does it.

ask_any     one broker after the other; another is asked beside one that hangs (client/minilog/net/network_client.py)
Talk        one bidirectional stream: queue, signs of life, silence (client/minilog/net/stream.py)
Picture     a metadata cache and its refreshing, at most one question under way and twenty a second
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from minilog.config import ClientConfig
from minilog.net.metadata_cache import MetadataCache, metadata_request
from minilog.net.stream import Silence
from minilog.v1 import metadata_pb2
from tests.simulation.clients import ClientProcess
from tests.simulation.network import Failure

PATIENCE_MS = 200.0
ATTEMPT_MS = 1_000.0
PAUSE_MS = 50.0


class Asking:
    """One question to any broker: `answered` gets the response, or None at the deadline."""

    def __init__(
        self,
        client: ClientProcess,
        candidates: list[int],
        method: str,
        request: Any,
        answered: Callable[[Any], None],
        timeout_ms: float,
    ) -> None:
        self._client, self._candidates = client, candidates
        self._method, self._request, self._answered = method, request, answered
        self._deadline_ms = client.now_ms + timeout_ms
        self._turn = 0
        self._done = False
        self._next()

    def _next(self, turn: int | None = None) -> None:
        """Ask the next one, unless that was done meanwhile."""
        if self._done or (turn is not None and turn != self._turn):
            return
        if self._client.now_ms >= self._deadline_ms:
            self._done = True
            self._answered(None)
            return
        target = self._candidates[self._turn % len(self._candidates)]
        self._turn += 1
        number = self._turn
        self._client.call(
            target, self._method, self._request, lambda answer: self._take(answer, number), timeout_ms=ATTEMPT_MS
        )
        self._client.after(PATIENCE_MS, self._next, number)

    def _take(self, answer: Any, number: int) -> None:
        if self._done:
            return
        if isinstance(answer, Failure):
            whole_round = number % len(self._candidates) == 0
            self._client.after(PAUSE_MS if whole_round else 0.0, self._next, number)
            return
        self._done = True
        self._answered(answer)


class Picture:
    """See the module's text. `changed` is called after each answer that was taken in."""

    def __init__(
        self,
        client: ClientProcess,
        config: ClientConfig,
        node_ids: Iterable[int],
        rng: random.Random,
        topics: Callable[[], list[str] | None],
        changed: Callable[[], None],
    ) -> None:
        self.cache = MetadataCache()
        self.client, self.config = client, config
        self._node_ids = list(node_ids)
        self._rng = rng
        self._topics, self._changed = topics, changed
        self._asking = False
        self._wanted = False
        self._quiet_until_ms = 0.0
        self.client.after(config.metadata_max_age_ms, self._age)

    def candidates(self) -> list[int]:
        """Every broker, another one first each time."""
        start = self._rng.randrange(len(self._node_ids))
        return self._node_ids[start:] + self._node_ids[:start]

    def ask_any(self, method: str, request: Any, answered: Callable[[Any], None], timeout_ms: float) -> None:
        """See Asking."""
        Asking(self.client, self.candidates(), method, request, answered, timeout_ms)

    def refresh(self) -> None:
        """Ask for metadata, now or when the pause is over."""
        self._wanted = True
        self._begin()

    def _age(self, _: Any) -> None:
        self.client.after(self.config.metadata_max_age_ms, self._age)
        self.refresh()

    def _begin(self, _: Any = None) -> None:
        if self._asking or not self._wanted:
            return
        pause_ms = self._quiet_until_ms - self.client.now_ms
        self._asking, self._wanted = True, False
        if pause_ms > 0:
            self.client.after(pause_ms, self._ask)
        else:
            self._ask(None)

    def _ask(self, _: Any) -> None:
        request = metadata_request(self.config.identity(), self._topics())
        self.ask_any("GetMetadata", request, self._answered, self.config.request_timeout_ms)

    def _answered(self, answer: metadata_pb2.GetMetadataResponse | None) -> None:
        self._asking = False
        self._quiet_until_ms = self.client.now_ms + PAUSE_MS
        if answer is None or answer.error.code or not self.cache.apply(answer):
            self._wanted = True
        self._changed()
        self._begin()


class Talk:
    """One bidirectional stream. `lost` is called once at the end, unless it was closed first."""

    def __init__(
        self,
        client: ClientProcess,
        node_id: int,
        method: str,
        keepalive: Callable[[], Any],
        *,
        keepalive_ms: float,
        opened: Callable[[], None],
        received: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        self._client, self._keepalive, self._keepalive_ms = client, keepalive, keepalive_ms
        self._opened, self._received, self._lost = opened, received, lost
        self._outgoing: deque[Any] = deque()  # bounded by what the core has in flight
        self._over = False
        self._sent_at_ms = client.now_ms
        self._silence: Silence | None = None
        self._end = client.open_stream(node_id, method).client
        self._end.on_open, self._end.on_message = self._on_open, self._on_message
        self._end.on_closed, self._end.on_room = self._on_closed, self._drain

    def send(self, message: Any) -> None:
        """Queue a message."""
        if not self._over:
            self._outgoing.append(message)
            if self._silence is not None:
                self._drain(None)

    def close(self) -> None:
        """End the stream; `lost` is not called."""
        if not self._over:
            self._over = True
            self._end.close()

    def _on_open(self, _: Any) -> None:
        if self._over:
            return
        self._silence = Silence(self._keepalive_ms, self._client.now_ms)
        self._opened()
        self._drain(None)
        self._client.after(self._keepalive_ms, self._watch)

    def _drain(self, _: Any) -> None:
        while self._outgoing and self._end.has_room:
            self._sent_at_ms = self._client.now_ms
            self._end.send(self._outgoing.popleft())

    def _on_message(self, message: Any) -> None:
        if not self._over and self._silence is not None:
            self._silence.heard(self._client.now_ms)
            self._received(message)

    def _watch(self, _: Any) -> None:
        if self._over or self._silence is None:
            return
        if self._silence.is_too_long(self._client.now_ms):
            self._end.close()
            self._on_closed(None)
            return
        if not self._outgoing and self._client.now_ms - self._sent_at_ms >= self._keepalive_ms * 0.99:
            self._outgoing.append(self._keepalive())
            self._drain(None)
        self._client.after(self._keepalive_ms, self._watch)

    def _on_closed(self, _: Any) -> None:
        if not self._over:
            self._over = True
            self._lost()
