"""What files of tests against real brokers share: a pool of clusters (tests/pool.py), and an admin of their cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from minilog import Admin
from tests.cluster import Cluster
from tests.pool import ClusterPool


@pytest.fixture(scope="session")
def cluster_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPool]:
    with contextlib.closing(ClusterPool(lambda: tmp_path_factory.mktemp("pool"))) as pool:
        yield pool


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.client) as admin:
        yield admin
