"""The audit log: who asked for what, from where, and what was decided; one JSON object a line.

- A line is ASCII: what came from outside can neither break it nor steer a reader's terminal. Long texts are cut.
- Nobody fills a disk with refusals, and nobody blinds the log by them. There are four pots, and what is in one takes no
  line of another:

      what was allowed and alters something      no limit: each event is written, with each of its names
      what else was allowed, such as logins      limits
      refusals of those who are known            limits
      refusals of strangers                      limits

  The limits of a pot in a window: LINES_PER_METHOD of one principal, host and method; LINES_PER_SOURCE of one
  principal, whatever its hosts, or of a stranger's host; MAX_LINES of all. What is left out is counted, and told in
  the next line of its method (`left_out`), or by `flush` and `close`.
- One event may have many names. A refusal tells the first ones and how many there are (`names`).
- What is kept for that is bounded: MAX_KEYS of the latest methods and sources, for each pot.

The time comes in. Lines go to a callable: `to_structlog()` is the broker's own log, where a level above `info` hides
what was allowed; who wants all of it gives a file's.
"""

from __future__ import annotations

import enum
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from minilog_broker.security.access import Operation
from minilog_broker.security.principal import ANONYMOUS

LOGGER = "minilog.audit"
WINDOW_MS = 10_000
LINES_PER_METHOD = 10  # an error that repeats is seen, and a loop of errors writes one line a second
LINES_PER_SOURCE = 100  # who tries every call once is seen with each of them
MAX_LINES = 500  # a window; some 300 KB with many names, 3 GB a day of each pot at the worst
MAX_KEYS = 4_096
MAX_TEXT_CHARACTERS = 300  # the longest name and its kind; of a longer text the beginning is kept
MAX_NAMES_CHARACTERS = 1_000  # of one line, beside its first name
ALTERING = frozenset((Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS))
"""What is told where it is allowed, too."""
_ALTERING = frozenset(each.value for each in ALTERING)
_CUT = "..."


class Decision(enum.Enum):
    """What was decided."""

    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One decision. `principal` and `host`: who, from where. `method`: the call. `operation` and `resource`
    (`topic:flights`): what for, empty where there is none. `reason`: why, in words. `others`: further resources of the
    same request, of which the same was decided."""

    principal: str
    host: str
    method: str
    operation: str
    resource: str
    decision: Decision
    reason: str
    others: tuple[str, ...] = ()


def refused_call(path: str, host: str, principal: str, reason: str, tried: str = "") -> AuditEvent:
    """A call that the broker does not answer at all. `tried`: the user that a stranger may have meant to be."""
    return AuditEvent(principal, host, path, "", tried, Decision.DENIED, reason)


Audit = Callable[[AuditEvent], None]
"""Takes an event into the audit log."""
Write = Callable[[Decision, str], None]
_Method = tuple[str, str, str]
_Key = TypeVar("_Key")


class _Kind(enum.Enum):
    """The pots, by what they are called in a line."""

    ALTERED = "what was altered"
    ALLOWED = "what was allowed"
    KNOWN = "refusals of users and brokers"
    STRANGERS = "refusals of strangers"


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

    def take_left_out(self) -> int:
        left_out, self.left_out = self.left_out, 0
        return left_out


class _Pot:
    """The limits of one kind of events."""

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._decision = Decision.ALLOWED if kind is _Kind.ALLOWED else Decision.DENIED
        self._methods: OrderedDict[_Method, _Window] = OrderedDict()
        self._sources: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        self._all = _Window(0)

    def take(self, event: AuditEvent, now_ms: int) -> int | None:
        """How many events of its method were left out before it; None where this one is, too."""
        method = self._window(self._methods, (event.principal, event.host, event.method), now_ms)
        of_host = event.host if self._kind is _Kind.STRANGERS else "*"
        source = self._window(self._sources, (event.principal, of_host), now_ms)
        self._all.go_on(now_ms)
        for window, most in ((method, LINES_PER_METHOD), (source, LINES_PER_SOURCE), (self._all, MAX_LINES)):
            if window.lines >= most:
                window.left_out += 1
                return None
        for window in (method, source, self._all):
            window.lines += 1
        return method.take_left_out()

    def _window(self, windows: OrderedDict[_Key, _Window], key: _Key, now_ms: int) -> _Window:
        window = windows.get(key)
        if window is None:
            window = windows[key] = _Window(now_ms)
            if len(windows) > MAX_KEYS:
                _, forgotten = windows.popitem(last=False)
                self._all.left_out += forgotten.left_out
        else:
            windows.move_to_end(key)
            window.go_on(now_ms)
        return window

    def left_out(self, now_ms: int, *, of_all_methods: bool = False) -> Iterator[dict[str, Any]]:
        """What was left out, as it is told: of methods where their window is over (else their next line tells it), of
        sources and of all in any case: they may never be silent for a window. What is over is forgotten."""
        for key in [key for key, window in self._methods.items() if of_all_methods or window.is_over(now_ms)]:
            yield from self._told(*key, self._methods.pop(key))
        for (principal, host), window in self._sources.items():
            yield from self._told(principal, host, "*", window)
        for source in [source for source, window in self._sources.items() if window.is_over(now_ms)]:
            del self._sources[source]
        for told in self._told("*", "*", "*", self._all):
            yield told | {"reason": f"too many lines of {self._kind.value}"}

    def _told(self, principal: str, host: str, method: str, window: _Window) -> Iterator[dict[str, Any]]:
        if left_out := window.take_left_out():
            told = {"principal": principal, "host": host, "method": method, "decision": self._decision.value}
            yield told | {"left_out": left_out}


class AuditLog:
    """Writes events; see the module's text. One for a broker, used by one thread.

    `write` is given whether it was denied, and the line without its end. Times are milliseconds since 1970."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pots = {kind: _Pot(kind) for kind in _Kind if kind is not _Kind.ALTERED}

    def record(self, event: AuditEvent, now_ms: int) -> None:
        """Write the event, or count it."""
        kind = _kind(event)
        if kind is _Kind.ALTERED:
            for part in _parts(event):
                self._tell(event.decision, part, now_ms)
        elif (left_out := self._pots[kind].take(event, now_ms)) is not None:
            document = next(_parts(event))
            self._tell(event.decision, document | {"left_out": left_out} if left_out else document, now_ms)

    def flush(self, now_ms: int) -> None:
        """Tell what was left out, and forget windows that are over. Called each WINDOW_MS."""
        self._tell_left_out(now_ms, of_all_methods=False)

    def close(self, now_ms: int) -> None:
        """Tell all that was left out: the broker stops."""
        self._tell_left_out(now_ms, of_all_methods=True)

    def _tell_left_out(self, now_ms: int, *, of_all_methods: bool) -> None:
        for pot in self._pots.values():
            for told in pot.left_out(now_ms, of_all_methods=of_all_methods):
                self._tell(Decision(told["decision"]), told, now_ms)

    def _tell(self, decision: Decision, document: dict[str, Any], now_ms: int) -> None:
        self._write(decision, audit_line({"time_ms": now_ms} | {name: _cut(told) for name, told in document.items()}))


def _kind(event: AuditEvent) -> _Kind:
    if event.decision is Decision.ALLOWED:
        return _Kind.ALTERED if event.operation in _ALTERING else _Kind.ALLOWED
    return _Kind.STRANGERS if event.principal == str(ANONYMOUS) else _Kind.KNOWN


def _parts(event: AuditEvent) -> Iterator[dict[str, Any]]:
    """One line where it has one name, else as many as have them all."""
    told = {
        "principal": event.principal,
        "host": event.host,
        "method": event.method,
        "operation": event.operation,
        "resource": event.resource,
        "decision": event.decision.value,
        "reason": event.reason,
    }
    if not event.others:
        yield told
        return
    for first, *others in _lines_of_names((event.resource, *event.others)):
        yield told | {"resource": first, "others": others, "names": 1 + len(event.others)}


def _lines_of_names(names: Iterable[str]) -> Iterator[list[str]]:
    """So many in each as a line may have."""
    line: list[str] = []
    characters = 0
    for name in map(_cut, names):
        if line and characters + len(name) > MAX_NAMES_CHARACTERS:
            yield line
            line, characters = [], 0
        if line:
            characters += len(name)
        line.append(name)
    yield line


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


def _cut(told: Any) -> Any:
    if isinstance(told, str) and len(told) > MAX_TEXT_CHARACTERS:
        return told[:MAX_TEXT_CHARACTERS] + _CUT
    return told
