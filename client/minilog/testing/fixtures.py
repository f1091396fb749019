"""The pytest fixture `minilog_cluster`. A conftest.py asks for it by one line:

    pytest_plugins = ["minilog.testing.fixtures"]

It is no plugin that pytest finds by itself: whoever has minilog installed and does not test with it pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minilog.testing import RunningCluster, running_cluster


@pytest.fixture(scope="session")
def minilog_cluster() -> Iterator[RunningCluster]:
    """One cluster for all tests of a run, so that its start is paid once; of each worker, under pytest-xdist. Tests
    that must not see each other use topics of their own, or `running_cluster`."""
    with running_cluster() as cluster:
        yield cluster
