"""`minilog produce`: each line of stdin is a record; of a typed topic each line or row of files.

The reading side sends; a second thread waits for the answers in order and prints them (answers.py).
"""

from __future__ import annotations

import pathlib
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import typer

from minilog import Producer, RecordMetadata
from minilog.errors import InvalidRecord
from minilog_broker.cli.answers import Answers
from minilog_broker.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    Settings,
    admin_client,
    client_settings,
    parse_assignments,
)
from minilog_broker.cli.produce_rows import RowFormat, check_time_zone, produce_rows
from minilog_broker.failure import CommandFailed

ACKS = ("0", "1", "all")


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    key: Annotated[str | None, typer.Option("-k", "--key", help="The key of every record.")] = None,
    partition: Annotated[int | None, typer.Option("-p", "--partition", min=0, help="Default: by key.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option(metavar="C", help="What stands between key and value in each line.")
    ] = None,
    acks: Annotated[
        str | None, typer.Option(metavar="0|1|all", help="Whose word counts as written. Default: all.")
    ] = None,
    form: Annotated[
        RowFormat | None, typer.Option("--format", help="Of a typed topic: what its rows are given as.")
    ] = None,
    files: Annotated[
        list[pathlib.Path] | None, typer.Argument(metavar="FILE", help="With --format. Default: stdin.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option("--time-zone", metavar="ZONE", help="Of times in Parquet that have none, as UTC.")
    ] = None,
    settings: Settings = None,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Write one record per line of stdin; to a typed topic the rows of files, or of stdin, with --format."""
    if acks is not None and acks not in ACKS:
        raise typer.BadParameter(f"{acks!r} is not valid: expected 0, 1 or all", param_hint="--acks")
    if form is None and files:
        raise typer.BadParameter("files hold rows of a typed topic: say --format json, csv or parquet")
    check_time_zone(time_zone, form)
    if form is not None and (key is not None or key_delimiter is not None):
        raise typer.BadParameter(
            "the key of a row is its key columns: leave --key and --key-delimiter out with --format"
        )
    if key is not None and key_delimiter is not None:
        raise typer.BadParameter("say either --key or --key-delimiter", param_hint="--key")
    if key_delimiter == "":
        raise typer.BadParameter("'' is not valid: expected one or more characters", param_hint="--key-delimiter")
    config: dict[str, Any] = {"acks": "all", **client_settings(bootstrap_servers, command_config)}
    if acks is not None:
        config["acks"] = acks
    config |= parse_assignments(settings or [], "-c")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if form is not None:
        produce_rows(config, topic, form, files or [], partition, as_json=as_json, time_zone=time_zone)
        return
    records = split_lines(sys.stdin.buffer, key, key_delimiter)
    with Producer(config) as producer:
        answers = Answers(_documents if as_json else None)
        try:
            for record_key, value in records:
                answers.expect(producer.send(topic, value=value, key=record_key, partition=partition))
        except InvalidRecord as error:
            raise _of_rows(config, topic, error) from None
        finally:
            # Also on Ctrl-C and SIGTERM: what was read is written, and its fate is told.
            answers.finish()
    if not as_json:
        print(f"{answers.acknowledged} records acknowledged", file=sys.stderr)


def _documents(found: RecordMetadata) -> list[dict[str, Any]]:
    where = {"topic": found.topic, "partition": found.partition}
    return [{**where, "offset": found.offset, "timestamp": found.timestamp}]


def _of_rows(config: Mapping[str, Any], topic: str, error: InvalidRecord) -> Exception:
    with admin_client(config) as admin:
        (described,) = admin.describe_topics([topic])
    if described.schemas is None:
        return error
    return CommandFailed(f"topic {topic} has a schema: say what its rows are given as, --format json, csv or parquet")


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
