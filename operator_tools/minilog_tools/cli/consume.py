"""`minilog consume` prints the records of topics, or the rows of a typed topic. Its options say where it begins and
ends."""

from __future__ import annotations

import enum
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from minilog import Admin, Consumer, TopicPartition
from minilog.config import parse_config
from minilog.types import TopicDescription
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import (
    OFFSET_FORMS,
    Settings,
    admin_client,
    parse_assignments,
    read_offset,
    read_ranges,
)
from minilog_tools.cli.consume_latest import LatestTable, View, check_view, print_latest
from minilog_tools.cli.consume_queue import check_queue, print_queue
from minilog_tools.cli.consume_rows import PrintingOptions, RowsShown, ShownAs, print_rows
from minilog_tools.cli.held_offsets import begin_offsets
from minilog_tools.cli.printed_progress import PrintedProgress
from minilog_tools.cli.record_text import RecordText, chosen_text, value_line
from minilog_tools.cli.verb import Cluster, command

_POLL_S = 0.5


class Isolation(enum.StrEnum):
    """Which records of transactions the command prints."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


GroupToCommitFor = Annotated[
    str,
    typer.Option(
        "-g",
        "--group",
        metavar="GROUP",
        help="Commit the printed offsets for this group. With -c group.protocol=consumer: join it as a member.",
    ),
]


QueueToWorkFor = Annotated[
    str,
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help="Print as a worker of this queue, and accept what is printed. Each record goes to one worker.",
    ),
]


RecordFormat = Annotated[
    str | None,
    typer.Option(
        "-f",
        metavar="FORMAT",
        help=r"The output for a record: %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, "
        r"%h headers, %K and %S lengths. \n ends a line.",
    ),
]


@command
def consume(
    cluster: Cluster,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to read.")],
    partition: Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Default: all of them.")] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar=OFFSET_FORMS,
            help="Where to begin. Default: the group's offset, or start where the group has none.",
        ),
    ] = None,
    group: GroupToCommitFor = "",
    queue: QueueToWorkFor = "",
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after this many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", help="Stop at the present end.")] = False,
    record_format: RecordFormat = None,
    *,
    rows: PrintingOptions,
    view: Annotated[
        View | None, typer.Option("--view", help="latest: print the newest row of each key up to now, and end.")
    ] = None,
    isolation: Annotated[
        Isolation | None, typer.Option(help="Which records of transactions to print. Default: read_committed.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Print records until a signal. Ctrl-C is a clean end."""
    if offset is not None:
        offset = read_offset(offset)
    if view is not None:
        check_view(topics, {"-o": offset is not None, "-g": bool(group), "--deletes": rows.deletes})
    if queue:
        placed = {"-p": partition is not None, "-o": offset, "-g": group, "--exit-at-end": exit_at_end, "--view": view}
        check_queue({**placed, **dict.fromkeys(rows.given(), True), "--isolation": isolation})
    group, config = _config(cluster.settings, group, queue, isolation, settings)
    joins = _joins(config, is_placed=offset is not None or partition is not None or exit_at_end)
    offset = "earliest" if not group and offset is None else offset
    of_rows = rows.given()
    _check_shown(topics, partition, record_format, of_rows, as_json=cluster.as_json)
    of_records = chosen_text(record_format, as_json=cluster.as_json)
    shown = rows.shown(count, ends=exit_at_end or view is not None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if queue:
            print_queue(config, topics, count, of_records or value_line)
        elif view is not None:
            print_latest(LatestTable(topics[0], partition, shown, of_rows, of_records), config, value_line)
        else:
            _print_topics(_Begun(topics, partition, offset, joins, bool(group)), config, shown, of_rows, of_records)
    except KeyboardInterrupt:
        return


@dataclass(frozen=True, slots=True)
class _Begun:
    """Where the command begins. `offset` is None for that of the group. A command that `joins` is given its
    partitions."""

    topics: list[str]
    partition: int | None
    offset: str | None
    joins: bool
    commits: bool


def _print_topics(
    begun: _Begun, config: dict[str, Any], shown: RowsShown, of_rows: list[str], of_records: RecordText | None
) -> None:
    ends = shown.exit_at_end
    with admin_client(config) as admin:
        described = admin.describe_topics(begun.topics)
        assignment = {} if begun.joins else _assignments(admin, described, begun.partition, begun.offset, ends)
    of_topics = _check_schemas(described, of_rows)
    with Consumer(config) as consumer, PrintedProgress(consumer, commits=begun.commits) as progress:
        _begin(consumer, begun.topics, None if begun.joins else assignment, progress)
        if of_topics and of_records is None:
            print_rows(consumer, _with_deletions(shown, described[0]), progress)
        else:
            _print_records(consumer, shown.count, ends, of_records or value_line, progress)


def _joins(config: dict[str, Any], *, is_placed: bool) -> bool:
    """Whether the command reads as a member of its group. Raises BadParameter for options that say what to read."""
    joins = config.get("group.protocol") == "consumer"
    if joins and is_placed:
        raise typer.BadParameter(
            "a member of a group (group.protocol=consumer) reads its share without end: leave -o, -p and --exit-at-end "
            "out"
        )
    return joins


def _begin(consumer: Consumer, topics: list[str], assignment: Any, progress: PrintedProgress) -> None:
    """Read the assignment. Without one, join the group, which assigns partitions to its members."""
    if assignment is None:
        consumer.subscribe(topics, on_revoked=progress.give_back, on_lost=progress.forget)
    else:
        consumer.assign(assignment)


def _check_shown(
    topics: list[str], partition: int | None, record_format: str | None, of_rows: list[str], *, as_json: bool
) -> None:
    """Raises BadParameter where options exclude each other."""
    whole = [name for name, given in (("--json", as_json), ("-f", record_format is not None)) if given]
    if len(whole) > 1:
        raise typer.BadParameter("give either --json or -f", param_hint="-f")
    if whole and of_rows:
        raise typer.BadParameter(
            f"{whole[0]} prints whole records, and {of_rows[0]} is for rows: leave one of them out"
        )
    if len(set(topics)) < len(topics):
        raise typer.BadParameter("a topic is named twice", param_hint="TOPIC")
    if len(topics) > 1 and partition is not None:
        raise typer.BadParameter("a partition belongs to one topic: name that topic alone", param_hint="--partition")


def _check_schemas(described: list[TopicDescription], of_rows: list[str]) -> bool:
    """Whether the command prints rows. Raises CommandFailed where the topics have no common form."""
    plain = [topic.name for topic in described if topic.schemas is None]
    if plain and of_rows:
        raise CommandFailed(f"topic {plain[0]} has no schema, and {of_rows[0]} is for rows: leave it out")
    typed = [topic.name for topic in described if topic.schemas is not None]
    if typed and of_rows and len(described) > 1:
        raise CommandFailed(f"{of_rows[0]} is for the rows of one topic: name that topic alone")
    return bool(typed) and len(described) == 1


def _with_deletions(shown: RowsShown, topic: TopicDescription) -> RowsShown:
    """The rows with the deletions, if the user asks for them, or for all rows as JSON."""
    schema = topic.schema
    if schema is None:
        return shown
    is_whole = shown.form is ShownAs.JSON and shown.columns is None and shown.where is None
    deletes = shown.deletes or (is_whole and schema.marks_deletions)
    return replace(shown, deletes=deletes, key_columns=schema.key_columns)


def _config(
    cluster: dict[str, str], group: str, queue: str, isolation: Isolation | None, settings: list[str] | None
) -> tuple[str, dict[str, Any]]:
    """The group, from the option or the file, and the settings. A -c counts before an option, and an option before the
    file. Raises InvalidConfig, before any call to a broker."""
    group = group or cluster.get("group.id", "")
    config: dict[str, Any] = {**cluster}
    if isolation is not None:
        config["isolation.level"] = isolation.value
    if queue:
        config["queue"] = queue
    if group:
        config |= {"group.id": group, "auto.offset.reset": "earliest"}
    config |= parse_assignments(settings)
    parse_config(config)
    return group, config


def _assignments(
    admin: Admin, described: list[TopicDescription], partition: int | None, offset: str | None, exit_at_end: bool
) -> list[TopicPartition]:
    parts = [_assignment(admin, topic, partition, offset, exit_at_end) for topic in described]
    return [assigned for part in parts for assigned in part]


def _assignment(
    admin: Admin, described: TopicDescription, partition: int | None, offset: str | None, exit_at_end: bool
) -> list[TopicPartition]:
    topic = described.name
    numbers = sorted(description.partition for description in described.partitions)
    if partition is not None:
        if partition not in numbers:
            raise CommandFailed(f"{topic} has no partition {partition}: it has 0 to {numbers[-1]}")
        numbers = [partition]
    chosen = [TopicPartition(topic, number) for number in numbers]
    ranges = {topic_partition.partition: held for topic_partition, held in read_ranges(admin, chosen).items()}
    begins: Mapping[int, int | None]
    if offset is None:
        begins = dict.fromkeys(numbers)
    elif offset.startswith("@"):
        answer = admin.list_offsets(dict.fromkeys(chosen, int(offset[1:])))
        # Where no record is that young, the first such record will come at the end.
        first_offsets = {topic_partition.partition: answer[topic_partition] for topic_partition in chosen}
        begins = {number: ranges[number].end if begin is None else begin for number, begin in first_offsets.items()}
    else:
        begins = begin_offsets(topic, offset, ranges)
    return [
        TopicPartition(topic, number, begins[number], ranges[number].end if exit_at_end else None) for number in numbers
    ]


def _print_records(
    consumer: Consumer, count: int | None, exit_at_end: bool, printed: RecordText, progress: PrintedProgress
) -> None:
    left = count
    while not (exit_at_end and consumer.finished()):
        for record in consumer.poll(timeout=_POLL_S):
            sys.stdout.buffer.write(printed(record))
            progress.printed(record)
            if left is not None:
                left -= 1
                if left == 0:
                    sys.stdout.flush()
                    return
        sys.stdout.flush()
        progress.printed_all()
