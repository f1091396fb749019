"""Sessions of clients that have proven a password or a token. A session is 32 random bytes, which only this broker and
the client know. It counts from the host of its login, until its end.

The number is bounded, for each user and for all. Above the bound the oldest session of the user ends, and of all
sessions the one with the earliest end. A client without its session logs in again.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from minilog_broker.security.principal import Principal

SESSION_BYTES = 32
MOST_SESSIONS = 20_000
MOST_OF_ONE_USER = 2_000  # workers of a large Spark cluster; further ones end the user's own sessions


@dataclass(frozen=True, slots=True)
class LoginSession:
    """A session. It ends at a time of the monotonic clock."""

    principal: Principal
    host: str
    ends_at_ms: float
    token_id: str | None = None
    """The delegation token of its login, if there was one."""


@dataclass(slots=True)
class LoginSessions:
    """The sessions of one broker. `random_bytes`: a source of bytes that cannot be guessed."""

    random_bytes: Callable[[int], bytes]
    _sessions: dict[bytes, LoginSession] = field(default_factory=dict)
    _of_user: dict[Principal, OrderedDict[bytes, None]] = field(default_factory=dict)
    _ends: list[tuple[float, bytes]] = field(default_factory=list)

    def begin(
        self, principal: Principal, host: str, now_ms: float, lifetime_ms: float, token_id: str | None = None
    ) -> bytes:
        """Begin a session, and give its name."""
        self._let_go(now_ms)
        own = self._of_user.get(principal, OrderedDict())
        if len(own) >= MOST_OF_ONE_USER:
            self._end(next(iter(own)))
        name = self.random_bytes(SESSION_BYTES)
        self._sessions[name] = LoginSession(principal, host, now_ms + lifetime_ms, token_id)
        self._of_user.setdefault(principal, OrderedDict())[name] = None
        heapq.heappush(self._ends, (now_ms + lifetime_ms, name))
        return name

    def find(self, name: bytes, host: str, now_ms: float) -> LoginSession | None:
        """The session of a name. None where there is none, it has ended, or it is of another host."""
        session = self._sessions.get(name)
        return session if session is not None and session.host == host and now_ms < session.ends_at_ms else None

    def of_another_host(self, name: bytes, host: str) -> LoginSession | None:
        """The session of a name, where it is of another host than this one."""
        session = self._sessions.get(name)
        return session if session is not None and session.host != host else None

    def end_all_of(self, is_gone: Callable[[Principal], bool]) -> None:
        """End the sessions of users that are gone, or have another password."""
        for principal in [user for user in self._of_user if is_gone(user)]:
            for name in list(self._of_user[principal]):
                self._end(name)

    def end_of_tokens(self, gone: Container[str]) -> None:
        """End the sessions of these delegation tokens, which are gone or end sooner."""
        for name in [
            name
            for name, session in self._sessions.items()
            if session.token_id is not None and session.token_id in gone
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
        """Drop sessions that have ended. The queue of ends may still have sessions that ended otherwise: they are
        skipped."""
        if len(self._ends) > 2 * len(self._sessions) + 64:
            self._ends = [(session.ends_at_ms, name) for name, session in self._sessions.items()]
            heapq.heapify(self._ends)
        while self._ends and (self._ends[0][0] <= now_ms or len(self._sessions) >= MOST_SESSIONS):
            self._end(heapq.heappop(self._ends)[1])
