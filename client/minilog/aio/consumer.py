"""The consumer for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from minilog.aio.consumer_shell import POLL_ARROW_BYTES, POLL_BYTES, ConsumerShell, is_an_answer
from minilog.config import parse_config
from minilog.consumer.decode import RECORD_BYTES, DecodedRuns, as_polled, decode_all, records
from minilog.consumer.row_selection import AS_RECORDS, RowSelection, row_selection
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime, now_s
from minilog.types import Record, TopicPartition

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema


class Consumer:
    """Reads records; see minilog.Consumer for the meaning of everything. Use it on one event loop."""

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._shell = ConsumerShell(parse_config(config), runtime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        await self._shell.change(lambda: self._shell.core.assign(partitions))

    async def subscribe(self, topics: Iterable[str]) -> None:
        await self._shell.change(lambda: self._shell.core.subscribe(topics))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        await self._shell.change(lambda: self._shell.core.seek(partition, offset))

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

    def finished(self) -> bool:
        self._shell.settle()
        return self._shell.core.finished()

    async def poll(self, timeout: float = 1.0) -> list[Record]:  # noqa: ASYNC109
        number, taken = await self._decoded(timeout, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
        found = [record for run, every in taken for rows in every for record in records(run, rows)]
        self._shell.polls.returned = number
        return found

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109
        *,
        include_headers: bool = False,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        metadata: bool = False,
        schemas: Mapping[str, TopicSchema] | None = None,
    ) -> list[pa.RecordBatch]:
        selection = row_selection(columns, where, metadata=metadata, headers=include_headers, schemas=schemas)
        number, taken = await self._decoded(timeout, POLL_ARROW_BYTES, selection)
        found = [as_polled(run, rows, include_headers=include_headers) for run, every in taken for rows in every]
        self._shell.polls.returned = number
        return found

    async def _decoded(
        self,
        timeout: float,  # noqa: ASYNC109
        max_bytes: int,
        selection: RowSelection,
        record_bytes: int = 0,
    ) -> tuple[int, DecodedRuns]:
        """The poll's number, to be noted when it returns, and rows."""
        deadline_s = now_s() + timeout
        while True:
            number = self._shell.polls.begin()
            taken = await self._shell.take(deadline_s - now_s(), max_bytes, selection, number)
            outcome = decode_all(taken, self._shell.config.max_poll_bytes, record_bytes)
            await self._shell.report(outcome)  # nothing else runs between taking and putting back
            if is_an_answer(taken, outcome, is_late=now_s() >= deadline_s):
                return number, outcome.good
            self._shell.polls.returned = number  # there was nothing for the program in it

    async def close(self) -> None:
        await self._shell.close()
