"""What a run fails with."""

from __future__ import annotations

from tests.judges.violation import Violation

__all__ = ["Violation"]
