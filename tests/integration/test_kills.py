"""Acknowledged records survive kills, hangs, cuts, clean stops (V7), once and in order (V2, V14), on every copy (V9).

Short versions of `python -m tests.integration.kill_runs`; how long fail-over takes is measured there, at default
settings. Here the silence that fences a broker is shorter, to save time, and only a bound on all is asserted.
"""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.forms import ROWS
from tests.integration.kill_runs import KillRunOutcome, run

QUICK = {"broker.session.timeout.ms": "1500"}
# The bounds are 1 s for kills and 5 s for hangs and cuts; here other tests and builds may share the processors.
WRITES_WITHIN_S = 10.0


def check(outcome: KillRunOutcome, *, errors_allowed: bool = False) -> None:
    assert outcome.wrong == []
    assert errors_allowed or (outcome.history.failed, outcome.history.unknown) == ({}, set())
    assert len(outcome.history.acknowledged) > 1000
    for measured in outcome.measured:
        assert measured.writes_s is None or measured.writes_s < WRITES_WITHIN_S, measured


@pytest.mark.dear("it kills brokers, and others take over")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mode", "times"),
    [
        ("leader", 2),
        *(pytest.param(mode, 1, marks=pytest.mark.long) for mode in ("all", "controller", "both", "rolling")),
    ],
)
def test_acknowledged_records_survive_kills_and_clean_stops(mode: str, times: int, tmp_path: pathlib.Path) -> None:
    check(run(mode, times, seed=7, directory=tmp_path))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_acknowledged_rows_survive_kills_while_their_schema_evolves(tmp_path: pathlib.Path) -> None:
    check(run("both", 2, seed=7, directory=tmp_path, form=ROWS))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_acknowledged_records_survive_brokers_that_hang(tmp_path: pathlib.Path) -> None:
    check(run("hang", 2, seed=7, directory=tmp_path, settings=QUICK))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_acknowledged_records_survive_cut_links(tmp_path: pathlib.Path) -> None:
    check(run("cut", 3, seed=7, directory=tmp_path, settings=QUICK))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_slow_links_losses_and_resets_cost_no_record(tmp_path: pathlib.Path) -> None:
    check(run("spoil", 1, seed=7, directory=tmp_path))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_an_isolated_leader_acknowledges_nothing_that_is_lost(tmp_path: pathlib.Path) -> None:
    """A client is on its side: what that one was told is written stands there in the end, the rest is unknown."""
    outcome = run("isolate", 2, seed=7, directory=tmp_path, settings=QUICK)
    check(outcome, errors_allowed=True)
    assert outcome.history.unknown, "nothing was under way on the wrong side"
