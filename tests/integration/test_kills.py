"""Every acknowledged record survives SIGKILL and clean stops (V7), once and at its offset (V2, V14)."""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.kill_runs import run


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["all", "turns", "controller", "rolling"])
def test_acknowledged_records_survive_kills_and_clean_stops(mode: str, tmp_path: pathlib.Path) -> None:
    history, wrong = run(mode, times=2, seed=7, directory=tmp_path)
    assert wrong == []
    assert len(history.acknowledged) > 1000
    assert history.failed == {}
