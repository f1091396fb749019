"""What a broker says of itself: lines on stderr, with milliseconds, for an election is a matter of some of them."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level_name: str) -> None:
    """Say what is at least as important as `level_name`: debug, info, warning or error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.StackInfoRenderer(),
            structlog.dev.set_exc_info,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level_name.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
