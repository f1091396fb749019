"""Whose a producer id is, proven without a list of who has which. Pure.

The broker that gives an id signs it with the key of the cluster (HMAC-SHA-256): id, epoch, transactional id, and the
principal that it is given to. Whoever writes under the id shows the signature, and the leader makes it anew to compare.
So nothing has to be kept, replicated or asked for, and each leader knows whose an id is, the first one and any later
one. A producer id stands in the header of each batch, for all readers to see; a proof stands in no batch.

The key stands in the metadata log, for brokers alone, and stays: with another one no producer that lives could go on.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

KEY_BYTES = 32
PROOF_BYTES = 16  # 2^128 guesses, each of them a message to a leader
NO_PROOF = b""

_SIGNED = struct.Struct("<qhI")  # producer id, epoch, bytes of the transactional id; that and the principal follow


@dataclass(frozen=True, slots=True)
class WriterName:
    """Under which a batch is written. `transactional_id`: empty outside of transactions."""

    producer_id: int
    producer_epoch: int
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """`first_id`: ids below it were given before there was a key, and have no proof."""

    key: bytes = field(repr=False)
    first_id: int

    def proof(self, name: WriterName, principal: str) -> bytes:
        """That the name was given to the principal."""
        transactional_id = name.transactional_id.encode()
        signed = _SIGNED.pack(name.producer_id, name.producer_epoch, len(transactional_id))
        content = signed + transactional_id + principal.encode()
        return hmac.digest(self.key, content, "sha256")[:PROOF_BYTES]

    def proves(self, proof: bytes, name: WriterName, principal: str) -> bool:
        """Whether it is that proof."""
        return hmac.compare_digest(proof, self.proof(name, principal))
