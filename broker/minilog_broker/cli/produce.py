"""`minilog produce`: each line of stdin is a record.

The reading side sends; a second thread waits for the answers in order and prints them. Between the two stands a bounded
queue, so that a fast stdin waits for the brokers.
"""

from __future__ import annotations

import concurrent.futures
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from minilog import Producer
from minilog.errors import MinilogError
from minilog_broker.cli.common import (
    DEFAULT_BOOTSTRAP_SERVERS,
    AsJson,
    BootstrapServers,
    Settings,
    print_json,
)
from minilog_broker.failure import CommandFailed
from minilog_broker.server.config import parse_assignments

ACKS = ("0", "1", "all")
# Answers outstanding at a time: some linger times' worth of lines, and little memory.
_OUTSTANDING = 20_000


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None,
    partition: Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Default: by key.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option(metavar="C", help="What stands between key and value in each line.")
    ] = None,
    acks: Annotated[str, typer.Option(metavar="0|1|all", help="Whose word counts as written.")] = "all",
    settings: Settings = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    as_json: AsJson = False,
) -> None:
    """Write one record per line of stdin."""
    if acks not in ACKS:
        raise typer.BadParameter(f"{acks!r} is not valid: expected 0, 1 or all", param_hint="--acks")
    if key is not None and key_delimiter is not None:
        raise typer.BadParameter("say either --key or --key-delimiter", param_hint="--key")
    if key_delimiter == "":
        raise typer.BadParameter("'' is not valid: expected one or more characters", param_hint="--key-delimiter")
    config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "acks": acks}
    config |= parse_assignments(settings or [], "-c")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    records = split_lines(sys.stdin.buffer, key, key_delimiter)
    with Producer(config) as producer:
        answers = _Answers(as_json)
        try:
            for record_key, value in records:
                answers.expect(producer.send(topic, value=value, key=record_key, partition=partition))
        finally:
            # Also on Ctrl-C and SIGTERM: what was read is written, and its fate is told.
            answers.finish()
    if not as_json:
        print(f"{answers.acknowledged} records acknowledged", file=sys.stderr)


def split_lines(
    lines: Iterable[bytes], key: str | None, key_delimiter: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each line. CommandFailed names the line that has no delimiter."""
    fixed_key = None if key is None else key.encode()
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix(b"\n")
        if key_delimiter is None:
            yield fixed_key, content
            continue
        before, separator, after = content.partition(key_delimiter.encode())
        if not separator:
            raise CommandFailed(
                f"line {number} has no key delimiter {key_delimiter!r}: the lines before it are written, "
                f"write it and what follows again"
            )
        yield before, after


class _Answers:
    """Waits for the answers in order on a thread of its own, and prints them."""

    def __init__(self, as_json: bool) -> None:
        self.acknowledged = 0
        self._as_json = as_json
        self._failure: BaseException | None = None
        self._waiting: queue.Queue[concurrent.futures.Future[Any] | None] = queue.Queue(_OUTSTANDING)
        self._thread = threading.Thread(target=self._print_all, name="produce-answers", daemon=True)
        self._thread.start()

    def expect(self, answer: concurrent.futures.Future[Any]) -> None:
        """One more answer to wait for; the failure of an earlier one is raised here."""
        if self._failure is not None:
            self._raise()
        self._waiting.put(answer)

    def finish(self) -> None:
        """Until all answers are in; the first failure is raised."""
        self._waiting.put(None)
        self._thread.join()
        if self._failure is not None:
            self._raise()

    def _raise(self) -> None:
        if isinstance(self._failure, MinilogError):
            raise CommandFailed(f"{self._failure} ({self.acknowledged} records were acknowledged)") from None
        if self._failure is not None:
            raise self._failure

    def _print_all(self) -> None:
        while (answer := self._waiting.get()) is not None:
            if self._failure is None:
                self._print_one(answer)

    def _print_one(self, answer: concurrent.futures.Future[Any]) -> None:
        try:
            found = answer.result()
            self.acknowledged += 1
            if self._as_json:
                where = {"topic": found.topic, "partition": found.partition}
                print_json({**where, "offset": found.offset, "timestamp": found.timestamp})
                if self._waiting.empty():
                    sys.stdout.flush()
        except BaseException as error:
            self._failure = error
