"""What all tests of the simulator need."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that run clusters give names the same hashes: the same seed is the same run."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
