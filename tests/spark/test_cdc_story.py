"""jobs/cdc.py as a process, with real brokers and the changes of a real Postgres: killed twice while it writes, and a
broker once. In the end the typed topic is the table. test_cdc_job.py has a shorter one, in the tests' own Spark."""

from __future__ import annotations

import pathlib

import pytest

from tools.cdc_story import story

KEPT = pathlib.Path(story.__file__).parent


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_newest_rows_are_the_table_whoever_is_killed(tmp_path: pathlib.Path) -> None:
    changes = story.load_changes(KEPT)
    assert {record["value"] and record["value"]["op"] for record in changes.records} == {"r", "c", "u", "d", None}
    lines: list[str] = []
    outcome = story.tell(changes, tmp_path, lines.append)
    assert outcome.latest == outcome.table
    assert len(outcome.table) > 30
    assert outcome.stored == len(changes.records)
    assert sorted(reason for reason, _ in outcome.bad) == [
        "column 'balance' is decimal(12,2), and 12.34 EUR does not fit",
        "column 'owner' may not be null",
        "the table was truncated, and a topic deletes single keys alone",
        "the topic has no column colour",
        "this is not a JSON object",
    ]
    assert len({place for _, place in outcome.bad}) == len(outcome.bad)
    assert len(outcome.killed_in) == 2
    assert outcome.is_equal
