"""Every acknowledged record survives SIGKILL (V7), once and at its offset (V2, V14)."""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.kill_runs import run


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["all", "turns"])
def test_acknowledged_records_survive_sigkill(mode: str, tmp_path: pathlib.Path) -> None:
    history, wrong = run(mode, times=2, seed=7, directory=tmp_path)
    assert wrong == []
    assert len(history.acknowledged) > 1000
    assert history.failed == {}
