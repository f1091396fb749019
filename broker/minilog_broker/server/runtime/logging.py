"""A broker's log on stderr. Times have milliseconds, since an election takes only some of them.

    stderr is a terminal    a line for people
    else                    one JSON document a line, for machines: timestamp (UTC), level, event, further fields, and
                            exception with a traceback

Writers choose names. In neither form can a name begin another line, or steer a terminal.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from minilog_broker.printable import printable

_LIBRARIES = ("minilog.tracing", "opentelemetry")


def configure_logging(level_name: str) -> None:
    """Log messages of at least this level: debug, info, warning or error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.StackInfoRenderer(),
            structlog.dev.set_exc_info,
            *(_for_people() if sys.stderr.isatty() else _for_machines()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level_name.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = [_HandOn(logging.WARNING)]


class _HandOn(logging.Handler):
    """Makes lines of the broker's log from a library's messages in Python's own logging."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        log = logger.error if record.levelno >= logging.ERROR else logger.warning
        log("traces", logger=record.name, error=record.getMessage())


def _for_people() -> tuple[Processor, ...]:
    stamp = structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False)
    return stamp, escaped, structlog.dev.ConsoleRenderer(colors=True)


def _for_machines() -> tuple[Processor, ...]:
    return (
        structlog.processors.format_exc_info,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(),
    )


def escaped(logger: WrappedLogger, method_name: str, event: EventDict) -> EventDict:
    """A processor: all text on one line, and safe for a terminal."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in event.items()}
