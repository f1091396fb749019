"""The consumer for asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from minilog.aio.consumer_shell import ITERATION_S, POLL_ARROW_BYTES, POLL_BYTES, ConsumerShell, is_an_answer
from minilog.aio.first_records import offsets_for_times
from minilog.config import parse_consumer_config
from minilog.consumer.decode import RECORD_BYTES, DecodedRuns, as_polled, decode_all, records
from minilog.consumer.row_selection import AS_RECORDS, RowSelection, row_selection
from minilog.consumer.subscription import Topics
from minilog.groups.callbacks import Callback, Callbacks, GroupStep
from minilog.net.lookups import list_topics
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime, now_s
from minilog.types import GroupMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Consumer:
    """Reads records. The methods have the meaning of those of minilog.Consumer. Use it on one event loop."""

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._shell = ConsumerShell(parse_consumer_config(config), runtime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        await self._shell.assign(partitions)

    async def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        await self._shell.subscribe(topics, Callbacks(on_assigned, on_revoked, on_lost))

    def group_metadata(self) -> GroupMetadata:
        return self._shell.group_metadata()

    async def _tell(self, step: GroupStep) -> None:
        """Call the program's callback for a step. The callback may be a coroutine function."""
        assert self._shell.group is not None
        result = step.call(self._shell.group.callbacks)
        if inspect.isawaitable(result):
            try:
                await result
            except Exception as error:
                step.failed(error)

    async def _follow_group(self) -> None:
        """Tell a member's program of the changes of its partitions, before it gets records."""
        while (step := await self._shell.next_step()) is not None:
            try:
                await self._tell(step)
            finally:
                await self._shell.finish_step(step)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        await self._shell.change(lambda: self._shell.core.seek(partition, offset))

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._shell.change(lambda: self._shell.core.steering.seek_to("earliest", partitions))

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._shell.change(lambda: self._shell.core.steering.seek_to("latest", partitions))

    async def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._shell.change(lambda: self._shell.core.steering.pause(partitions))

    async def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        await self._shell.change(lambda: self._shell.core.steering.resume(partitions))

    def paused(self) -> list[TopicPartition]:
        return self._shell.core.steering.paused()

    def wakeup(self) -> None:
        self._shell.wakeup()

    def assignment(self) -> list[TopicPartition]:
        return self._shell.core.assignment()

    def missing_topics(self) -> list[str]:
        return self._shell.core.missing_topics()

    def position(self, partition: TopicPartition) -> int | None:
        self._shell.settle()
        return self._shell.core.position(partition)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, metadata: str = "") -> None:
        await self._shell.commit(offsets, metadata)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return await self._shell.committed(list(partitions))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._shell.ends_of_logs(partitions, "earliest")

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._shell.ends_of_logs(partitions, "latest")

    async def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return await offsets_for_times(self._shell.cluster, timestamps)

    async def lag(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        return await self._shell.lag(partitions)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        return await self._shell.partitions_for(topic)

    async def list_topics(self) -> list[str]:
        return await list_topics(self._shell.cluster)

    def finished(self) -> bool:
        self._shell.settle()
        return self._shell.core.finished()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        shell, iterated = self._shell, self._shell.core.iterated
        if shell.takes_wakeup():
            raise StopAsyncIteration
        if iterated and not shell.may_iterate_on(now_s() * 1000.0):
            shell.core.steering.put_iterated_back()
        while not iterated or not shell.polls.are_settled():
            shell.settle()
            if not iterated and shell.core.has_ended():
                raise StopAsyncIteration
            number, taken = await self._decoded(ITERATION_S, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
            taken_records = [record for run, every in taken for rows in every for record in records(run, rows)]
            if shell.may_hand_out(now_s() * 1000.0):
                iterated.put(taken_records)
                shell.polls.returned = number
            if shell.was_woken:
                raise StopAsyncIteration
        return iterated.next()

    async def poll(self, timeout: float = 1.0) -> list[Record]:  # noqa: ASYNC109
        self._shell.settle()
        if self._shell.core.iterated and self._shell.group is not None:
            await self._shell.change(self._shell.core.steering.put_iterated_back)
        if self._shell.core.iterated:
            return self._shell.core.iterated.take_all()
        number, taken = await self._decoded(timeout, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
        polled = [record for run, every in taken for rows in every for record in records(run, rows)]
        if not self._shell.may_hand_out(now_s() * 1000.0):
            return []
        self._shell.polls.returned = number
        return polled

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109
        *,
        include_headers: bool = False,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        metadata: bool = False,
        schemas: Mapping[str, TopicSchema] | None = None,
        deletes: bool = False,
    ) -> list[pa.RecordBatch]:
        selection = row_selection(
            columns, where, metadata=metadata, headers=include_headers, schemas=schemas, deletes=deletes
        )
        await self._shell.change(self._shell.core.steering.put_iterated_back)
        number, taken = await self._decoded(timeout, POLL_ARROW_BYTES, selection)
        batches = [as_polled(run, rows, include_headers=include_headers) for run, every in taken for rows in every]
        if not self._shell.may_hand_out(now_s() * 1000.0):
            return []
        self._shell.polls.returned = number
        return batches

    async def _decoded(
        self,
        timeout: float,  # noqa: ASYNC109
        max_bytes: int,
        selection: RowSelection,
        record_bytes: int = 0,
    ) -> tuple[int, DecodedRuns]:
        """The number of the poll, and its rows. The caller notes the number when it returns."""
        deadline_s = now_s() + timeout
        while True:
            if self._shell.group is not None:
                await self._follow_group()
            number = self._shell.polls.begin()
            taken = await self._shell.take(deadline_s - now_s(), max_bytes, selection, number)
            outcome = decode_all(taken, self._shell.config.max_poll_bytes, record_bytes)
            await self._shell.report(outcome)  # no other task runs between `take` and this
            is_late = now_s() >= deadline_s or self._shell.was_woken
            is_answer = is_late or bool(taken) or not self._shell.has_group_news()
            if is_answer and is_an_answer(taken, outcome, is_late=is_late):
                return number, outcome.good
            self._shell.polls.returned = number  # it had nothing for the program

    async def close(self, leave: bool = True) -> None:
        if (step := await self._shell.last_step()) is not None:
            try:
                await self._tell(step)
            finally:
                await self._shell.finish_step(step)
        await self._shell.close(leave=leave)
