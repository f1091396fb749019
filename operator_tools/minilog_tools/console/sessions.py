"""The logins of browsers: a token in a cookie stands for a view of the cluster. A core: time and tokens come in.

A session ends when it is LONGEST_S old, after IDLE_S without a request, when its browser logs out, or when the brokers
refuse its user. A user has at most MOST_OF_USER: a new one takes the place of the one of his that was used least
recently. So nobody ends the sessions of others by logging in. Above MOST sessions the user with the most makes room.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

LONGEST_S = 12 * 3600.0  # a working day: the password is in memory for as long
IDLE_S = 3600.0
MOST_OF_USER = 8
MOST = 512  # each has channels to the brokers while it is used

View = TypeVar("View")


@dataclass(slots=True)
class Session(Generic[View]):
    """One login. `name`: the user's, as typed at the login. Times are of the console's clock."""

    name: str
    view: View
    began_s: float
    used_s: float

    def is_over(self, now_s: float) -> bool:
        return now_s - self.began_s >= LONGEST_S or now_s - self.used_s >= IDLE_S


class Sessions(Generic[View]):
    """The sessions of all browsers by their tokens.

    A method that ends sessions returns their views, which the caller closes.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session[View]] = {}  # least recently used first

    def begin(self, token: str, name: str, view: View, now_s: float) -> list[View]:
        """Begins a session under a new token, and returns the views of the sessions that this ended."""
        ended = self.expire(now_s)
        users = Counter(session.name for session in self._sessions.values())
        if users[name] >= MOST_OF_USER:
            ended.append(self._end_oldest(name))
        elif len(self._sessions) >= MOST:
            ended.append(self._end_oldest(users.most_common(1)[0][0]))
        self._sessions[token] = Session(name, view, now_s, now_s)
        return ended

    def _end_oldest(self, name: str) -> View:
        """End the session of this user that was used least recently."""
        token = next(token for token, session in self._sessions.items() if session.name == name)
        return self._sessions.pop(token).view

    def use(self, token: str, now_s: float) -> Session[View] | None:
        """The session of this token, which counts as used now, or None."""
        session = self._sessions.get(token)
        if session is None or session.is_over(now_s):
            return None
        session.used_s = now_s
        self._sessions[token] = self._sessions.pop(token)
        return session

    def end(self, token: str) -> View | None:
        session = self._sessions.pop(token, None)
        return None if session is None else session.view

    def expire(self, now_s: float) -> list[View]:
        """The views of sessions that are over by now."""
        over = [token for token, session in self._sessions.items() if session.is_over(now_s)]
        return [self._sessions.pop(token).view for token in over]

    def views(self) -> list[View]:
        return [session.view for session in self._sessions.values()]


def form_token(key: bytes, cookie: str) -> str:
    """The token in each form, which proves that the form is of a page for this browser. Another site can neither read
    the cookie nor guess the key."""
    return hmac.new(key, cookie.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def is_form_token(key: bytes, cookie: str, token: str) -> bool:
    return hmac.compare_digest(form_token(key, cookie).encode(), token.encode("utf-8", "surrogatepass"))
