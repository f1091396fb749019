"""Whose a producer id is, where a leader is sent a batch (docs/spec/replication.md § Producing)."""

from __future__ import annotations

import pytest

from minilog.errors import LeaderNotAvailable, MinilogError, UnknownProducerId
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation
from minilog_broker.security.audit import Decision
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.producer_proof import KEY_BYTES, NO_PROOF, ProducerKey, WriterName
from minilog_broker.server.access.caller import NO_RULES, Caller, Everybody
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from tests.rules import proves
from tests.unit.replication.broker import batch

pytestmark = proves("PR.7")

KEY = ProducerKey(b"k" * KEY_BYTES, 1_000)
ALICE, MALLORY = (Caller(Principal(USER, name), "host", "/Produce", NO_RULES) for name in ("alice", "mallory"))


def image_of(key: ProducerKey | None = KEY, next_producer_id: int = 3_000) -> MetadataImage:
    image = MetadataImage()
    image.producer_key, image.next_producer_id = key, next_producer_id
    return image


def refusal(
    caller: Caller,
    producer: tuple[int, int],
    proof: bytes = NO_PROOF,
    *,
    transactional_id: str = "",
    image: MetadataImage | None = None,
) -> MinilogError | None:
    owners = ProducerOwners(image or image_of())
    return owners.refusal(caller, Claim.of(batch(producer=(*producer, 0)), transactional_id, proof))


def proof_for(caller: Caller, producer_id: int, transactional_id: str = "") -> bytes:
    return KEY.proof(WriterName(producer_id, 0, transactional_id), str(caller.principal))


def test_the_owner_of_an_id_writes_under_it() -> None:
    assert refusal(ALICE, (1_500, 0), proof_for(ALICE, 1_500)) is None
    assert refusal(ALICE, (1_500, 0), proof_for(ALICE, 1_500, "job"), transactional_id="job") is None


def test_each_leader_knows_whose_an_id_is_without_having_heard_of_it() -> None:
    """The first one and any later one, on brokers whose images are behind: of the block itself nothing is asked."""
    assert refusal(ALICE, (9_999, 0), proof_for(ALICE, 9_999)) is None


@pytest.mark.parametrize(
    ("producer", "proof"),
    [
        ((1_501, 0), proof_for(MALLORY, 1_500)),  # the next id, that somebody will be given
        ((1_501, 0), NO_PROOF),
        ((1_499, 0), proof_for(MALLORY, 1_500)),  # of a producer that lives: her next sequence
        ((1_499, 1), proof_for(MALLORY, 1_500)),  # and one epoch higher
        ((1_500, 1), proof_for(MALLORY, 1_500)),
        ((2**62, 0), NO_PROOF),
        ((-2, 0), NO_PROOF),
    ],
)
def test_nobody_writes_under_an_id_of_another(producer: tuple[int, int], proof: bytes) -> None:
    refused = refusal(MALLORY, producer, proof)
    assert isinstance(refused, UnknownProducerId)
    assert f"User:mallory has no proof that it owns producer id {producer[0]}" in str(refused)


def test_a_proof_that_was_stolen_is_worth_nothing_to_the_thief() -> None:
    assert isinstance(refusal(MALLORY, (1_500, 0), proof_for(ALICE, 1_500)), UnknownProducerId)


def test_an_id_of_a_transaction_is_for_that_transaction_alone() -> None:
    """Else a batch outside of it would end the transaction with INVALID_TXN_STATE."""
    assert isinstance(refusal(ALICE, (1_500, 0), proof_for(ALICE, 1_500, "job")), UnknownProducerId)
    proof = proof_for(ALICE, 1_500, "job")
    assert isinstance(refusal(ALICE, (1_500, 0), proof, transactional_id="another"), UnknownProducerId)


def test_where_nobody_is_asked_who_he_is_an_id_still_needs_its_proof() -> None:
    everybody = Everybody()
    assert refusal(everybody, (1_500, 0), proof_for(everybody, 1_500)) is None
    assert isinstance(refusal(everybody, (1_501, 0), proof_for(everybody, 1_500)), UnknownProducerId)


def test_producers_of_before_the_cluster_had_proofs_go_on() -> None:
    assert refusal(ALICE, (999, 0)) is None
    assert isinstance(refusal(ALICE, (1_000, 0)), UnknownProducerId)


def test_below_the_level_of_proofs_an_id_that_nobody_was_given_waits() -> None:
    """It may be the image here that is behind; and no image without the key knows of an id that has a proof."""
    image = image_of(key=None)
    assert refusal(ALICE, (2_999, 0), image=image) is None
    for unknown in (3_000, 2**62, -2):
        refused = refusal(ALICE, (unknown, 0), image=image)
        assert isinstance(refused, LeaderNotAvailable)
        assert refused.retriable


def test_batches_without_a_producer_id_have_no_owner() -> None:
    assert ProducerOwners(image_of()).refusal(MALLORY, Claim.of(batch(), "", NO_PROOF)) is None
    assert ProducerOwners(image_of()).refusal(MALLORY, Claim.of(b"no batch", "", NO_PROOF)) is None, (
        "the core refuses it"
    )


def test_a_stranger_to_an_id_is_in_the_audit_log() -> None:
    told: list[tuple[str, Operation, str, Decision]] = []

    class Listening:
        """All is allowed."""

        is_allowed, is_allowed_any, denied = NO_RULES.is_allowed, NO_RULES.is_allowed_any, NO_RULES.denied
        charge, give_back = NO_RULES.charge, NO_RULES.give_back
        owed_ms, quota, cost = NO_RULES.owed_ms, NO_RULES.quota, NO_RULES.cost

        def tell(self, caller: Caller, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
            told.append((str(caller.principal), operation, resource, decision))

    refusal(Caller(Principal(USER, "mallory"), "host", "/Produce", Listening()), (1_501, 0))
    assert told == [("User:mallory", Operation.WRITE, "producer-id:1501", Decision.DENIED)]
