"""`minilog consume`: prints the records of a topic, from where and as far as it is told."""

from __future__ import annotations

import base64
import enum
import signal
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Annotated, Any, Self

import typer

from minilog import Admin, Consumer, TopicPartition
from minilog.config import parse_config
from minilog.types import Record
from minilog_broker.cli.common import (
    DEFAULT_BOOTSTRAP_SERVERS,
    OFFSET_FORMS,
    AsJson,
    BootstrapServers,
    HeldOffsets,
    Settings,
    admin_client,
    check_offset,
    print_json,
    printable,
    read_ranges,
)
from minilog_broker.failure import CommandFailed
from minilog_broker.server.config import parse_assignments

_POLL_S = 0.5
_COMMIT_EVERY_S = 1.0


class Isolation(enum.StrEnum):
    """What of transactions is shown."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    partition: Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Default: all of them.")] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar=OFFSET_FORMS,
            help="Where to begin. Default: where the group got to; without a group, or new to it: start.",
        ),
    ] = None,
    group: Annotated[
        str, typer.Option("-g", "--group", metavar="GROUP", help="Commit how far it was printed for this group.")
    ] = "",
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", help="Stop at what is the end now.")] = False,
    isolation: Annotated[Isolation, typer.Option(help="What of transactions is shown.")] = Isolation.READ_COMMITTED,
    settings: Settings = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    as_json: AsJson = False,
) -> None:
    """Print records until told to stop; Ctrl-C is a clean end."""
    if offset is not None:
        check_offset(offset)
    config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "isolation.level": isolation.value}
    if group:
        config |= {"group.id": group, "auto.offset.reset": "earliest"}
    elif offset is None:
        offset = "start"
    config |= parse_assignments(settings or [], "-c")
    # A mistyped setting is told before anybody is asked.
    parse_config(config)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with admin_client(bootstrap_servers, isolation.value) as admin:
            assignment = _assignment(admin, topic, partition, offset, exit_at_end)
        with Consumer(config) as consumer, PrintedProgress(consumer, commits=bool(group)) as progress:
            consumer.assign(assignment)
            _print_records(consumer, count, exit_at_end, as_json, progress)
    except KeyboardInterrupt:
        return


def _assignment(
    admin: Admin, topic: str, partition: int | None, offset: str | None, exit_at_end: bool
) -> list[TopicPartition]:
    (described,) = admin.describe_topics([topic])
    numbers = sorted(each.partition for each in described.partitions)
    if partition is not None:
        if partition not in numbers:
            raise CommandFailed(f"{topic} has no partition {partition}: it has 0 to {numbers[-1]}")
        numbers = [partition]
    chosen = [TopicPartition(topic, number) for number in numbers]
    ranges = {each.partition: held for each, held in read_ranges(admin, chosen).items()}
    begins: Mapping[int, int | None]
    if offset is None:
        begins = dict.fromkeys(numbers)
    elif offset.startswith("@"):
        asked = admin.list_offsets(dict.fromkeys(chosen, int(offset[1:])))
        # Where no record is that young, the ones that will be come at the end.
        found = {each.partition: asked[each] for each in chosen}
        begins = {number: ranges[number].end if begin is None else begin for number, begin in found.items()}
    else:
        begins = begin_offsets(topic, offset, ranges)
    return [
        TopicPartition(topic, number, begins[number], ranges[number].end if exit_at_end else None) for number in numbers
    ]


def begin_offsets(topic: str, offset: str, ranges: Mapping[int, HeldOffsets]) -> dict[int, int]:
    """Where each partition begins for start, end, N or -N. CommandFailed names the partition that does not hold N."""
    begins = {}
    for partition, held in ranges.items():
        if offset == "start":
            begins[partition] = held.start
        elif offset == "end":
            begins[partition] = held.end
        elif offset.startswith("-"):
            begins[partition] = max(held.start, held.end + int(offset))
        elif held.start <= int(offset) <= held.end:
            begins[partition] = int(offset)
        else:
            raise CommandFailed(
                f"offset {offset} is outside {topic}-{partition}, whose log goes from {held.start} to {held.end}: "
                f"choose one inside, or name another partition with -p"
            )
    return begins


class PrintedProgress:
    """How far was printed; committed about once a second and at the end, where that is wanted."""

    def __init__(self, consumer: Consumer, *, commits: bool) -> None:
        self._consumer = consumer
        self._commits = commits
        self._printed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout.flush()  # what nobody could read was not consumed
        self._commit()

    def printed(self, record: Record) -> None:
        """One record of several that were polled."""
        self._printed[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def printed_all(self) -> None:
        """All that was polled: what lies behind the last record, such as markers, is done too."""
        positions = {each: self._consumer.position(each) for each in self._consumer.assignment()}
        self._printed = {each: offset for each, offset in positions.items() if offset is not None}
        if time.monotonic() - self._committed_s >= _COMMIT_EVERY_S:
            self._commit()

    def _commit(self) -> None:
        self._committed_s = time.monotonic()
        if self._commits and self._printed != self._committed:
            self._consumer.commit(self._printed)
            self._committed = dict(self._printed)


def _print_records(
    consumer: Consumer, count: int | None, exit_at_end: bool, as_json: bool, progress: PrintedProgress
) -> None:
    left = count
    while not (exit_at_end and consumer.finished()):
        for record in consumer.poll(timeout=_POLL_S):
            if as_json:
                print_json(record_document(record))
            else:
                sys.stdout.buffer.write(_line(record.value or b""))
            progress.printed(record)
            if left is not None:
                left -= 1
                if left == 0:
                    sys.stdout.flush()
                    return
        sys.stdout.flush()
        progress.printed_all()


def _line(value: bytes) -> bytes:
    """A value as it is, for whoever reads the pipe; what a terminal would obey is shown as an escape."""
    if not sys.stdout.isatty():
        return value + b"\n"
    return printable(value.decode(errors="backslashreplace")).encode(errors="backslashreplace") + b"\n"


def record_document(record: Any) -> dict[str, Any]:
    """A record in the form of docs/spec/commands.md § JSON: text where it is UTF-8, else base64 under another name."""
    headers = [{"key": name, **_text("value", value)} for name, value in record.headers or ()]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": headers,
    }


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}
