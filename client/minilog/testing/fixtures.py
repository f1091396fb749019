"""The pytest fixture `minilog_cluster`. A conftest.py loads it by one line:

    pytest_plugins = ["minilog.testing.fixtures"]

Pytest does not find this plugin by itself, so that test runs without it do not import minilog.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minilog.testing import RunningCluster, running_cluster


@pytest.fixture(scope="session")
def minilog_cluster() -> Iterator[RunningCluster]:
    """One cluster for all tests of a run, so that a run has one start. Under pytest-xdist each worker has one. Tests
    that must not see each other's records use topics of their own, or `running_cluster`."""
    with running_cluster() as cluster:
        yield cluster
