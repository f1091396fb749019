"""A task's part in a transaction is begun with its first row, or a while before it, and ends with its block."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from minilog.errors import ProducerFenced
from pyspark_minilog.writing.task_part import TaskPart
from tests.rules import proves

pytestmark = proves("SPS.18")

NEVER_S = 1_000.0


class Coordinator:
    """What a task calls: it counts who is in, and who has left."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.begun = self.left = 0
        self._refusal = refusal

    def begin(self, stack: ExitStack) -> str:
        if self._refusal is not None:
            raise self._refusal
        self.begun += 1
        stack.callback(self._leave)
        return "part"

    def _leave(self) -> None:
        self.left += 1


def test_a_part_begins_with_the_first_row_and_is_left_with_the_block() -> None:
    coordinator = Coordinator()
    with TaskPart(coordinator.begin, NEVER_S) as task:
        assert coordinator.begun == 0
        assert task.begun(has_rows=True) == "part"
        assert (coordinator.begun, coordinator.left) == (1, 0)
    assert coordinator.left == 1


def test_without_rows_nobody_is_called() -> None:
    coordinator = Coordinator()
    with TaskPart(coordinator.begin, NEVER_S) as task:
        assert task.begun(has_rows=False) is None
        task.begin_early()  # the timer was on its way
    assert coordinator.begun == 0


def test_a_part_that_waits_for_long_begins_before_its_first_row_and_once() -> None:
    coordinator = Coordinator()
    with TaskPart(coordinator.begin, NEVER_S) as task:
        task.begin_early()
        assert coordinator.begun == 1
        assert task.begun(has_rows=True) == "part"
        task.begin_early()
    assert (coordinator.begun, coordinator.left) == (1, 1)


def test_an_error_meanwhile_is_raised_in_the_task() -> None:
    with TaskPart(Coordinator(ProducerFenced("superseded")).begin, NEVER_S) as task:
        task.begin_early()
        with pytest.raises(ProducerFenced, match="superseded"):
            task.begun(has_rows=True)


def test_nothing_is_begun_when_the_task_is_over() -> None:
    coordinator = Coordinator()
    with TaskPart(coordinator.begin, NEVER_S) as task:
        pass
    task.begin_early()
    assert coordinator.begun == 0
