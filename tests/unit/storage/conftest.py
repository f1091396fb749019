"""The disk of a test."""

from __future__ import annotations

from random import Random

import pytest

from tests.world.disk import MemoryDisk


@pytest.fixture
def files() -> MemoryDisk:
    return MemoryDisk(Random(1))
