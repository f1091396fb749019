"""One browser, and one cluster with a console, for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, running_cluster
from tests.console.browser import Browser, running_browser
from tests.console.content import attack, fill
from tests.console.visiting import RunningConsole, running_console


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        fill(running.client)
        attack(running.client)
        yield running


@pytest.fixture(scope="session")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    arguments = ("-b", cluster.bootstrap_servers, "--actions")
    with running_console(tmp_path_factory.mktemp("console"), *arguments) as running:
        yield running
