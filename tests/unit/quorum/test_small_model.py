"""The quorum's small model, searched whole; and wrong versions of the production's functions, found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minilog_broker.quorum import commit, voting
from minilog_broker.replication.rules import divergence
from minilog_broker.replication.rules.divergence import Accepted
from tests.rules import proves
from tests.unit.quorum.small_model import QuorumBounds, search

pytestmark = proves("V3", "V11", "V12")

LONG_LOGS, MANY_EPOCHS = QuorumBounds(epochs=3, entries=3), QuorumBounds(epochs=4, entries=2)


@pytest.mark.parametrize(("bounds", "states"), [(LONG_LOGS, 36_547), (MANY_EPOCHS, 33_433)])
def test_all_states_within_the_bounds_hold(bounds: QuorumBounds, states: int) -> None:
    found = search(bounds)
    assert found.broken is None, "\n".join([found.broken, *found.history])
    assert found.states == states


def _counting_any_epoch(ends: Any, epoch_start: int, committed: int) -> int:
    return max(committed, *(commit.majority_commit(each) for each in ends))


WRONG: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "23 an entry of an old epoch is committed by counting": (commit, "committed_end", _counting_any_epoch),
    "one voter is a majority": (commit, "majority_commit", lambda ends: max(ends)),
    "anybody's log is up to date": (voting, "is_up_to_date", lambda member, request: True),
    "a longer log is up to date": (
        voting,
        "is_up_to_date",
        lambda member, request: request.last_end_offset >= member.log.last_entry[1],
    ),
    "a position is judged by its offset alone": (divergence, "compare_position", lambda epochs, **given: Accepted()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[name])
    found = search(MANY_EPOCHS)
    assert found.broken is not None, f"{found.states} states hold"
    print(f"{name}: {found.broken} ({found.states} states)", *found.history, sep="\n    ")
