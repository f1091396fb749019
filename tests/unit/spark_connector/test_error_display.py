"""What we refuse is told without a traceback, and a bug with one: as Spark's own workers write an error."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from pyspark.util import handle_worker_exception

from minilog.errors import BrokerNotAvailable
from pyspark_minilog.error_display import hides_traceback, hiding_traceback
from pyspark_minilog.errors import DataLoss
from tests.rules import proves

pytestmark = proves("SPF.3")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's, which ends with the error that it tells."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def fails(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def as_method(error: Exception) -> None:
    hides_traceback(lambda: list(fails(error)))()


def as_iterator(error: Exception) -> None:
    list(hiding_traceback(fails(error)))


@pytest.mark.parametrize("way", [as_method, as_iterator])
@pytest.mark.parametrize("error", [DataLoss("it is gone"), BrokerNotAvailable("it is gone")])
def test_a_refusal_is_its_sentence(way: Callable[[Exception], object], error: Exception) -> None:
    assert told(way, error).removeprefix(type(error).__module__) == f".{type(error).__name__}: it is gone"


@pytest.mark.parametrize("way", [as_method, as_iterator])
def test_a_bug_is_told_with_the_place_where_it_happened(way: Callable[[Exception], object]) -> None:
    lines = told(way, KeyError("it is gone")).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'it is gone'"


def told(way: Callable[[Exception], object], error: Exception) -> str:
    """What a worker of Spark says to the JVM, without the two numbers in front."""
    written = io.BytesIO()
    try:
        way(error)
    except Exception as raised:
        handle_worker_exception(raised, written)
    return written.getvalue()[8:].decode().rstrip("\n")
