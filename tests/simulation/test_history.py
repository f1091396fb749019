"""What a reader may be said to have passed: what was deleted, and nothing else."""

from __future__ import annotations

import pytest

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation
from tests.simulation.clients.history import History

KEY = PartitionKey(bytes(16), 0)


def read_up_to(position: int, deleted_below: int) -> History:
    history = History()
    history.may_be_deleted = lambda key: deleted_below
    history.placed("c1", KEY, position)
    return history


@pytest.mark.parametrize(
    ("position", "told", "known"),
    [
        (1057, 1203, 1203),  # seed 990067: all that lay between was deleted
        (1057, 1204, 1057),  # the last of these was not
        (1057, None, 1057),
        (1203, 1057, 1203),
    ],
)
def test_a_reader_that_is_handed_nothing_has_passed_what_was_deleted(
    position: int, told: int | None, known: int
) -> None:
    history = read_up_to(position, deleted_below=1203)
    history.passed_deleted("c1", KEY, told)
    assert history.known_position("c1", KEY) == known


def test_passed_records_are_not_read_again() -> None:
    history = read_up_to(1057, deleted_below=1203)
    history.passed_deleted("c1", KEY, 1203)
    with pytest.raises(Violation, match="reads offset 1100 again where 1203 comes next"):
        history.read("c1", KEY, 1100, b"x")
