"""The validation of produce messages. A message that costs much goes to a thread, by its decoded bytes.

Validation decompresses, sums up and walks a batch. Arrow and crc32c let the event loop run meanwhile. The core itself
validates a message of usual size on the loop, in a millisecond or two. A larger one is validated here first, a batch at
a time. There is one thread, so that all clients together decompress one batch at once. The batch itself has its decoded
size, and is refused for that before it is decompressed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, Buffer
from minilog.record_batch.validation import decoded_bytes
from minilog_broker.replication.leader.produce import validated
from minilog_broker.replication.partition_state import TopicConfig

INLINE_BYTES = 4 << 20  # decoded bytes of one message: some milliseconds; our clients send up to 4 MiB

Validated: TypeAlias = BatchHeader | MinilogError | None
"""The outcome for a batch, None where it was not validated here."""


class BatchValidation:
    """The thread that validates the batches of large produce messages.

    `config` gives the configuration of a partition that this broker leads, else None. `now_us` gives the wall clock,
    None while it is not trusted.
    """

    def __init__(self, config: Callable[[PartitionKey], TopicConfig | None], now_us: Callable[[], int | None]) -> None:
        self._config = config
        self._now_us = now_us
        self._thread = ThreadPoolExecutor(1, "batch-validation")

    async def validate(self, keys: Sequence[PartitionKey], batches: Sequence[Buffer]) -> list[Validated]:
        """The outcome for each batch. None for batches of a message that costs little, and for those that the core
        refuses without a look at them."""
        if sum(map(decoded_bytes, batches)) <= INLINE_BYTES:
            return [None] * len(batches)
        return [await self._validate(key, batch) for key, batch in zip(keys, batches, strict=True)]

    async def _validate(self, key: PartitionKey, batch: Buffer) -> Validated:
        config = self._config(key)
        if config is None:
            return None
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, _outcome, key, batch, config, self._now_us()
        )


def _outcome(key: PartitionKey, batch: Buffer, config: TopicConfig, now_us: int | None) -> Validated:
    try:
        return validated(key, batch, config, now_us)
    except MinilogError as error:
        return error
