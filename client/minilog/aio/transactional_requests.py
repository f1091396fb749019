"""The requests of one producer to coordinators of groups and queues, as part of its transaction.

Offsets and settlements are pending until the marker of the producer. The producer numbers its requests to each
partition of an internal topic, from 0 on (docs/spec/transactions.md § Groups). The commit names the last number of each
partition, as it names the last sequence of each partition with records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from minilog.errors import InvalidTxnState, MinilogError
from minilog.groups.client import Groups
from minilog.groups.messages import Committed, committing_member
from minilog.limits import settlement_parts
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME, coordinator_partition
from minilog.net.network_client import NetworkClient
from minilog.partition_key import PartitionKey
from minilog.queues.client import Queues
from minilog.queues.message import Message, Verdict
from minilog.queues.settling import Span, merged
from minilog.transactions.messages import Enlistment, WrittenPartition
from minilog.types import GroupMetadata, TopicPartition
from minilog.v1 import coordinator_pb2, queue_pb2


class TransactionalRequests:
    """`fail` gets the error of a request. The transaction must not commit then: the coordinator may have the request,
    and refuses a commit without it."""

    def __init__(self, cluster: NetworkClient, enlistment: Enlistment, fail: Callable[[MinilogError], None]) -> None:
        self.enlistment = enlistment
        self.has_ended = False
        self._cluster = cluster
        self._fail = fail
        self._groups, self._queues = Groups(cluster), Queues(cluster)
        self._sequences: dict[TopicPartition, int] = {}  # the last one, by partition of an internal topic
        self._lock = asyncio.Lock()  # one request at a time: they are numbered

    async def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read. Raises the error of the group's coordinator."""
        if not offsets:
            return
        committer = GroupMetadata(group) if isinstance(group, str) else group

        async def commit(part: coordinator_pb2.TransactionalCommit) -> None:
            keys, member = await self._keys(offsets), committing_member(committer)
            await self._groups.commit(committer.group_id, keys, part, member)

        what = f"a commit of offsets for group '{committer.group_id}'"
        await self._ask(GROUPS_TOPIC_NAME, committer.group_id, what, commit)

    async def settle(self, queue: str, messages: Sequence[Message]) -> None:
        """Accept messages of a queue. Raises InvalidRecordState, and the error of the queue's coordinator."""
        singles = (Span(message.held, message.offset, message.offset, Verdict.ACCEPT) for message in messages)
        for spans in settlement_parts(merged(singles), lambda span: span.held.key):
            settlements = [span.to_wire() for span in spans]
            settle = partial(self._queues.settle_in_transaction, queue, settlements)
            await self._ask(QUEUES_TOPIC_NAME, queue, f"a settlement of queue '{queue}'", settle)

    async def rewrite_letters(self, queue: str, letters: queue_pb2.RewrittenLetters) -> None:
        """These letters of a queue are redriven. Raises InvalidRecordState, and the error of the coordinator."""
        rewrite = partial(self._queues.rewrite_letters, queue, letters)
        await self._ask(QUEUES_TOPIC_NAME, queue, f"a redrive of queue '{queue}'", rewrite)

    async def finish(self) -> tuple[WrittenPartition, ...]:
        """Wait for the request under way, and refuse later ones. The partitions of the coordinators, with their last
        numbers."""
        async with self._lock:
            self.has_ended = True
        topics = self._cluster.cache.topics
        return tuple(
            WrittenPartition(topics[partition.topic].topic_id, partition.partition, last)
            for partition, last in self._sequences.items()
        )

    async def _ask(
        self,
        topic_name: str,
        name: str,
        what: str,
        ask: Callable[[coordinator_pb2.TransactionalCommit], Awaitable[None]],
    ) -> None:
        """One request to the coordinator of a name, with its number. A request that fails ends the transaction: the
        coordinator may have it, and then refuses a commit without it."""
        partition = TopicPartition(topic_name, coordinator_partition(name))
        async with self._lock:
            if self.has_ended:
                raise InvalidTxnState(f"the transaction has ended: make {what}, and await it, inside of its block")
            sequence = self._sequences.get(partition, -1) + 1
            part = coordinator_pb2.TransactionalCommit(
                transactional_id=self.enlistment.attempt.transactional_id,
                producer_id=self.enlistment.producer_id,
                sequence=sequence,
                producer_proof=self.enlistment.producer_proof,
            )
            try:
                await ask(part)
            except BaseException as error:
                if not self.has_ended:  # otherwise the producer may be in another transaction
                    given_up = InvalidTxnState(f"the program cancelled {what}")
                    self._fail(error if isinstance(error, MinilogError) else given_up)
                raise
            self._sequences[partition] = sequence

    async def _keys(self, offsets: Mapping[TopicPartition, int]) -> dict[PartitionKey, Committed]:
        cluster = self._cluster
        for topic in {partition.topic for partition in offsets}:
            await cluster.topic(topic, cluster.deadline())
        return {cluster.cache.key(partition): Committed(offset) for partition, offset in offsets.items()}
