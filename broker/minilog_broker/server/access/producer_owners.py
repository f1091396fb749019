"""Whose a producer id is, as far as a leader has to know: asked for each batch that has one, before its core sees it.

    the batch has                                          is refused with
    no producer id                                         -
    an id that its proof gives to the caller               -
    an id without such a proof, and the cluster has proofs UNKNOWN_PRODUCER_ID: the producer asks for another id
    an id of before the cluster had proofs                 -
    an id that nobody was given, as far as this broker's   LEADER_NOT_AVAILABLE: again, when its image is there
    image knows, and the image has no key of proofs

Blocks of ids with proofs do not stand before the key in the metadata log: an image without the key has none of them
either, so a leader that is late refuses what it cannot judge.
"""

from __future__ import annotations

from typing import NamedTuple

from minilog.errors import LeaderNotAvailable, MinilogError, UnknownProducerId
from minilog.record_batch.header import NO_PRODUCER_ID, Buffer, producer_of
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation
from minilog_broker.security.audit import Decision
from minilog_broker.security.producer_proof import WriterName
from minilog_broker.server.access.caller import Caller

_SHOWN = 100  # characters of a name that a caller has chosen


class Claim(NamedTuple):
    """What an entry says of who writes its batch."""

    producer_id: int
    producer_epoch: int
    transactional_id: str  # empty outside of transactions
    proof: bytes

    @classmethod
    def of(cls, batch: Buffer, transactional_id: str, proof: bytes) -> Claim:
        return cls(*producer_of(batch), transactional_id, proof)


class ProducerOwners:
    """The check of a batch's producer id against its caller.

    `image` is this broker's replay of the committed metadata log.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def refusal(self, caller: Caller, claim: Claim) -> MinilogError | None:
        """None where the caller may write so, and for what is no batch: the core says so. What was right once stays so:
        a stream need not ask again."""
        producer_id, producer_epoch, transactional_id, proof = claim
        if producer_id == NO_PRODUCER_ID:
            return None
        key = self._image.producer_key
        if key is None:
            return self._as_far_as_known(producer_id)
        name = WriterName(producer_id, producer_epoch, transactional_id)
        if 0 <= producer_id < key.first_id or key.proves(proof, name, str(caller.principal)):
            return None
        inside = f" for transactional id '{transactional_id[:_SHOWN]}'" if transactional_id else ""
        error = UnknownProducerId(
            f"{caller.principal} shows no proof that producer id {producer_id}, epoch {producer_epoch}, was given to it"
            f"{inside}: a producer writes under its own id, and asks for one (InitProducerId, Enlist)"
        )
        caller.tell(Operation.WRITE, f"producer-id:{producer_id}", Decision.DENIED, str(error))
        return error

    def _as_far_as_known(self, producer_id: int) -> MinilogError | None:
        if 0 <= producer_id < self._image.next_producer_id:
            return None
        return LeaderNotAvailable(
            f"producer id {producer_id} was given to nobody, as far as this broker knows: all are below "
            f"{self._image.next_producer_id}; try again, or make another producer"
        )
