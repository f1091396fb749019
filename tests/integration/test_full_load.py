"""Full load on few processors raises no false alarm (docs/spec/quorum.md § Clocks and own delays). Longer: load_run."""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.load_run import run

pytestmark = pytest.mark.long

SECONDS = 8.0


def test_full_load_costs_no_leader_and_no_follower(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, SECONDS).alarms == []
