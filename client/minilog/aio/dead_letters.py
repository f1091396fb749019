"""Carries the dead records of a worker to the dead-letter topic, by a producer that is made when it is needed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from minilog.aio.producer import Producer
from minilog.client_config import ClientConfig
from minilog.config import ACKS_ALL
from minilog.errors import MessageTooLarge, MinilogError
from minilog.net.runtime import Runtime, now_ms
from minilog.queues.dead_letters import CarryDeadLetters, letter_of
from minilog.queues.leases import DeadLetterTopic
from minilog.queues.message import Message

TRANSACTION_TIMEOUT_MS = 60_000  # a transaction takes less than a second where brokers answer
_WARNING_PAUSE_MS = 60_000.0  # between two warnings: each letter is tried again every few seconds
_log = logging.getLogger(__name__)


def carrying_config(config: ClientConfig, transactional_id: str) -> ClientConfig:
    """The settings of the producer: those of the worker, with transactions. Where a worker dies, readers of the
    dead-letter topic wait until its transaction times out."""
    return dataclasses.replace(
        config,
        queue="",
        acks=ACKS_ALL,
        enable_idempotence=True,
        transactional_id=transactional_id,
        transaction_timeout_ms=config.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS,
    )


class DeadLetterCarrier:
    """Carries dead records. Lives on one event loop."""

    def __init__(self, config: ClientConfig, runtime: Runtime, transactional_id: str) -> None:
        self._config = carrying_config(config, transactional_id)
        self._queue = config.queue
        self._runtime = runtime
        self._producer: Producer | None = None
        self._warn_again_ms = 0.0

    async def carry(self, ask: CarryDeadLetters) -> None:
        """Write the letters and accept the records, in one transaction. What cannot be carried stays without a verdict,
        or is given back by its transaction. It is carried again later, by any worker."""
        try:
            await self._carry(ask.topic, ask.messages)
        except MessageTooLarge as error:
            await self._carry_single(ask, error)
        except MinilogError as error:
            await self._failed(ask.topic, error)

    async def _carry_single(self, ask: CarryDeadLetters, error: MessageTooLarge) -> None:
        """One letter is too large: without its record it is small."""
        for message in ask.messages:
            try:
                try:
                    await self._carry(ask.topic, [message])
                except MessageTooLarge:
                    _log.warning(
                        "queue %r: offset %d of partition %d of topic %r goes to the dead-letter topic %r without its "
                        "key and value, which are too large for it: %s",
                        self._queue,
                        message.offset,
                        message.partition,
                        message.topic,
                        ask.topic.name,
                        error,
                    )
                    await self._carry(ask.topic._replace(copies_records=False), [message])
            except MinilogError as failure:
                await self._failed(ask.topic, failure)

    async def _carry(self, topic: DeadLetterTopic, messages: Sequence[Message]) -> None:
        if self._producer is None:
            self._producer = Producer(self._config, self._runtime)
        producer = self._producer
        async with producer.transaction() as transaction:
            letters = [letter_of(message, copies_record=topic.copies_records) for message in messages]
            futures = [
                await producer.send(topic.name, letter.value, key=letter.key, headers=letter.headers)
                for letter in letters
            ]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            await transaction.settle(messages)

    async def _failed(self, topic: DeadLetterTopic, error: MinilogError) -> None:
        """Begin anew with another producer the next time: this one may be fenced."""
        if now_ms() >= self._warn_again_ms:
            self._warn_again_ms = now_ms() + _WARNING_PAUSE_MS
            _log.warning(
                "queue %r: dead records do not reach the dead-letter topic %r, and wait in the queue: %s. Is the topic "
                "there, without a schema, and may this client write to it?",
                self._queue,
                topic.name,
                error,
            )
        await self.close()

    async def close(self) -> None:
        """End the producer, and what it is sending."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(0.0)
