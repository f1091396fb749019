"""`minilog produce` writes each line of stdin as a record. For a typed topic it writes each row of files, or of stdin.

The main thread reads and sends. A second thread waits for the answers in order, and prints them (answers.py).
"""

from __future__ import annotations

import pathlib
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from minilog import Producer, RecordMetadata
from minilog.errors import InvalidRecord
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.answers import Answers
from minilog_tools.cli.common import Settings, admin_client, attributes, parse_assignments
from minilog_tools.cli.given_records import GivenRecord, OfAll, key_of, of_files, parse_headers, split_lines
from minilog_tools.cli.produce_rows import RowFormat, check_time_zone, produce_rows
from minilog_tools.cli.verb import Cluster, command

ACKS = ("0", "1", "all")


@command
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None,
    key_file: Annotated[
        pathlib.Path | None, typer.Option(metavar="FILE", help="A file whose bytes are the key of every record.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", metavar="KEY=VALUE", help="A header of every record. Repeatable."),
    ] = None,
    timestamp: Annotated[
        int | None, typer.Option(min=0, metavar="MS", help="The time of every record, since 1970. Default: now.")
    ] = None,
    value_files: Annotated[
        list[pathlib.Path] | None,
        typer.Option("--file", metavar="FILE", help="A file whose bytes are one record's value. Repeatable. No stdin."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="The partition. Default: by key.")
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option(metavar="C", help="The text between key and value in each line.")
    ] = None,
    acks: Annotated[
        str | None, typer.Option(metavar="0|1|all", help="The replicas that must have a record. Default: all in sync.")
    ] = None,
    form: Annotated[RowFormat | None, typer.Option("--format", help="The form of the rows for a typed topic.")] = None,
    files: Annotated[
        list[pathlib.Path] | None, typer.Argument(metavar="FILE", help="With --format. Default: stdin.")
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option("--time-zone", metavar="ZONE", help="The zone of times in Parquet without one, as UTC."),
    ] = None,
    settings: Settings = None,
) -> None:
    """Write one record per line of stdin. With --format: the rows of files, or of stdin, to a typed topic."""
    if acks is not None and acks not in ACKS:
        raise typer.BadParameter(f"{acks!r} is not valid: expected 0, 1 or all", param_hint="--acks")
    if form is None and files:
        raise typer.BadParameter("files hold rows of a typed topic: give --format json, csv or parquet")
    check_time_zone(time_zone, form)
    of_all = OfAll(timestamp, parse_headers(headers or []), _given(key_delimiter, value_files, headers, timestamp))
    if form is not None:
        _check_of_rows(of_all, key, key_file)
    if value_files and key_delimiter is not None:
        raise typer.BadParameter(
            "the delimiter splits lines of stdin: leave it out with --file", param_hint="--key-delimiter"
        )
    fixed_key = key_of(key, key_file, key_delimiter)
    config: dict[str, Any] = {"acks": "all", **cluster.settings}
    if acks is not None:
        config["acks"] = acks
    config |= parse_assignments(settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if form is not None:
        produce_rows(config, topic, form, files or [], partition, as_json=cluster.as_json, time_zone=time_zone)
        return
    records = (
        of_files(value_files, fixed_key) if value_files else split_lines(sys.stdin.buffer, fixed_key, key_delimiter)
    )
    _produce_records(config, topic, records, partition, of_all, as_json=cluster.as_json)


def _produce_records(
    config: dict[str, Any],
    topic: str,
    records: Iterable[GivenRecord],
    partition: int | None,
    of_all: OfAll,
    *,
    as_json: bool,
) -> None:
    with Producer(config) as producer:
        answers = Answers(_documents if as_json else None)
        try:
            for record_key, value in records:
                answers.expect(
                    producer.send(topic, value=value, key=record_key, partition=partition, **of_all.arguments)
                )
        except InvalidRecord as error:
            raise _explained(config, topic, error) from None
        finally:
            # Also on Ctrl-C and SIGTERM: the records that were read are written, and their answers are printed.
            answers.finish()
    if not as_json:
        print(f"{answers.acknowledged} records acknowledged", file=sys.stderr)


def _check_of_rows(of_all: OfAll, key: str | None, key_file: pathlib.Path | None) -> None:
    """Raises BadParameter where the command writes rows, and an option is for records alone."""
    given = ("--key",) * (key is not None) + ("--key-file",) * (key_file is not None) + of_all.options
    if given:
        raise typer.BadParameter(f"rows have key and time in columns, and no headers: leave {given[0]} out")


def _given(key_delimiter: str | None, *others: object) -> tuple[str, ...]:
    """The options for records alone that the user gave."""
    names = ("--key-delimiter", "--file", "--header", "--timestamp")
    return tuple(
        name for name, value in zip(names, (key_delimiter, *others), strict=True) if value is not None and value != []
    )


def _documents(metadata: RecordMetadata) -> list[dict[str, Any]]:
    return [attributes(metadata, "topic", "partition", "offset", "timestamp")]


def _explained(config: Mapping[str, Any], topic: str, error: InvalidRecord) -> Exception:
    """The error to raise. For a typed topic it says that the command needs --format."""
    with admin_client(config) as admin:
        (described,) = admin.describe_topics([topic])
    if described.schemas is None:
        return error
    return CommandFailed(f"topic {topic} has a schema: give the format of the rows, --format json, csv or parquet")
