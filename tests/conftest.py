"""What all tests share: Hypothesis judges results, never time, which is the machine's and not the code's."""

from __future__ import annotations

import re

import pytest
from hypothesis import settings

from tests.durations import pytest_runtest_makereport as pytest_runtest_makereport
from tests.durations import pytest_runtest_protocol as pytest_runtest_protocol
from tests.scenarios.collecting import pytest_addoption as pytest_addoption
from tests.scenarios.collecting import pytest_collect_file as pytest_collect_file

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

_INSTALLED = re.compile(r"test_packages\.py::test_a_package_runs_in_a_clean_environment\[(.*)]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which Pythons the packages were installed in: not every machine has all of them."""
    matches = [_INSTALLED.search(report.nodeid) for report in terminalreporter.stats.get("passed", ())]
    if versions := sorted({match.group(1) for match in matches if match}):
        terminalreporter.write_line(f"packages: installed in clean environments of Python {', '.join(versions)}")
