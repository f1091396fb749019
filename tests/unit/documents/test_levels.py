"""docs/spec/levels.md and what else says in words what a table of the code has."""

from __future__ import annotations

import inspect
import pathlib
import re

from minilog import Admin
from minilog_broker import levels
from minilog_broker.coordinators.queues.settings import _FIELDS

ROOT = pathlib.Path(__file__).parents[3]
LEVELS = (ROOT / "docs/spec/levels.md").read_text()


def test_the_document_says_which_levels_this_version_supports() -> None:
    said = re.search(r"This version supports (\d+) to (\d+)", LEVELS)
    assert said is not None
    assert (int(said[1]), int(said[2])) == (levels.SUPPORTED_LEVELS.lowest, levels.SUPPORTED_LEVELS.highest)


def test_the_table_has_a_row_for_each_level_and_no_other() -> None:
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", LEVELS, re.M)]
    assert rows == list(range(levels.SUPPORTED_LEVELS.lowest, levels.SUPPORTED_LEVELS.highest + 1))
    brought = {value for name, value in vars(levels).items() if name.endswith("_LEVEL") and isinstance(value, int)}
    assert brought == set(rows)


def test_each_setting_of_a_queue_is_named_where_it_is_set() -> None:
    table = set(re.findall(r"^\| `([a-z.]+)` \|", (ROOT / "docs/guides/queues.md").read_text(), re.M))
    assert set(_FIELDS) <= table
    described = inspect.getdoc(Admin.alter_queue) or ""
    assert [name for name in _FIELDS if name not in described] == []
