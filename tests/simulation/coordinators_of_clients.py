"""How a simulated client asks coordinators of transactions: as minilog/aio/{coordinators,transactions}.py do it, with
the client's own messages and its own judgement of outcomes (minilog/transactions/messages.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from minilog.config import ClientConfig
from minilog.errors import (
    InvalidTxnState,
    LeaderNotAvailable,
    MinilogError,
    NotCoordinator,
    UnknownOutcome,
    UnknownTopicId,
    error_from_wire,
)
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache, metadata_request
from minilog.transactions.messages import (
    AlreadyCommitted,
    Attempt,
    Contents,
    Ending,
    Enlistment,
    TransactionOutcome,
    Winner,
    abort_request,
    end_request,
    enlist_request,
    enlisted,
    keep_alive_request,
    outcome_of,
)
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2
from tests.simulation.clients import ClientProcess
from tests.simulation.coroutines import Promise, first_of, sleep
from tests.simulation.network import Failure
from tests.simulation.talking import Asking

PAUSE_MS, LONGEST_PAUSE_MS = 50.0, 500.0
LOOK_MS = 1_000.0
TOPIC_GRACE_MS = 2_000.0
MARKERS_SHARE = 2


class CoordinatorsAsked:
    """See the module's text. One per process."""

    def __init__(
        self, client: ClientProcess, config: ClientConfig, node_ids: Iterable[int], rng: random.Random
    ) -> None:
        self.cache = MetadataCache()
        self._client, self._config, self._rng = client, config, rng
        self._node_ids = list(node_ids)

    # -- calls

    async def call(self, method: str, name: str, request: Any, *, timeout_ms: float, changes: bool = True) -> Any:
        """Ask the coordinator of the transactional id `name`, again and again. Raises as Coordinators.call."""
        client = self._client
        partition = TopicPartition(TRANSACTIONS_TOPIC_NAME, coordinator_partition(name))
        began_ms, pause_ms = client.now_ms, PAUSE_MS
        maybe_done, last_error = False, None
        while True:
            if partition.topic not in self.cache.topics or isinstance(last_error, NotCoordinator | LeaderNotAvailable):
                await self._refresh(partition.topic, max(1.0, began_ms + timeout_ms - client.now_ms))
            try:
                leader = self.cache.leader(self.cache.key(partition))
                if leader is None:
                    raise LeaderNotAvailable(f"partition {partition.partition} has no leader now")
                answer = await self._ask(method, partition, leader, request, began_ms + timeout_ms)
                if answer is None:
                    maybe_done = True
                    raise LeaderNotAvailable(f"broker {leader.broker_id}, which led, did not answer")
                if (error := error_from_wire(answer.error)) is None:
                    return answer
                maybe_done |= isinstance(error, NotCoordinator)
                raise error
            except MinilogError as error:
                grace_is_over = client.now_ms >= began_ms + TOPIC_GRACE_MS
                if not error.retriable or (isinstance(error, UnknownTopicId) and grace_is_over):
                    raise
                last_error = error
            if client.now_ms + pause_ms >= began_ms + timeout_ms:
                text = f"asking for {method} did not succeed within {timeout_ms} ms; last: {last_error}"
                raise (UnknownOutcome if changes and maybe_done else type(last_error))(text)
            await sleep(client.process, pause_ms)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    async def _ask(
        self, method: str, partition: TopicPartition, leader: LeaderAndEpoch, request: Any, deadline_ms: float
    ) -> Any | None:
        """One attempt; None where no answer came: the call was lost, or another broker leads by now."""
        client, key = self._client, self.cache.key(partition)
        complete = type(request)()
        complete.CopyFrom(request)
        complete.client.CopyFrom(self._config.identity())
        if "coordinator_epoch" in complete.DESCRIPTOR.fields_by_name:
            complete.coordinator_epoch = max(complete.coordinator_epoch, self.cache.seen_epoch(key), 0)
        answered: Promise[Any] = Promise()
        remaining_ms = max(1.0, deadline_ms - client.now_ms)
        client.call(leader.broker_id, method, complete, answered.keep, timeout_ms=remaining_ms)
        while not answered.kept:
            await first_of(answered, sleep(client.process, LOOK_MS))
            if not answered.kept:
                await self._refresh(partition.topic, LOOK_MS)
                if self.cache.leader(key) != leader:
                    return None
        answer = await answered
        if isinstance(answer, Failure):
            return None
        if (epoch := getattr(answer, "coordinator_epoch", 0)) > self.cache.seen_epoch(key):
            self.cache.see_epoch(key, epoch)
        return answer

    async def _refresh(self, topic_name: str, timeout_ms: float) -> None:
        asked: Promise[metadata_pb2.GetMetadataResponse | None] = Promise()
        start = self._rng.randrange(len(self._node_ids))
        candidates = self._node_ids[start:] + self._node_ids[:start]
        request = metadata_request(self._config.identity(), [topic_name])
        Asking(self._client, candidates, "GetMetadata", request, asked.keep, timeout_ms)
        answer = await asked
        if answer is not None and not answer.error.code:
            self.cache.apply(answer)

    # -- what is asked

    async def enlist(self, attempt: Attempt, *, task: int | None) -> Enlistment | AlreadyCommitted:
        request = enlist_request(attempt, task=task, timeout_ms=self._config.transaction_timeout_ms, expires=False)
        timeout_ms = self._config.request_timeout_ms
        return enlisted(attempt, await self.call("Enlist", attempt.transactional_id, request, timeout_ms=timeout_ms))

    async def keep_alive(self, enlistment: Enlistment) -> None:
        name, timeout_ms = enlistment.attempt.transactional_id, self._config.request_timeout_ms
        await self.call("KeepAlive", name, keep_alive_request(enlistment), timeout_ms=timeout_ms, changes=False)

    async def commit(
        self, attempt: Attempt, winners: Sequence[Winner], contents: Contents, coordinator_epoch: int
    ) -> TransactionOutcome:
        """As Transactions.commit."""
        try:
            return await self._end(attempt, winners, contents, coordinator_epoch)
        except UnknownOutcome as error:
            try:
                outcome = await self.abort(attempt, (), coordinator_epoch)
            except MinilogError:
                raise error from None
            if outcome is TransactionOutcome.COMMITTED:
                return TransactionOutcome.BECOMING_VISIBLE
            raise InvalidTxnState(f"{attempt} is aborted, and nothing of it will be seen: {error}") from error

    async def _end(
        self, attempt: Attempt, winners: Sequence[Winner], contents: Contents, coordinator_epoch: int
    ) -> TransactionOutcome:
        config, client, ending = self._config, self._client, Ending(attempt)
        within_ms = max(config.delivery_timeout_ms, config.request_timeout_ms)
        deadline_ms = client.now_ms + within_ms
        while (remaining_ms := deadline_ms - client.now_ms) > 0:
            call_ms = max(1, int(min(config.request_timeout_ms, remaining_ms)))
            markers_ms = call_ms // MARKERS_SHARE
            request = end_request(
                attempt, winners, contents, timeout_ms=markers_ms, coordinator_epoch=coordinator_epoch
            )
            asked_ms = client.now_ms
            try:
                answer = await self.call("EndTransaction", attempt.transactional_id, request, timeout_ms=call_ms)
                known = ending.answered(outcome_of(answer.outcome))
            except MinilogError as error:
                known = ending.failed(error)
            if known is not None:
                return known
            if client.now_ms < asked_ms + PAUSE_MS:
                await sleep(client.process, PAUSE_MS)
        return ending.out_of_time(within_ms)

    async def abort(self, attempt: Attempt, producer_ids: Sequence[int], coordinator_epoch: int) -> TransactionOutcome:
        request = abort_request(attempt, producer_ids, coordinator_epoch=coordinator_epoch)
        name, timeout_ms = attempt.transactional_id, self._config.request_timeout_ms
        return outcome_of((await self.call("AbortAttempt", name, request, timeout_ms=timeout_ms)).outcome)
