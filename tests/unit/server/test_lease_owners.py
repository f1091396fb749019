"""Whose a lease is (server/access/lease_owners.py, security/lease_ids.py)."""

from __future__ import annotations

import pytest

from minilog.v1 import queue_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.lease_ids import is_lease_of, new_lease_id
from minilog_broker.security.producer_proof import ProducerKey
from minilog_broker.server.access.lease_owners import NO_LEASE, LeaseOwners

ALICE, MALLORY = "User:alice", "User:mallory"


def owners(key: bytes = b"k" * 32) -> LeaseOwners:
    image = MetadataImage()
    image.producer_key = ProducerKey(key, 0)
    return LeaseOwners(image)


def test_a_settlement_of_anothers_lease_is_for_no_lease() -> None:
    of = owners()
    lease_id, own = of.new_lease_id(7, ALICE), of.new_lease_id(8, MALLORY)
    request = queue_pb2.SettleRequest(
        queue="q", settlements=[queue_pb2.Settlement(lease_id=each, last_offset=5) for each in (lease_id, own)]
    )
    assert of.settlement(request, ALICE).settlements[0].lease_id == lease_id
    heard = of.settlement(request, MALLORY)
    assert [each.lease_id for each in heard.settlements] == [NO_LEASE, own]
    assert [each.lease_id for each in request.settlements] == [lease_id, own], "the request stays as it came"


def test_anothers_lease_counts_as_ended_in_a_renewal() -> None:
    of = owners()
    lease_id, own = of.new_lease_id(7, ALICE), of.new_lease_id(8, MALLORY)
    heard, others = of.renewal(queue_pb2.RenewLeasesRequest(queue="q", lease_ids=[lease_id, own]), MALLORY)
    assert (list(heard.lease_ids), others) == ([own], [lease_id])


def test_a_lease_from_before_the_cluster_had_a_key_stays_good() -> None:
    lease_id = new_lease_id(None, 7, ALICE)
    assert is_lease_of(b"key", lease_id, ALICE)
    assert not is_lease_of(b"key", lease_id, MALLORY)


def test_nobody_knows_an_id_who_does_not_know_the_key() -> None:
    ids = {new_lease_id(bytes([key]) * 32, 7, ALICE) for key in range(100)}
    assert len(ids) == 100


@pytest.mark.parametrize("lease_id", [-1, 0, 1, 2**63 - 1, -(2**63)])
def test_any_number_may_come(lease_id: int) -> None:
    assert not is_lease_of(b"key", lease_id, ALICE)
