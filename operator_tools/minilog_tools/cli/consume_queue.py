"""`minilog consume --queue`: a worker of a queue, which accepts what it has printed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import typer

from minilog import QueueConsumer
from minilog_tools.cli.record_text import RecordText

_POLL_S = 0.5


def check_queue(excluded: Mapping[str, object]) -> None:
    """Raises BadParameter for an option that says where to read, or which rows: a queue has no positions, and gives
    whole records."""
    given = [name for name, value in excluded.items() if value]
    if given:
        raise typer.BadParameter(
            f"a queue gives whole records, in no order: leave {given[0]} out", param_hint="--queue"
        )


def print_queue(config: dict[str, Any], topics: list[str], count: int | None, printed: RecordText) -> None:
    """Print messages until a signal, or `count` of them. Each is accepted when it is printed and flushed."""
    if count is not None:  # so that it leases little more than it prints
        config = {"max.poll.records": str(min(count, 500)), **config}
    left = count
    with QueueConsumer(config) as consumer:
        consumer.subscribe(topics)
        while left is None or left > 0:
            messages = consumer.poll(_POLL_S)[:left]
            for message in messages:
                sys.stdout.buffer.write(printed(message))
            sys.stdout.flush()
            for message in messages:
                message.accept()
            left = None if left is None else left - len(messages)
