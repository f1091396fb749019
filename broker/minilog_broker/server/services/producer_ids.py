"""Producer ids, from blocks that the controller allocates, each with a proof of its owner.

A block is used when this broker's own image has it. By then the image has the key of proofs, too, where there is one.
So no broker gives an id without a proof while another broker demands one. The rest of a block from before the key is
never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from minilog.errors import BrokerNotAvailable
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.transactions.coordinator import PRODUCER_EPOCH
from minilog_broker.levels import PROVEN_PRODUCERS_LEVEL
from minilog_broker.security.producer_proof import NO_PROOF, WriterName
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.clients.controller_link import IdBlock

REPLAY_WITHIN_S = 5.0  # after a commit: an election takes less


@dataclass(frozen=True, slots=True)
class GivenId:
    """A producer id for a caller. `proof` is empty where the cluster has no proofs yet."""

    name: WriterName
    proof: bytes


class ProducerIds:
    """The source of producer ids. No id is given twice in a cluster's life. `replayed(end offset)` returns when the
    image has that end."""

    def __init__(
        self,
        image: MetadataImage,
        allocate: Callable[[], Awaitable[IdBlock]],
        replayed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._image = image
        self._allocate = allocate
        self._replayed = replayed
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self, caller: Caller, transactional_id: str = "") -> GivenId:
        """An id for this caller, and for this transactional id only, where there is one.

        Raises the controller's error, and BrokerNotAvailable where this broker does not receive commits.
        """
        async with self._lock:
            while (producer_id := next(self._block, None)) is None or not self._is_of_now(producer_id):
                if producer_id is None:
                    self._block = iter(await self._another_block())
        name, key = WriterName(producer_id, PRODUCER_EPOCH, transactional_id), self._image.producer_key
        return GivenId(name, NO_PROOF if key is None else key.proof(name, str(caller.principal)))

    def _is_of_now(self, producer_id: int) -> bool:
        """Whether an id is not from a block of before the cluster had proofs."""
        key = self._image.producer_key
        if key is None:
            return self._image.level < PROVEN_PRODUCERS_LEVEL
        return producer_id >= key.first_id

    async def _another_block(self) -> range:
        block = await self._allocate()
        try:
            async with asyncio.timeout(REPLAY_WITHIN_S):
                await self._replayed(block.committed_end_offset)
        except TimeoutError:
            raise BrokerNotAvailable(
                "this broker has received no commits of the metadata quorum for a while: ask another broker, or try "
                "again"
            ) from None
        return block.ids
