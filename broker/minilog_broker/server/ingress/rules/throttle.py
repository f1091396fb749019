"""The place where calls wait for their quotas: one after the other, before the service gets them.

A call of a principal with a debt waits until the debt is paid, takes its turn, is charged, and goes on. The debt is the
principal's, whatever stream or connection comes next. So a principal exceeds its rate by at most one message. Each
principal and quota has one line. A cancelled call leaves its line without a charge.

A line holds the waiting messages, so its bytes and its length have bounds. A call waits at most MAX_DELAY_S. Then it is
refused, and the client tries again. A stream waits as long as the debt lasts, and reads nothing meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from minilog.errors import ResourceExhausted
from minilog_broker.security.principal import Principal
from minilog_broker.server.access.caller import Caller, has_quotas

MAX_DELAY_S = 10.0  # of a call: below the clients' request.timeout.ms
MOST_WAITING = 1_000  # in one line
_LOOK_AGAIN_S = 1.0  # the rate may have changed


@dataclass(slots=True)
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    held_bytes: int = 0


class Throttle:
    """The lines of all clients of a broker, on its event loop. `most_held_bytes`: of messages that wait in one line."""

    def __init__(self, most_held_bytes: int) -> None:
        self._most_held_bytes = most_held_bytes
        self._lines: dict[tuple[Principal, str], _Line] = {}

    @property
    def lines(self) -> int:
        """The number of lines with waiting calls."""
        return len(self._lines)

    async def pay(
        self, caller: Caller, key: str, amount: float, held_bytes: int = 0, within_s: float | None = None
    ) -> None:
        """Return when there is no debt, and `amount` is charged. `held_bytes`: the bytes held during the wait. Raises
        ResourceExhausted after `within_s`, and where too much waits."""
        if not has_quotas(caller):
            return
        place = (caller.principal, key)
        line = self._lines.get(place)
        if line is None:
            if caller.owed_s(key) <= 0:
                caller.charge(key, amount)
                return
            line = self._lines[place] = _Line()
        if line.waiting >= MOST_WAITING or (line.held_bytes and line.held_bytes + held_bytes > self._most_held_bytes):
            raise ResourceExhausted(f"too many calls wait for the {key} of {caller.principal}: send less, or later")
        line.waiting += 1
        line.held_bytes += held_bytes
        try:
            async with asyncio.timeout(within_s), line.turn:
                while (owed_s := caller.owed_s(key)) > 0:  # noqa: ASYNC110 - time pays, and no event tells of it
                    await asyncio.sleep(min(owed_s, _LOOK_AGAIN_S))
                caller.charge(key, amount)
        except TimeoutError:
            raise ResourceExhausted(
                f"{caller.principal} is above its {key}, and its debt lasts {caller.owed_s(key):.1f} s: call less "
                "often, or later"
            ) from None
        finally:
            line.waiting -= 1
            line.held_bytes -= held_bytes
            if not line.waiting:
                del self._lines[place]
