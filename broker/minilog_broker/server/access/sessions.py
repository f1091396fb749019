"""Sessions of clients that have shown a password or a token: 32 random bytes, known to this broker alone, taken from
the host that they were given to, until they end.

Bounded, for each user and for all: above that the user's own oldest gives way, and that which ends first of all. Whose
session is gone asks for another.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from minilog_broker.security.principal import Principal

SESSION_BYTES = 32
MOST_SESSIONS = 20_000
MOST_OF_ONE_USER = 2_000  # workers of a large Spark cluster; who opens more drops his own


@dataclass(frozen=True, slots=True)
class Session:
    """Ends at a time of the monotonic clock."""

    principal: Principal
    host: str
    ends_at_ms: float
    token_id: str | None = None
    """Of the delegation token that it began with, if it did."""


@dataclass(slots=True)
class Sessions:
    """Of one broker. `random_bytes`: whom nobody can guess."""

    random_bytes: Callable[[int], bytes]
    _sessions: dict[bytes, Session] = field(default_factory=dict)
    _of_user: dict[Principal, OrderedDict[bytes, None]] = field(default_factory=dict)
    _ends: list[tuple[float, bytes]] = field(default_factory=list)

    def begin(
        self, principal: Principal, host: str, now_ms: float, lifetime_ms: float, token_id: str | None = None
    ) -> bytes:
        """A new one."""
        self._let_go(now_ms)
        own = self._of_user.get(principal, OrderedDict())
        if len(own) >= MOST_OF_ONE_USER:
            self._end(next(iter(own)))
        name = self.random_bytes(SESSION_BYTES)
        self._sessions[name] = Session(principal, host, now_ms + lifetime_ms, token_id)
        self._of_user.setdefault(principal, OrderedDict())[name] = None
        heapq.heappush(self._ends, (now_ms + lifetime_ms, name))
        return name

    def find(self, name: bytes, host: str, now_ms: float) -> Session | None:
        """None where there is none, it has ended, or comes from another host."""
        session = self._sessions.get(name)
        return session if session is not None and session.host == host and now_ms < session.ends_at_ms else None

    def of_another_host(self, name: bytes, host: str) -> Session | None:
        """One that there is, and that was not given to this host."""
        session = self._sessions.get(name)
        return session if session is not None and session.host != host else None

    def end_all_of(self, is_gone: Callable[[Principal], bool]) -> None:
        """Their users are no more, or have another password."""
        for principal in [each for each in self._of_user if is_gone(each)]:
            for name in list(self._of_user[principal]):
                self._end(name)

    def end_of_tokens(self, gone: Container[str]) -> None:
        """These delegation tokens are no more, or end sooner."""
        for name in [
            name for name, each in self._sessions.items() if each.token_id is not None and each.token_id in gone
        ]:
            self._end(name)

    def _end(self, name: bytes) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            own = self._of_user[session.principal]
            del own[name]
            if not own:
                del self._of_user[session.principal]

    def _let_go(self, now_ms: float) -> None:
        """Of those that have ended; what ended otherwise is still in the queue of ends, and is passed over."""
        if len(self._ends) > 2 * len(self._sessions) + 64:
            self._ends = [(each.ends_at_ms, name) for name, each in self._sessions.items()]
            heapq.heapify(self._ends)
        while self._ends and (self._ends[0][0] <= now_ms or len(self._sessions) >= MOST_SESSIONS):
            self._end(heapq.heappop(self._ends)[1])
