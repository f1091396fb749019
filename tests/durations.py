"""How long each test runs, and what it starts: properties of its case in the junit file, for tools/durations.py.

`call` has the seconds of the test without its fixtures. `cluster` and `jvm` count the brokers of its own and the Sparks
that it or its fixtures start.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Generator
from typing import Any

import pytest

STARTS: collections.Counter[str] = collections.Counter()
"""What this process has started until now, by kind."""

_JVM_COMMANDS = ("spark-submit", "java", "spark-class", "pyspark")


def _count_jvm(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and str(arguments[0]).rpartition("/")[2] in _JVM_COMMANDS:
        STARTS["jvm"] += 1


sys.addaudithook(_count_jvm)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note what had been started before the test."""
    item.stash[_BEFORE] = STARTS.copy()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the numbers to the report that the junit file is made of."""
    if call.when == "call":
        item.user_properties.append(("call", f"{call.duration:.3f}"))
    elif call.when == "teardown":
        item.user_properties.extend((kind, str(count)) for kind, count in (STARTS - item.stash[_BEFORE]).items())
    return (yield)


_BEFORE = pytest.StashKey[collections.Counter[str]]()
