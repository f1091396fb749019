"""What files of tests against real brokers share: the pool of clusters (tests/pool.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.pool import ClusterPool


@pytest.fixture(scope="session")
def cluster_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPool]:
    with contextlib.closing(ClusterPool(lambda: tmp_path_factory.mktemp("pool"))) as pool:
        yield pool
