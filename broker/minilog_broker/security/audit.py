"""The audit log: the principal, host, call and resource of each decision. Each line is one JSON object.

- A line is ASCII. So no text from outside can break the line or steer a reader's terminal. Long texts are cut.
- Refusals can neither fill the disk nor crowd out other events. There are four pots, and events of one pot take no
  lines of another:

      allowed calls that alter something      no limit: each event is written, with each of its names
      other allowed calls, such as logins     limits
      refusals of users and brokers           limits
      refusals of strangers                   limits

  The limits of a pot in a window are: LINES_PER_METHOD of one principal, host and method; LINES_PER_SOURCE of one
  principal on all hosts, or of a stranger's host; MAX_LINES of all. The log counts the events that it leaves out. The
  next line of their method has the number (`left_out`), or a line that `flush` or `close` writes.
- One event may have many names. The line of a refusal has the first ones, and their number (`names`).
- The state is bounded: MAX_KEYS of the latest methods and sources, for each pot.

The time comes in. Lines go to a callable. `to_structlog()` writes to the broker's own log, where a level above `info`
hides the allowed calls. For all events, give a callable that writes to a file.
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
LINES_PER_METHOD = 10  # enough to show an error that repeats; a loop of errors writes one line a second
LINES_PER_SOURCE = 100  # enough for a source that tries every call once
MAX_LINES = 500  # in a window: some 300 KB with many names, at the worst 3 GB a day for each pot
MAX_KEYS = 4_096
MAX_TEXT_CHARACTERS = 300  # the longest name and its kind; a longer text is cut
MAX_NAMES_CHARACTERS = 1_000  # of one line, beside its first name
ALTERING = frozenset((Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS))
"""The operations whose allowed calls are written, too."""
_ALTERING = frozenset(operation.value for operation in ALTERING)
_CUT = "..."


class Decision(enum.Enum):
    """The outcome of a check."""

    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One decision. `principal` and `host`: the origin of the call. `method`: the call. `operation` and `resource`
    (`topic:flights`): empty where there is none. `reason`: in words. `others`: further resources of the same request
    with the same decision."""

    principal: str
    host: str
    method: str
    operation: str
    resource: str
    decision: Decision
    reason: str
    others: tuple[str, ...] = ()


def refused_call(path: str, host: str, principal: str, reason: str, tried: str = "") -> AuditEvent:
    """The event of a call that the broker does not answer at all. `tried`: the user name that a stranger gave."""
    return AuditEvent(principal, host, path, "", tried, Decision.DENIED, reason)


Audit = Callable[[AuditEvent], None]
"""Takes an event into the audit log."""
Write = Callable[[Decision, str], None]
_Method = tuple[str, str, str]
_Key = TypeVar("_Key")


class _Kind(enum.Enum):
    """The pots, with their names in a line."""

    ALTERED = "alterations"
    ALLOWED = "allowed calls"
    KNOWN = "refusals of users and brokers"
    STRANGERS = "refusals of strangers"


@dataclass(slots=True)
class _Window:
    """The number of lines since the begin of the window, and the number of events left out after the last line."""

    began_ms: int
    lines: int = 0
    left_out: int = 0

    def go_on(self, now_ms: int) -> None:
        """Begin a new window where this one is over, or where the clock was set back."""
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
        """Count the event. The answer is the number of events of its method that were left out before it, None where
        this event is left out, too."""
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
        """Documents with the numbers of events that were left out.

        A method has one where its window is over, else the method's next line has the number. Sources and the whole pot
        have one in any case, since they may never be silent for a window. Windows that are over are dropped."""
        for key in [key for key, window in self._methods.items() if of_all_methods or window.is_over(now_ms)]:
            yield from self._documents_of(*key, self._methods.pop(key))
        for (principal, host), window in self._sources.items():
            yield from self._documents_of(principal, host, "*", window)
        for source in [source for source, window in self._sources.items() if window.is_over(now_ms)]:
            del self._sources[source]
        for document in self._documents_of("*", "*", "*", self._all):
            yield document | {"reason": f"too many lines of {self._kind.value}"}

    def _documents_of(self, principal: str, host: str, method: str, window: _Window) -> Iterator[dict[str, Any]]:
        if left_out := window.take_left_out():
            document = {"principal": principal, "host": host, "method": method, "decision": self._decision.value}
            yield document | {"left_out": left_out}


class AuditLog:
    """Writes events, within the limits of their pots. A broker has one, and one thread uses it.

    `write` gets the decision, and the line without its end. Times are milliseconds since 1970."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pots = {kind: _Pot(kind) for kind in _Kind if kind is not _Kind.ALTERED}

    def record(self, event: AuditEvent, now_ms: int) -> None:
        """Write the event, or count it."""
        kind = _kind(event)
        if kind is _Kind.ALTERED:
            for part in _parts(event):
                self._write_line(event.decision, part, now_ms)
        elif (left_out := self._pots[kind].take(event, now_ms)) is not None:
            document = next(_parts(event))
            self._write_line(event.decision, document | {"left_out": left_out} if left_out else document, now_ms)

    def flush(self, now_ms: int) -> None:
        """Write the numbers of events that were left out, and drop windows that are over. Called each WINDOW_MS."""
        self._write_left_out(now_ms, of_all_methods=False)

    def close(self, now_ms: int) -> None:
        """Write all numbers of events that were left out, when the broker stops."""
        self._write_left_out(now_ms, of_all_methods=True)

    def _write_left_out(self, now_ms: int, *, of_all_methods: bool) -> None:
        for pot in self._pots.values():
            for document in pot.left_out(now_ms, of_all_methods=of_all_methods):
                self._write_line(Decision(document["decision"]), document, now_ms)

    def _write_line(self, decision: Decision, document: dict[str, Any], now_ms: int) -> None:
        self._write(decision, audit_line({"time_ms": now_ms} | {name: _cut(value) for name, value in document.items()}))


def _kind(event: AuditEvent) -> _Kind:
    if event.decision is Decision.ALLOWED:
        return _Kind.ALTERED if event.operation in _ALTERING else _Kind.ALLOWED
    return _Kind.STRANGERS if event.principal == str(ANONYMOUS) else _Kind.KNOWN


def _parts(event: AuditEvent) -> Iterator[dict[str, Any]]:
    """The documents of an event: one where it has one name, else as many as its names need."""
    document = {
        "principal": event.principal,
        "host": event.host,
        "method": event.method,
        "operation": event.operation,
        "resource": event.resource,
        "decision": event.decision.value,
        "reason": event.reason,
    }
    if not event.others:
        yield document
        return
    for first, *others in _lines_of_names((event.resource, *event.others)):
        yield document | {"resource": first, "others": others, "names": 1 + len(event.others)}


def _lines_of_names(names: Iterable[str]) -> Iterator[list[str]]:
    """The names in groups, each as large as one line may have."""
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
    # DEL is the only control character that JSON does not escape.
    return json.dumps(document, ensure_ascii=True).replace("\x7f", "\\u007f")


def to_structlog() -> Write:
    """A callable that writes to the broker's log, as logger `minilog.audit`: refusals as warnings, allowed calls as
    infos. Call it after the configuration of logging."""
    logger = structlog.get_logger(LOGGER).bind(logger=LOGGER)

    def write(decision: Decision, line: str) -> None:
        if decision is Decision.DENIED:
            logger.warning(line)
        else:
            logger.info(line)

    return write


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARACTERS:
        return value[:MAX_TEXT_CHARACTERS] + _CUT
    return value
