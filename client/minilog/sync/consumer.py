"""The blocking consumer: streams on the background loop, decoding on the caller's thread."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from minilog.aio.consumer_shell import ITERATION_S, POLL_ARROW_BYTES, POLL_BYTES, ConsumerShell, is_an_answer
from minilog.config import parse_config
from minilog.consumer.decode import RECORD_BYTES, DecodedRuns, as_polled, decode_all, records
from minilog.consumer.partition import FetchedRun
from minilog.consumer.row_selection import AS_RECORDS, RowSelection, row_selection
from minilog.consumer.subscription import Topics
from minilog.groups.callbacks import Callback, Callbacks, GroupStep
from minilog.net.lookups import list_topics
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.sync.loop import shared_loop
from minilog.types import GroupMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema


class Consumer:
    """Reads records from topics, each offset once and none skipped. For one thread.

        with Consumer({"bootstrap.servers": "127.0.0.1:9092", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["flights"])
            for record in consumer: ...

    `for record in consumer` waits for records without end. It ends where each partition has an end_offset (`assign`)
    and was read to it, and by `wakeup`. Within the loop the position is behind the record that the program got last:
    this is what `commit` commits.

    Raises InvalidConfig for a setting that is none.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._shell = ConsumerShell(parse_config(config), SYSTEM_RUNTIME)
        self._loop = shared_loop()
        self._polls = self._shell.polls
        self._taking: asyncio.Task[object] | None = None
        self._closed = self._had_corrupt = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these; of a mapping the values are where to begin. Each may say where to begin and where to end
        (exclusive). Without a beginning it is what the group (group.id) has committed, and where there is no group, or
        it has committed nothing, auto.offset.reset.

        Raises InvalidArgument for one given twice or for offsets below 0.
        """
        self._loop.run(self._shell.assign(partitions))

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read all partitions of these topics, from where the group got to, as `assign` does; partitions and topics
        that come later are read from their start.

        With group.protocol=consumer this consumer joins the group as a member. One member reads each partition.
        `on_assigned` gets the partitions that this member reads from now on. `on_revoked` gets those that it gives
        back, before another member reads them: commit there. `on_lost` gets partitions that others may read already
        (by default on_revoked gets them). The callbacks run within a poll, and may commit and seek. The consumer logs
        an error that one of them raises. Without group.protocol=consumer every consumer reads all partitions.

        `topics`: their names, or a pattern such as re.compile("flights-.*") for the whole name. The client looks for
        topics of the pattern as often as metadata.max.age.ms says: new ones are read, and deleted ones are let go.
        Internal topics never match. Raises InvalidArgument for a name alone, and for a pattern as text.
        """
        wanted = topics if isinstance(topics, str | re.Pattern) else list(topics)
        self._loop.run(self._shell.subscribe(wanted, Callbacks(on_assigned, on_revoked, on_lost)))

    def group_metadata(self) -> GroupMetadata:
        """Who commits, for `Transaction.commit_offsets`. Raises InvalidArgument without group.id."""
        self._loop.check_process()
        return self._shell.group_metadata()

    def _tell(self, step: GroupStep) -> None:
        assert self._shell.group is not None
        try:
            step.call(self._shell.group.callbacks)
        finally:
            self._loop.run(self._shell.finish_step(step))

    def _follow_group(self) -> None:
        """Tell a member's program what changes of what it reads, before it gets records."""
        while (step := self._loop.run(self._shell.next_step())) is not None:
            self._tell(step)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. Raises InvalidArgument for a partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.seek(partition, offset)))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the start of the log of these; None: of all that are assigned. Raises InvalidArgument for a
        partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.seek_to("earliest", partitions)))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the end of what may be read of these, so with what is written from now on. As
        `seek_to_beginning`."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.seek_to("latest", partitions)))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out no records of these, and fetch none, until `resume`; None: of all that are assigned. Positions stay.
        What is assigned anew is not paused. Raises InvalidArgument for a partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.pause(partitions)))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out records of these again; None: of all that are paused. Raises InvalidArgument for a partition that is
        not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.resume(partitions)))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        self._loop.check_process()
        return self._shell.core.steering.paused()

    def wakeup(self) -> None:
        """End a poll that waits in another thread: it returns what is there, possibly nothing. Where none waits, the
        next poll does so. `for record in consumer` ends, and may begin again: no record is lost. The only method for
        other threads, and for handlers of signals."""
        self._loop.check_process()
        self._shell.wakeup()

    def assignment(self) -> list[TopicPartition]:
        """What is read now; after `subscribe` once the topics' partitions are known."""
        self._loop.check_process()
        return self._shell.core.assignment()

    def missing_topics(self) -> list[str]:
        """Those subscribed to that were not there when last looked for: the log warns of them, too. They are read from
        their start as soon as they are created."""
        self._loop.check_process()
        return self._shell.core.missing_topics()

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset that is handed out; None while it is being asked for. Raises InvalidArgument."""
        self._settle()
        return self._shell.core.position(partition)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, metadata: str = "") -> None:
        """Keep for the group how far it has got: the next offset to read of each partition given, by default the
        position of all that are assigned. They are committed together, and for good when this returns. `metadata`: a
        text of the committer's beside each, at most 4,096 characters, which a description of the group shows.

        Raises InvalidArgument without group.id or for an offset below 0, OffsetMetadataTooLarge, UnknownTopicId for a
        topic that was deleted, UnknownOutcome where the answer was lost (committing again is safe), RetriableError
        where nothing was done.
        """
        self._loop.run(self._shell.commit(None if offsets is None else dict(offsets), metadata))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """What the group has committed: the next offset to read, None where nothing is. A transaction that holds
        offsets of the group is waited for. Raises InvalidArgument without group.id, UnstableOffsetCommit where the
        transaction has not ended within request.timeout.ms, UnknownTopicOrPartition."""
        return self._loop.run(self._shell.committed(list(partitions)))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of the log of each. The partitions need not be assigned, and no position moves. Raises
        UnknownTopicOrPartition, TimedOut."""
        return self._loop.run(self._shell.ends_of_logs(list(partitions), "earliest"))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of what may be read of each: the last stable offset under isolation.level=read_committed, else the
        high watermark. As `beginning_offsets`."""
        return self._loop.run(self._shell.ends_of_logs(list(partitions), "latest"))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record of each partition whose time stamp, in milliseconds since 1970, is at least
        that one; None where there is none. Raises InvalidArgument for what is no time. As `beginning_offsets`."""
        return self._loop.run(self._shell.offsets_for_times(dict(timestamps)))

    def lag(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        """How many offsets lie between the position and the end of what may be read, as its leader knows it now; None
        where the position is being asked for. Without `partitions`: of all that are assigned. Markers of transactions
        and what was aborted count. Raises InvalidArgument for a partition that is not assigned, TimedOut."""
        return self._loop.run(self._shell.lag(partitions))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, ready for `assign`. Raises UnknownTopicOrPartition."""
        return self._loop.run(self._shell.partitions_for(topic))

    def list_topics(self) -> list[str]:
        """The names of all topics that this user may see, sorted, but for internal ones."""
        return self._loop.run(list_topics(self._shell.cluster))

    def finished(self) -> bool:
        """Have all partitions with an end_offset been read to it?"""
        self._settle()
        return self._shell.core.finished()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        iterated, polls = self._shell.core.iterated, self._polls
        if self._shell.takes_wakeup():
            raise StopIteration
        if iterated and not self._shell.may_iterate_on(time.monotonic() * 1000.0):
            self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
        while not iterated or not polls.are_settled():
            self._settle()
            if not iterated and self._shell.core.has_ended():
                raise StopIteration
            number, taken = self._take(ITERATION_S, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
            iterated.put([record for run, every in taken for rows in every for record in records(run, rows)])
            polls.returned = number
            if self._shell.was_woken:
                raise StopIteration
        return iterated.next()

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The next records, in offset order per partition; an empty list after `timeout` seconds without any.

        One call hands out about 1 MiB as it is on the wire, and at most max.poll.bytes as it is in memory, but at least
        one record. Raises OffsetOutOfRange (see auto.offset.reset), UnknownTopicOrPartition, UnknownTopicId (deleted or
        created again), CorruptMessage (damaged at the third attempt too), and ResourceExhausted where this process has
        not the memory or the threads to decode one batch; nothing is lost by it, and the next poll tries again. A poll
        that ends with an exception, KeyboardInterrupt too, has handed out nothing: the same records come again.
        """
        if self._shell.core.iterated:
            self._settle()
            if self._shell.group is not None:
                self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
            if self._shell.core.iterated:
                return self._shell.core.iterated.take_all()
        number, taken = self._take(timeout, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
        polled = [record for run, every in taken for rows in every for record in records(run, rows)]
        self._polls.returned = number  # the very last thing: before it, an exception gives everything back
        return polled

    def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        include_headers: bool = False,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        metadata: bool = False,
        schemas: Mapping[str, TopicSchema] | None = None,
    ) -> list[pa.RecordBatch]:
        """The same as Arrow batches, of max.poll.bytes and at most one batch more: key, value: binary, topic: string,
        partition: int32, offset: int64, timestamp: timestamp[us, UTC], timestampType: int32 (0), and if wanted headers:
        list<struct<key, value>>.

        Of a topic with a schema: its columns, or `columns` of them in that order, of the rows for which `where` is true
        (SQL over columns: comparisons, in, between, is null, like 'prefix%', and, or, not). Only these travel. With
        `metadata` also _topic, _partition, _offset, _timestamp and _key (and _headers with include_headers). Asking for
        something else than before drops what was fetched ahead. Raises InvalidArgument for what the topic does not
        have, or a `where` that is none.

        `schemas`: the version of its schema to read a topic by, by its name. What this version cannot hold, since a
        column has become wider, raises NarrowSchemaVersion. Where none is named, it is the version that the topic has
        when it is first read: names and order of its columns stay, whatever is renamed, added or dropped meanwhile,
        and their types become wider where a value does not fit."""
        selection = row_selection(columns, where, metadata=metadata, headers=include_headers, schemas=schemas)
        if self._shell.core.iterated:
            self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
        number, taken = self._take(timeout, POLL_ARROW_BYTES, selection)
        batches = [as_polled(run, rows, include_headers=include_headers) for run, every in taken for rows in every]
        self._polls.returned = number  # as in poll
        return batches

    def _take(
        self, timeout: float, max_bytes: int, selection: RowSelection, record_bytes: int = 0
    ) -> tuple[int, DecodedRuns]:
        """The poll's number, to be noted when it returns, and rows."""
        deadline_s = time.monotonic() + timeout
        while True:
            if self._shell.group is not None:
                self._follow_group()
            number = self._polls.begin()
            taken = self._loop.run(self._take_alone(deadline_s - time.monotonic(), max_bytes, selection, number))
            outcome = decode_all(taken, self._shell.config.max_poll_bytes, record_bytes)
            if outcome.corrupt or outcome.rest or self._had_corrupt:  # else the loop need not be visited
                self._loop.run(self._shell.report(outcome))
                self._had_corrupt = bool(outcome.corrupt)
            is_late = time.monotonic() >= deadline_s or self._shell.was_woken
            is_answer = is_late or bool(taken) or not self._shell.has_group_news()
            if is_answer and is_an_answer(taken, outcome, is_late=is_late):
                return number, outcome.good
            self._polls.returned = number  # there was nothing for the program in it

    async def _take_alone(
        self, timeout_s: float, max_bytes: int, selection: RowSelection, number: int
    ) -> list[FetchedRun]:
        """An interrupted poll may still wait here, where the interrupt came before the poll could be cancelled."""
        if self._taking is not None:
            self._taking.cancel()
        self._taking = asyncio.current_task()
        return await self._shell.take(timeout_s, max_bytes, selection, number)

    def _settle(self) -> None:
        """Before a look at the core from this thread."""
        self._loop.check_process()
        if not self._polls.are_settled():
            self._loop.run(self._settle_there())

    async def _settle_there(self) -> None:
        self._shell.settle()

    def close(self, leave: bool = True) -> None:
        """Close the connections. Idempotent. A member calls on_revoked and leaves its group: with group.instance.id for
        a while, else for good. With `leave` False it goes silently, and the group fences it after its session time-out.
        """
        if not self._closed:
            self._closed = True
            if self._shell.says_goodbye and not self._loop.is_gone:
                step = self._loop.run(self._shell.last_step())
                if step is not None:
                    self._tell(step)
            self._loop.close(lambda: self._shell.close(leave=leave))
