"""The check of a producer id's owner on a leader, for each batch that has an id, before its core gets the batch.

    the batch has                                          refusal
    no producer id                                         -
    an id that its proof gives to the caller               -
    an id without such a proof, and the cluster has proofs UNKNOWN_PRODUCER_ID: the producer asks for another id
    an id of before the cluster had proofs                 -
    an id above all that this broker's image knows, and    LEADER_NOT_AVAILABLE: retried until its image has it
    the image has no key of proofs

In the metadata log, blocks of ids with proofs stand behind the key. So an image without the key has no such block, and
a leader that is late refuses ids that it cannot judge.
"""

from __future__ import annotations

from typing import NamedTuple

from minilog.errors import LeaderNotAvailable, MinilogError, UnknownProducerId
from minilog.record_batch.header import NO_PRODUCER_ID, Buffer, producer_of
from minilog.v1.coordinator_pb2 import TransactionalCommit
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.transactions.coordinator import PRODUCER_EPOCH
from minilog_broker.security.access import Operation
from minilog_broker.security.audit import Decision
from minilog_broker.security.producer_proof import WriterName
from minilog_broker.server.access.caller import Caller

_SHOWN = 100  # shown characters of a name that a caller has chosen


class Claim(NamedTuple):
    """The writer of a batch, by its entry."""

    producer_id: int
    producer_epoch: int
    transactional_id: str  # empty outside of transactions
    proof: bytes

    @classmethod
    def of(cls, batch: Buffer, transactional_id: str, proof: bytes) -> Claim:
        return cls(*producer_of(batch), transactional_id, proof)

    @classmethod
    def of_commit(cls, commit: TransactionalCommit) -> Claim:
        return cls(commit.producer_id, PRODUCER_EPOCH, commit.transactional_id, commit.producer_proof)


class ProducerOwners:
    """The check of a batch's producer id against its caller.

    `image` is this broker's replay of the committed metadata log.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def refusal(self, caller: Caller, claim: Claim) -> MinilogError | None:
        """The refusal of a write. None where the caller may write so, and for an invalid batch, which the core refuses.
        A claim that was valid once stays valid: a stream need not check it again."""
        producer_id, producer_epoch, transactional_id, proof = claim
        if producer_id == NO_PRODUCER_ID:
            return None
        key = self._image.producer_key
        if key is None:
            return self._refusal_by_image(producer_id)
        name = WriterName(producer_id, producer_epoch, transactional_id)
        if 0 <= producer_id < key.first_id or key.proves(proof, name, str(caller.principal)):
            return None
        inside = f" for transactional id '{transactional_id[:_SHOWN]}'" if transactional_id else ""
        error = UnknownProducerId(
            f"{caller.principal} has no proof that it owns producer id {producer_id}, epoch {producer_epoch}{inside}: "
            "a producer writes under its own id, which it gets by InitProducerId or Enlist"
        )
        caller.tell(Operation.WRITE, f"producer-id:{producer_id}", Decision.DENIED, str(error))
        return error

    def _refusal_by_image(self, producer_id: int) -> MinilogError | None:
        if 0 <= producer_id < self._image.next_producer_id:
            return None
        return LeaderNotAvailable(
            f"this broker does not know producer id {producer_id}: all that it knows are below "
            f"{self._image.next_producer_id}. Try again, or make another producer"
        )
