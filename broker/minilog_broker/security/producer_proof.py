"""The proof of a producer id's owner, without a list of owners. Pure.

The broker that gives an id signs it with the key of the cluster (HMAC-SHA-256): id, epoch, transactional id, and the
principal that gets it. A writer under the id sends the signature, and the leader makes it anew and compares. So no
broker keeps, replicates or asks for owners, and each leader, also a new one, knows the owner of an id. A producer id
stands in the header of each batch, for all readers to see. A proof stands in no batch.

The key stands in the metadata log, which only brokers read. It stays: after a change no live producer could go on.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

KEY_BYTES = 32
PROOF_BYTES = 16  # a search needs up to 2^128 messages to a leader
NO_PROOF = b""

_SIGNED = struct.Struct("<qhI")  # producer id, epoch, length of the transactional id; then that id, and the principal


@dataclass(frozen=True, slots=True)
class WriterName:
    """The name that a batch is written under. `transactional_id`: empty outside of transactions."""

    producer_id: int
    producer_epoch: int
    transactional_id: str = ""


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """`first_id`: ids below it were given before there was a key, and have no proof."""

    key: bytes = field(repr=False)
    first_id: int

    def proof(self, name: WriterName, principal: str) -> bytes:
        """The proof that a broker gave the name to the principal."""
        transactional_id = name.transactional_id.encode()
        signed = _SIGNED.pack(name.producer_id, name.producer_epoch, len(transactional_id))
        content = signed + transactional_id + principal.encode()
        return hmac.digest(self.key, content, "sha256")[:PROOF_BYTES]

    def proves(self, proof: bytes, name: WriterName, principal: str) -> bool:
        """Whether `proof` is the proof of the name and the principal."""
        return hmac.compare_digest(proof, self.proof(name, principal))
