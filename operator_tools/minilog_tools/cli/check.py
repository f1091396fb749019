"""`minilog check` looks for damage in the data directory of a stopped broker. It asks no broker.

The exit code is 0 for a sound directory, also if the next start has something to repair. It is 1 for a damaged one. It
is 2 if the command could not check all of it. It is 3 if acknowledged records may be missing, and only other copies can
tell.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from minilog.errors import MinilogError
from minilog.types import TopicPartition
from minilog_broker.controller.snapshot import check_snapshot
from minilog_broker.failure import CommandFailed
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME
from minilog_broker.server.disk.vote_file import FILE_NAME as VOTE_FILE
from minilog_broker.server.system_runtime import SystemBrokerRuntime
from minilog_broker.storage.check_findings import CheckVerdict, Report
from minilog_broker.storage.data_directory import look_into
from minilog_broker.storage.directory_check import DirectoryCheck, DirectoryFacts, segment_bytes
from minilog_broker.storage.files import FileSystem, OsFileSystem, ReadingFileSystem
from minilog_tools.cli.common import attributes, say
from minilog_tools.cli.verb import Output, command

SOUND, DAMAGED, NOT_CHECKED, NOT_KNOWN = 0, 1, 2, 3
_CODES = {
    CheckVerdict.DAMAGED: DAMAGED,
    CheckVerdict.NOT_CHECKED: NOT_CHECKED,
    CheckVerdict.DOUBTFUL: NOT_KNOWN,
    CheckVerdict.TORN_TAIL: NOT_KNOWN,
}


def upper_layers() -> DirectoryFacts:
    """The names and the checks that a check of the directory needs from the layers above storage."""
    return DirectoryFacts(
        metadata_log=f"{CLUSTER_METADATA_TOPIC_NAME}-0",
        vote_file=VOTE_FILE,
        check_vote=lambda content: msgspec.json.decode(content, type=VoteState),
        check_image=check_snapshot,
    )


@command
def check(
    directory: Annotated[pathlib.Path, typer.Argument(metavar="DIR", help="The --data-dir of a broker.")],
    repair_indexes: Annotated[
        bool,
        typer.Option(
            "--repair-indexes", help="Write missing or wrong index files again. The command changes nothing else."
        ),
    ] = False,
    printed: Annotated[
        tuple[str, int] | None,
        typer.Option("--print", metavar="TOPIC PARTITION", help="Check nothing: print the records of this partition."),
    ] = None,
) -> Iterator[Output]:
    """Read every file in the data directory of a stopped broker, and report damage."""
    files: FileSystem = OsFileSystem() if repair_indexes else ReadingFileSystem()
    path = str(directory.absolute())
    try:
        if printed is not None:
            raise typer.Exit(SOUND if _print(files, path, TopicPartition(*printed)) else DAMAGED)
        report = _check(files, path, repair_indexes=repair_indexes)
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        say("minilog: interrupted: not all was checked", error=True)
        raise typer.Exit(NOT_CHECKED) from None
    except (MinilogError, CommandFailed, OSError) as error:
        name = getattr(error, "filename", None)
        say(
            f"minilog: {name}: {error.strerror}" if name and isinstance(error, OSError) else f"minilog: {error}",
            error=True,
        )
        raise typer.Exit(NOT_CHECKED) from None
    except Exception as error:  # exit code 1 would say that the directory is damaged
        bug = f"unexpected {type(error).__name__}: {error}: this is a bug in minilog, please report it"
        say(f"minilog: {bug}. The check has no result for the directory", error=True)
        raise typer.Exit(NOT_CHECKED) from None
    yield Output(document(report), *_lines(report))
    raise typer.Exit(SOUND if report.worst is None else _CODES.get(report.worst, SOUND))


def _print(files: FileSystem, path: str, at: TopicPartition) -> bool:
    from minilog_tools.cli.check_print import print_records  # with it comes Arrow

    stopped = look_into(files, path)
    try:
        return print_records(files, stopped, upper_layers().metadata_log, at)
    finally:
        stopped.close()


def _check(files: FileSystem, path: str, *, repair_indexes: bool) -> Report:
    stopped = look_into(files, path)
    try:
        with _progress(segment_bytes(files, stopped)) as read:
            repair = files if repair_indexes else None
            boot_id = SystemBrokerRuntime().boot_id()
            return DirectoryCheck(files, stopped, upper_layers(), boot_id=boot_id, repair=repair, read=read).run()
    finally:
        stopped.close()


@contextlib.contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda size_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("checking"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking", total=total_bytes)
        yield lambda size_bytes: progress.advance(task, size_bytes)


def _lines(report: Report) -> Iterator[str]:
    for finding in report.findings:
        yield f"{finding.path}: {finding.verdict.value}: {finding.what}"
        yield f"    {'done' if finding.repaired else 'what to do'}: {finding.remedy}"
    owner = "a broker" if report.broker_id is None else f"broker {report.broker_id}"
    counts = report.counts
    read = f"{counts.logs} logs, {counts.segments} segments, {counts.batch_bytes:,} bytes of batches of {owner}"
    verdicts = [finding.verdict for finding in report.findings]
    counted = ", ".join(
        f"{verdicts.count(verdict)} {verdict.value}" for verdict in reversed(CheckVerdict) if verdict in verdicts
    )
    yield f"checked {read}: {counted or 'all is sound'}"


def document(report: Report) -> dict[str, Any]:
    """The report, for JSON."""
    return {
        **attributes(report, "broker_id", "cluster_id"),
        **attributes(report.counts, "logs", "segments", "batch_bytes"),
        "worst": None if report.worst is None else report.worst.value,
        "findings": [
            {
                "path": finding.path,
                "verdict": finding.verdict.value,
                **attributes(finding, "what", "remedy", "repaired"),
            }
            for finding in report.findings
        ],
    }
