"""Where voters are looked for: the log, what a broker was started with, and what peers say of leaders."""

from __future__ import annotations

import pytest

from minilog.v1 import peer_pb2
from minilog_broker.quorum.voter_addresses import VoterAddresses
from minilog_broker.quorum.voters import Voter, VoterHistory

OWN = ("own", 1)


def at(broker_id: int, host: str) -> peer_pb2.VoterAddress:
    return peer_pb2.VoterAddress(broker_id=broker_id, host=host, port=9092)


@pytest.fixture
def history() -> VoterHistory:
    return VoterHistory()


@pytest.fixture
def addresses(history: VoterHistory) -> VoterAddresses:
    return VoterAddresses(1, OWN, [at(1, "given1"), at(2, "given2")], history, lambda voter: None)


def hosts(addresses: VoterAddresses, broker_id: int) -> list[str]:
    return [host for host, _ in addresses.of(broker_id)]


def record(history: VoterHistory, *, has_addresses: bool) -> None:
    voters = [Voter(number, bytes([number]) * 16, f"recorded{number}", 9092) for number in (1, 2, 3)]
    history.start_at(10, "cluster", voters, has_addresses=has_addresses)


def test_addresses_of_the_start_come_first_until_the_voters_change(
    history: VoterHistory, addresses: VoterAddresses
) -> None:
    assert hosts(addresses, 2) == ["given2"]
    record(history, has_addresses=False)
    assert (hosts(addresses, 2), hosts(addresses, 3)) == (["given2"], ["recorded3"])
    record(history, has_addresses=True)
    assert hosts(addresses, 2) == ["recorded2", "given2"]
    assert hosts(addresses, 3) == ["recorded3"]
    assert [voter.host for voter in addresses.voters()] == ["own", "recorded2", "recorded3"]


def test_a_voter_that_has_moved_is_looked_for_where_its_broker_is_registered(history: VoterHistory) -> None:
    """A copy of a directory must not find the cluster that it was copied from."""
    registered = {2: ("registered2", 9092), 3: ("recorded3", 9092)}
    addresses = VoterAddresses(1, OWN, [at(2, "given2")], history, lambda voter: registered.get(voter.broker_id))
    record(history, has_addresses=False)
    assert hosts(addresses, 2) == ["given2"]
    record(history, has_addresses=True)
    assert hosts(addresses, 2) == ["recorded2", "registered2", "given2"]
    assert hosts(addresses, 3) == ["recorded3"]


def test_a_peer_may_name_a_leader_that_no_log_here_knows(addresses: VoterAddresses) -> None:
    assert (addresses.of(7), addresses.known_ids()) == ((), [2])
    addresses.introduce(at(7, "told7"))
    addresses.introduce(at(2, "told2"))
    assert (hosts(addresses, 7), addresses.known_ids()) == (["told7"], [2, 7])
    assert hosts(addresses, 2) == ["given2", "told2"]
    assert addresses.word_of(7) == at(7, "told7")


def test_its_own_address_a_broker_knows_best(history: VoterHistory, addresses: VoterAddresses) -> None:
    addresses.introduce(at(1, "told1"))
    record(history, has_addresses=True)
    assert addresses.of(1) == (OWN,)


def test_a_peer_that_names_leaders_without_end_fills_no_memory(addresses: VoterAddresses) -> None:
    for broker_id in range(10, 1_000):
        addresses.introduce(at(broker_id, "told"))
    assert len(addresses.known_ids()) < 20


def test_a_leader_without_an_address_is_nobody(addresses: VoterAddresses) -> None:
    addresses.introduce(peer_pb2.VoterAddress(broker_id=7))
    assert addresses.of(7) == ()
