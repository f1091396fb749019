"""A proof of a producer id covers the whole name and its owner (ARCHITECTURE.md § A producer proves its id)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog_broker.security.producer_proof import KEY_BYTES, NO_PROOF, PROOF_BYTES, ProducerKey, WriterName
from tests.rules import proves

KEY = ProducerKey(b"k" * KEY_BYTES, 1_000)
NAME = WriterName(1_007, 0, "job")
ALICE = "User:alice"


def test_a_proof_is_the_same_wherever_it_is_made() -> None:
    """By the broker that gives the id, and by each leader that is shown it."""
    proof = KEY.proof(NAME, ALICE)
    assert len(proof) == PROOF_BYTES
    assert ProducerKey(b"k" * KEY_BYTES, 1_000).proves(proof, NAME, ALICE)


@proves("PR.7")
@pytest.mark.parametrize(
    "other",
    [
        replace(NAME, producer_id=1_008),
        replace(NAME, producer_epoch=1),
        replace(NAME, transactional_id=""),
        replace(NAME, transactional_id="jo"),
    ],
)
def test_a_proof_proves_no_other_name(other: WriterName) -> None:
    assert not KEY.proves(KEY.proof(NAME, ALICE), other, ALICE)


@proves("PR.7")
def test_a_proof_proves_nothing_of_anybody_else() -> None:
    proof = KEY.proof(NAME, ALICE)
    assert not KEY.proves(proof, NAME, "User:mallory")
    assert not KEY.proves(proof, replace(NAME, transactional_id="jobUser:alic"), "e"), "no part runs into the next"
    assert not KEY.proves(proof[:-1], NAME, ALICE)
    assert not KEY.proves(NO_PROOF, NAME, ALICE)


def test_another_cluster_has_other_proofs() -> None:
    assert not ProducerKey(b"l" * KEY_BYTES, 1_000).proves(KEY.proof(NAME, ALICE), NAME, ALICE)


def test_no_log_of_a_broker_shows_the_key() -> None:
    assert "kkk" not in repr(KEY)
