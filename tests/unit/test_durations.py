"""The limits of time that the suite has, held by the durations that are recorded (tools/durations.py).

The clock of the machine that runs this test says nothing. After a change of many tests: `.ci/run && make durations`.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tools.durations import PAGE, PARTS_OF_TEST, ROOT, STEP, minutes_of_test, modules, page, read_table

ROWS = read_table()
LONGEST_TEST_MINUTES = 15.0
LONGEST_CHECK_MINUTES = 3.0
LONGEST_CI_MINUTES = 18.0
DEAR_ABOVE_S = 3.0
UNRECORDED_S = 5.0
"""What a module counts for until its durations are recorded."""


def unrecorded() -> set[str]:
    """The modules of tests that `make test` may run, and that no recorded run has."""
    places = [f"tests/{part}" for part in PARTS_OF_TEST if (ROOT / "tests" / part).exists()]
    listed = subprocess.run(["git", "ls-files", *places], cwd=ROOT, capture_output=True, check=True, text=True)
    tests = {name for name in listed.stdout.splitlines() if name.rpartition("/")[2].startswith("test_")}
    new = tests - {row.name for row in ROWS}
    return {
        name for name in new if not re.search(r"^pytestmark = .*mark\.long", (ROOT / name).read_text(), re.MULTILINE)
    }


def test_make_test_takes_at_most_15_minutes() -> None:
    new = len(unrecorded()) * UNRECORDED_S / 2 / 60
    assert minutes_of_test(ROWS) + new <= LONGEST_TEST_MINUTES, "see docs/internals/durations.md for the dearest tests"


def test_make_check_takes_at_most_3_minutes() -> None:
    (check,) = (row for row in modules(ROWS, STEP) if row.name == "check")
    assert check.seconds / 60 <= LONGEST_CHECK_MINUTES


def test_ci_takes_at_most_18_minutes() -> None:
    others = sum(row.seconds for row in modules(ROWS, STEP) if row.name != "test") / 60
    assert minutes_of_test(ROWS) + others <= LONGEST_CI_MINUTES


def test_a_test_above_3_seconds_has_a_reason() -> None:
    """`@pytest.mark.dear("its reason")`: a dear test is a decision."""
    assert [row.name for row in ROWS if "::" in row.name and row.call_seconds > DEAR_ABOVE_S and not row.reason] == []


@pytest.mark.parametrize("part", PARTS_OF_TEST)
def test_each_part_is_recorded(part: str) -> None:
    assert sum(row.tests for row in modules(ROWS, part)) > 0


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text() == page(ROWS)
