"""The audit log: who asked for what, from where, and what was decided; one JSON object a line.

- A line is ASCII: what came from outside can neither break it nor steer a reader's terminal. Long texts are cut.
- Nobody fills a disk with refusals. Of one principal, method and decision a window has LINES_PER_KEY lines, and of all
  together MAX_LINES: who tries a new name each time is bounded, too. What is left out is counted, and told: in the next
  line of its key (`left_out`), or by `flush` and `close` when none has come.
- What is kept for that is bounded: MAX_KEYS of the latest keys.

The time comes in. Lines go to a callable: `to_structlog()` is the broker's own log, where a level above `info` hides
what was allowed; who wants all of it gives a file's.
"""

from __future__ import annotations

import enum
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

LOGGER = "minilog.audit"
WINDOW_MS = 10_000
LINES_PER_KEY = 10  # an error that repeats is seen, and a loop of errors writes one line a second
MAX_LINES = 500  # a window; some 100 KB, 1 GB a day at the worst
MAX_KEYS = 4_096
MAX_TEXT_CHARACTERS = 256  # a topic's longest name; of a longer text the beginning is kept
_CUT = "..."


class Decision(enum.Enum):
    """What was decided."""

    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One decision. `principal` and `host`: who, from where. `method`: the call. `operation` and `resource`
    (`topic:flights`): what for, empty where there is none, as in a login. `reason`: why, in words."""

    principal: str
    host: str
    method: str
    operation: str
    resource: str
    decision: Decision
    reason: str


Write = Callable[[Decision, str], None]
_Key = tuple[str, str, Decision]


@dataclass(slots=True)
class _Window:
    """How many lines were written since it began, and how many since the last of them were not."""

    began_ms: int
    lines: int = 0
    left_out: int = 0

    def go_on(self, now_ms: int) -> None:
        """A new one begins where this is over, or where the clock was set back."""
        if self.is_over(now_ms):
            self.began_ms, self.lines = now_ms, 0

    def is_over(self, now_ms: int) -> bool:
        return not 0 <= now_ms - self.began_ms < WINDOW_MS


class AuditLog:
    """Writes events; see the module's text. One for a broker, used by one thread.

    `write` is given whether it was denied, and the line without its end. Times are milliseconds since 1970."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._windows: OrderedDict[_Key, _Window] = OrderedDict()
        self._all = _Window(0)

    def record(self, event: AuditEvent, now_ms: int) -> None:
        """Write the event, or count it."""
        self._all.go_on(now_ms)
        window = self._window((event.principal, event.method, event.decision), now_ms)
        if window.lines >= LINES_PER_KEY:
            window.left_out += 1
            return
        if self._all.lines >= MAX_LINES:
            self._all.left_out += 1
            return
        document = {
            "principal": event.principal,
            "host": event.host,
            "method": event.method,
            "operation": event.operation,
            "resource": event.resource,
            "decision": event.decision.value,
            "reason": event.reason,
        }
        left_out, window.left_out = window.left_out, 0
        window.lines += 1
        self._tell(event.decision, document, left_out, now_ms)

    def flush(self, now_ms: int) -> None:
        """Tell what was left out in windows that are over, and forget those. Called each WINDOW_MS."""
        for key in [key for key, window in self._windows.items() if window.is_over(now_ms)]:
            self._forget(key, now_ms)
        if self._all.is_over(now_ms):
            self._tell_of_all(now_ms)

    def close(self, now_ms: int) -> None:
        """Tell all that was left out: the broker stops."""
        for key in list(self._windows):
            self._forget(key, now_ms)
        self._tell_of_all(now_ms)

    def _forget(self, key: _Key, now_ms: int) -> None:
        principal, method, decision = key
        window = self._windows.pop(key)
        if window.left_out:
            told = {"principal": principal, "method": method, "decision": decision.value}
            self._tell(decision, told, window.left_out, now_ms)

    def _tell_of_all(self, now_ms: int) -> None:
        left_out, self._all.left_out = self._all.left_out, 0
        if left_out:
            told = {"principal": "*", "method": "*", "decision": "*", "reason": "too many lines of all together"}
            self._tell(Decision.DENIED, told, left_out, now_ms)

    def _window(self, key: _Key, now_ms: int) -> _Window:
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now_ms)
            if len(self._windows) > MAX_KEYS:
                _, forgotten = self._windows.popitem(last=False)
                self._all.left_out += forgotten.left_out
        else:
            self._windows.move_to_end(key)
            window.go_on(now_ms)
        return window

    def _tell(self, decision: Decision, texts: dict[str, str], left_out: int, now_ms: int) -> None:
        self._all.lines += 1
        document: dict[str, Any] = {"time_ms": now_ms, **{name: _cut(text) for name, text in texts.items()}}
        if left_out:
            document["left_out"] = left_out
        self._write(decision, audit_line(document))


def audit_line(document: dict[str, Any]) -> str:
    """The document on one line of printable ASCII."""
    return json.dumps(document, ensure_ascii=True).replace(
        "\x7f", "\\u007f"
    )  # the one control that JSON leaves as it is


def to_structlog() -> Write:
    """Writes to the broker's log, as logger `minilog.audit`: what was denied as a warning, what was allowed as an info.
    Called after logging was configured."""
    logger = structlog.get_logger(LOGGER).bind(logger=LOGGER)

    def write(decision: Decision, line: str) -> None:
        if decision is Decision.DENIED:
            logger.warning(line)
        else:
            logger.info(line)

    return write


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + _CUT
