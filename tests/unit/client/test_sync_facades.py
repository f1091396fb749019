"""The blocking clients are the ones for asyncio, method by method."""

from __future__ import annotations

import inspect
import re

import pytest

import minilog
import minilog.aio
import minilog.aio.joint_transaction
import minilog.aio.participation
import minilog.aio.transaction
import minilog.sync.transaction
import minilog.transactions.client
from minilog.sync.base import own

MIRRORS: dict[type, type] = {
    minilog.Admin: minilog.aio.Admin,
    minilog.Consumer: minilog.aio.Consumer,
    minilog.Producer: minilog.aio.Producer,
    minilog.QueueConsumer: minilog.aio.QueueConsumer,
    minilog.sync.transaction.Transaction: minilog.aio.transaction.Transaction,
    minilog.sync.transaction.Participation: minilog.aio.participation.Participation,
    minilog.sync.transaction.Transactions: minilog.transactions.client.Transactions,
    minilog.sync.transaction.JointTransaction: minilog.aio.joint_transaction.JointTransaction,
}
ALONE = {
    ("Producer", "participation"): "a Spark task is a thread",
    ("Transaction", "abandon"): "the end of the blocking block calls it",
    ("Participation", "transactions"): "a program's transaction commits with it",
    ("Transactions", "close"): "the one for asyncio has the connections of its caller",
    ("Transactions", "keep_alive"): "a joint transaction gives the signs of life",
    ("Transactions", "keep_alive_until_fenced"): "a joint transaction gives the signs of life",
    ("Transactions", "end"): "the ways to end are commit and abort",
    ("JointTransaction", "close"): "the one for asyncio has the connections of its caller",
    ("JointTransaction", "leave"): "close leaves",
}


def public(owner: type) -> dict[str, object]:
    return {name: inspect.getattr_static(owner, name) for name in dir(owner) if not name.startswith("_")}


def signature(method: object) -> str:
    """As text, without the words of asyncio."""
    function = method.fget if isinstance(method, property) else method
    assert inspect.isfunction(function)
    return re.sub(r"\basyncio\.", "", str(inspect.signature(function)))


@pytest.mark.parametrize("facade", MIRRORS, ids=lambda facade: facade.__name__)
def test_a_blocking_client_has_the_methods_of_the_one_for_asyncio(facade: type) -> None:
    blocking, awaited = public(facade), public(MIRRORS[facade])
    alone = {name for owner, name in ALONE if owner == facade.__name__}
    assert blocking.keys() ^ awaited.keys() == alone
    for name in blocking.keys() & awaited.keys():
        assert signature(blocking[name]) == signature(awaited[name]), name


@pytest.mark.parametrize("facade", MIRRORS, ids=lambda facade: facade.__name__)
def test_every_public_method_of_a_client_is_documented(facade: type) -> None:
    for owner in (facade, MIRRORS[facade]):
        assert not [name for name, method in public(owner).items() if not inspect.getdoc(method)]
        assert inspect.getdoc(owner)
    told = [inspect.getdoc(each) or "" for each in (facade, *public(facade).values())]
    assert not [doc for doc in told if re.search(r"\b(await|async) ", doc)]


def test_an_iterator_or_mapping_that_a_program_gives_is_copied() -> None:
    """The loop gets the copy. An iterator of the program could wait for the loop itself."""
    read: object = own(each for each in (3, 4))
    assert read == [3, 4]
    given = {"a": 1}
    assert own(given) == given
    assert own(given) is not given
    assert [own(each) for each in (None, "topic", 5)] == [None, "topic", 5]
