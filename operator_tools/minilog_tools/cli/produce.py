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
from minilog_tools.cli.given_records import GivenRecord, RecordOptions
from minilog_tools.cli.produce_rows import RowFormat, check_time_zone, produce_rows
from minilog_tools.cli.verb import Cluster, command

ACKS = ("0", "1", "all")


@command
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    options: RecordOptions,
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
    sent_with_each = options.sent_with_each()
    if form is not None:
        options.check_of_rows()
    key = options.fixed_key()
    config: dict[str, Any] = {"acks": "all", **cluster.settings}
    if acks is not None:
        config["acks"] = acks
    config |= parse_assignments(settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if form is not None:
        partition = options.partition
        produce_rows(config, topic, form, files or [], partition, as_json=cluster.as_json, time_zone=time_zone)
        return
    _produce_records(config, topic, options.records(key), sent_with_each, as_json=cluster.as_json)


def _produce_records(
    config: dict[str, Any],
    topic: str,
    records: Iterable[GivenRecord],
    sent_with_each: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    with Producer(config) as producer:
        answers = Answers(_documents if as_json else None)
        try:
            for record_key, value in records:
                answers.expect(producer.send(topic, value=value, key=record_key, **sent_with_each))
        except InvalidRecord as error:
            raise _explained(config, topic, error) from None
        finally:
            # Also on Ctrl-C and SIGTERM: the records that were read are written, and their answers are printed.
            answers.finish()
    if not as_json:
        print(f"{answers.acknowledged} records acknowledged", file=sys.stderr)


def _documents(metadata: RecordMetadata) -> list[dict[str, Any]]:
    return [attributes(metadata, "topic", "partition", "offset", "timestamp")]


def _explained(config: Mapping[str, Any], topic: str, error: InvalidRecord) -> Exception:
    """The error to raise. For a typed topic it says that the command needs --format."""
    with admin_client(config) as admin:
        (described,) = admin.describe_topics([topic])
    if described.schemas is None:
        return error
    return CommandFailed(f"topic {topic} has a schema: give the format of the rows, --format json, csv or parquet")
