"""Who deletes records: the client's real questions and judgement of answers (minilog/admin/records_deletion.py), asked
as minilog/admin/delete_records.py does. One partition at a time; at the end one of each, which must be answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from minilog.admin.records_deletion import RecordsDeletion
from minilog.config import ClientConfig
from minilog.errors import MinilogError
from minilog.net.offsets_query import OffsetsQuery
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2
from tests.simulation.clients import ClientProcess
from tests.simulation.coroutines import Promise, sleep, spawn
from tests.simulation.network import Failure
from tests.simulation.talking import PAUSE_MS, Picture

ATTEMPT_MS = 1_500.0
ANSWER_MS = 300.0  # of an attempt, for the way of the answer
ABOVE = 40  # so far above the high watermark it is asked for, too


class Trimmer:
    """See the module's text. `last_error`: what its user was told last, None where records were deleted."""

    def __init__(
        self,
        client: ClientProcess,
        config: ClientConfig,
        node_ids: Iterable[int],
        topics: list[str],
        rate: float,
        rng: random.Random,
    ) -> None:
        self.missing: list[TopicPartition] = []
        self.last_error: MinilogError | None = None
        self._client, self._config, self._topics, self._rng = client, config, topics, rng
        self._picture = Picture(client, config, node_ids, rng, lambda: self._topics, lambda: None)
        self._cache = self._picture.cache
        self._picture.refresh()
        self._pause_ms = 1_000.0 / rate
        self._ending = False
        spawn(client.process, self._trim_now_and_then())

    def finish(self, partitions: list[TopicPartition]) -> None:
        """From now on these are trimmed once more, as often as it takes to be told that it is done: `missing`."""
        if not self._ending:
            self._ending, self.missing = True, list(partitions)

    def _partitions(self) -> list[TopicPartition]:
        topics = ((name, self._cache.topics[name]) for name in self._topics if name in self._cache.topics)
        return [TopicPartition(name, number) for name, topic in topics for number in range(topic.partition_count)]

    async def _trim_now_and_then(self) -> None:
        process, rng = self._client.process, self._rng
        while True:
            await sleep(process, PAUSE_MS if self._ending else rng.expovariate(1.0 / self._pause_ms))
            wanted = self.missing if self._ending else self._partitions()
            if wanted:
                await self._trim(rng.choice(wanted))

    async def _trim(self, partition: TopicPartition) -> None:
        ends = await self._ends(partition)
        if ends is None:
            return
        deletion = RecordsDeletion(self._cache, {partition: self._target(ends)})
        await self._until_answered(deletion, "DeleteRecords", lambda: deletion.requests(self._identity(), _WAIT_MS))
        self.last_error = deletion.error()
        if partition in self.missing and self.last_error is None:
            self.missing.remove(partition)

    def _target(self, ends: metadata_pb2.ListOffsetsResult) -> int:
        """Mostly some of the older half, so that much is left to be looked at."""
        rng, drawn = self._rng, self._rng.random()
        start, stable, end = ends.log_start_offset, ends.last_stable_offset, ends.high_watermark
        if self._ending:
            return min(stable, (start + end) // 2)
        if drawn < 0.15:
            return stable  # as -1 asks for
        if drawn < 0.3:
            return end
        if drawn < 0.4:
            return end + rng.randint(1, ABOVE)
        if drawn < 0.45:
            return rng.randint(0, start)
        return rng.randint(start, max(start, (start + end) // 2))

    async def _ends(self, partition: TopicPartition) -> metadata_pb2.ListOffsetsResult | None:
        query = OffsetsQuery(self._cache, {partition: "latest"})
        await self._until_answered(query, "ListOffsets", lambda: query.requests(self._identity()))
        return query.results.get(partition)

    async def _until_answered(
        self, question: OffsetsQuery | RecordsDeletion, method: str, requests: Callable[[], list[tuple[int, Any]]]
    ) -> None:
        """Ask the leader, of newer metadata each time, until all is answered or request.timeout.ms is over."""
        client = self._client
        deadline_ms = client.now_ms + self._config.request_timeout_ms
        while question.missing() and client.now_ms < deadline_ms:
            for broker_id, request in requests():
                answered: Promise[Any] = Promise()
                client.call(broker_id, method, request, answered.keep, timeout_ms=ATTEMPT_MS)
                if not isinstance(answer := await answered, Failure):
                    question.answered(answer)
            if question.missing():
                self._picture.refresh()
                await sleep(client.process, PAUSE_MS)

    def _identity(self) -> Any:
        return self._config.identity()


_WAIT_MS = int(ATTEMPT_MS - ANSWER_MS)
