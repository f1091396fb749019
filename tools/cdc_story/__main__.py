"""`python -m tools.cdc_story`: see the package."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

from minilog_broker.failure import CommandFailed
from minilog_tools.demo.spark_job import check_spark_can_run
from tools.cdc_story.postgres import record_changes
from tools.cdc_story.story import Changes, Outcome, load_changes, tell

_HERE = pathlib.Path(__file__).parent
_WRITTEN_SEED = 1
# No JVM lives long enough here for its best compiler to pay, whose threads take the cores from the brokers.
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    """0 where the topic is the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.cdc_story", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="new changes, of a Postgres that is installed here")
    parser.add_argument("--write", action="store_true", help="make the changes that the repository keeps, and end")
    chosen = parser.parse_args()
    if chosen.write:
        _write(Changes(*record_changes(_WRITTEN_SEED)))
        return 0
    os.environ.setdefault("JAVA_TOOL_OPTIONS", _JVM_OPTIONS)
    began_s = time.monotonic()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="minilog-cdc-"))
    try:
        check_spark_can_run()
        seed = random.SystemRandom().randrange(10**6)
        changes = Changes(*record_changes(seed)) if chosen.postgres else load_changes(_HERE)
        outcome = tell(changes, directory, lambda line: _say(line, began_s))
    except CommandFailed as failure:
        print(f"{failure} (the logs are kept in {directory})", file=sys.stderr)
        return 1
    _show(outcome)
    if not outcome.is_equal:
        print(f"The data and the logs are kept in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _say(line: str, began_s: float) -> None:
    """Print a line with the seconds since the begin."""
    print(f"{time.monotonic() - began_s:5.1f} s  {line}", flush=True)


def _write(changes: Changes) -> None:
    (_HERE / "changes.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in changes.records))
    (_HERE / "table.jsonl").write_text("".join(f"{row}\n" for row in changes.rows))


def _show(outcome: Outcome) -> None:
    print("\nThe bad topic has, of partition and offset:")
    for reason, place in outcome.bad:
        print(f"  {place}: {reason}")
    print(f"\nchanges that fit: {outcome.changes}. Rows and deletions in the topic: {outcome.stored}")
    print(f"rows of SELECT * in Postgres: {len(outcome.table)}. Rows of view=latest: {len(outcome.latest)}")
    for row in outcome.table:
        if row not in outcome.latest:
            print(f"  missing: {row}")
    for row in outcome.latest:
        if row not in outcome.table:
            print(f"  too much: {row}")
    print("They are equal." if outcome.is_equal else "They differ.")


if __name__ == "__main__":
    sys.exit(main())
