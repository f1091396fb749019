"""Clients that a process of Spark keeps between its tasks. They connect to nobody before they are used."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from minilog import Admin
from pyspark_minilog.login import clients
from pyspark_minilog.login.worker import settle_in


def _settings(number: int) -> dict[str, str]:
    return {"bootstrap.servers": "127.0.0.1:1", "client.id": f"c{number}"}


@pytest.fixture(autouse=True)
def _no_client_is_left() -> Iterator[None]:
    yield
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


def _lent(number: int) -> Admin:
    with clients.lend(Admin, _settings(number)) as client:
        return client


def test_a_client_used_well_is_lent_again() -> None:
    assert _lent(1) is _lent(1)
    assert _lent(1) is not _lent(2)


def test_a_client_that_met_an_error_is_not_lent_again() -> None:
    first = _lent(1)
    with pytest.raises(ZeroDivisionError), clients.lend(Admin, _settings(1)):
        raise ZeroDivisionError
    assert _lent(1) is not first


def test_of_too_many_the_one_that_was_idle_for_longest_goes() -> None:
    """The first ones were kept for good, and all that came later connected anew for each task."""
    kept = [_lent(number) for number in range(clients._MAX_IDLE)]
    assert _lent(0) is kept[0]
    newest = _lent(100)
    assert _lent(100) is newest
    assert [_lent(number) is client for number, client in enumerate(kept) if number != 1] == [True] * (len(kept) - 1)
    assert len(clients._idle) == clients._MAX_IDLE
    assert _lent(1) is not kept[1]


def test_loaded_modules_are_not_visited_by_each_collection_of_garbage() -> None:
    settle_in()
    assert gc.get_freeze_count() > 10_000
