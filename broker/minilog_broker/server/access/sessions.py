"""Sessions of clients that have shown a password or a token: 32 random bytes, known to this broker alone, taken from
the host that they were given to, until they end.

Bounded: above the most there may be the one that ends first gives way; its client asks for another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from minilog_broker.security.principal import Principal

SESSION_BYTES = 32
MOST_SESSIONS = 20_000


@dataclass(frozen=True, slots=True)
class Session:
    """Ends at a time of the monotonic clock."""

    principal: Principal
    host: str
    ends_at_ms: float


@dataclass(slots=True)
class Sessions:
    """Of one broker. `random_bytes`: whom nobody can guess."""

    random_bytes: Callable[[int], bytes]
    _sessions: dict[bytes, Session] = field(default_factory=dict)
    _ends: list[tuple[float, bytes]] = field(default_factory=list)

    def begin(self, principal: Principal, host: str, now_ms: float, lifetime_ms: float) -> bytes:
        """A new one."""
        self._let_go(now_ms)
        name = self.random_bytes(SESSION_BYTES)
        self._sessions[name] = Session(principal, host, now_ms + lifetime_ms)
        heapq.heappush(self._ends, (now_ms + lifetime_ms, name))
        return name

    def find(self, name: bytes, host: str, now_ms: float) -> Session | None:
        """None where there is none, it has ended, or comes from another host."""
        session = self._sessions.get(name)
        return session if session is not None and session.host == host and now_ms < session.ends_at_ms else None

    def end_all_of(self, is_gone: Callable[[Principal], bool]) -> None:
        """Their users are no more, or have another password."""
        for name in [name for name, each in self._sessions.items() if is_gone(each.principal)]:
            del self._sessions[name]

    def _let_go(self, now_ms: float) -> None:
        while self._ends and (self._ends[0][0] <= now_ms or len(self._sessions) >= MOST_SESSIONS):
            _, name = heapq.heappop(self._ends)
            self._sessions.pop(name, None)
