"""The blocking consumer: streams on the background loop, decoding on the caller's thread.

Generated from the classes for asyncio by tools/generate_sync.py: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from minilog.aio.consumer_shell import ITERATION_S, POLL_ARROW_BYTES, POLL_BYTES
from minilog.aio.first_records import offsets_for_times
from minilog.consumer.decode import RECORD_BYTES, as_polled, records
from minilog.consumer.row_selection import AS_RECORDS, row_selection
from minilog.consumer.subscription import Topics
from minilog.groups.callbacks import Callback, Callbacks
from minilog.net.lookups import list_topics
from minilog.sync.base import own
from minilog.sync.base.consumer import ConsumerBase
from minilog.types import GroupMetadata, Record, TopicPartition

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Consumer(ConsumerBase):
    """Reads records from topics: each offset once, and none skipped. For one thread, or in minilog.aio for one event
    loop.

        with Consumer({"bootstrap.servers": "127.0.0.1:9092", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["flights"])
            for record in consumer: ...

    An iteration over the consumer waits for records without end. It ends when each partition has an end_offset
    (`assign`) and has reached it, and by `wakeup`. Within it the position is behind the last record that the program
    got. `commit` commits this position.

    Raises InvalidConfig for an unknown setting or value.
    """

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions. Each may have a first offset and an end (exclusive). In a mapping the values
        are the first offsets. A partition without a first offset begins at the offset that the group (group.id) has
        committed. Without a group, or if it has committed none, auto.offset.reset decides.

        Raises InvalidArgument for a partition given twice and for offsets below 0.
        """
        self._loop.run(self._shell.assign(own(partitions)))

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read all partitions of these topics. They begin as in `assign`, at the group's offsets. Partitions and topics
        that come later begin at their start.

        With group.protocol=consumer this consumer joins the group as a member. One member reads each partition.
        `on_assigned` gets the partitions that this member reads from now on. `on_revoked` gets those that it gives
        back, before another member reads them: commit there. `on_lost` gets partitions that others may read already
        (by default on_revoked gets them). The callbacks run within a poll, and may commit and seek. The consumer logs
        an error that one of them raises. Without group.protocol=consumer every consumer reads all partitions.

        `topics` are names, or a pattern such as re.compile("flights-.*") for the whole name. The client looks for
        topics of the pattern every metadata.max.age.ms. It reads new ones, and lets deleted ones go. Internal topics
        never match. Raises InvalidArgument for one name in place of a list, and for a pattern as text.
        """
        self._loop.run(self._shell.subscribe(own(topics), Callbacks(on_assigned, on_revoked, on_lost)))

    def group_metadata(self) -> GroupMetadata:
        """The group and the member of this consumer, for `Transaction.commit_offsets`. Raises InvalidArgument without
        group.id."""
        self._loop.check_process()
        return self._shell.group_metadata()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. Raises InvalidArgument for a partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.seek(partition, offset)))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the start of the logs of these partitions, or of all assigned ones if None. Raises InvalidArgument
        for a partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.seek_to("earliest", partitions)))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the end of the readable records of these partitions, or of all assigned ones if None. So the
        program gets the records that come from now on. Raises InvalidArgument for a partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.seek_to("latest", partitions)))

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out no records of these partitions, and fetch none, until `resume`. None means all assigned ones.
        Positions stay. A newly assigned partition is not paused. Raises InvalidArgument for a partition that is not
        assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.pause(partitions)))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out records of these partitions again. None means all paused ones. Raises InvalidArgument for a
        partition that is not assigned."""
        self._loop.run(self._shell.change(lambda: self._shell.core.steering.resume(partitions)))

    def paused(self) -> list[TopicPartition]:
        """The paused partitions."""
        self._loop.check_process()
        return self._shell.core.steering.paused()

    def wakeup(self) -> None:
        """End a poll that waits in another thread. It returns the records that have come, possibly none. If no poll
        waits, this ends the next one. An iteration ends, and may begin again: no record is lost. Other threads, and
        handlers of signals, may call only this method."""
        self._loop.check_process()
        self._shell.wakeup()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now. After `subscribe` they come when the client has the metadata of
        the topics."""
        self._loop.check_process()
        return self._shell.core.assignment()

    def missing_topics(self) -> list[str]:
        """The subscribed topics that did not exist at the last look. The log warns of them, too. The consumer reads
        them from their start as soon as they exist."""
        self._loop.check_process()
        return self._shell.core.missing_topics()

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that the program gets. None while the client still asks for it. Raises
        InvalidArgument."""
        self._loop.check_process()
        self._settle()
        return self._shell.core.position(partition)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, metadata: str = "") -> None:
        """Commit offsets for the group: the next offset to read of each given partition. By default these are the
        positions of all assigned partitions. All are committed together, and for good when this returns. `metadata` is
        a text beside each offset, at most 4,096 characters. A description of the group shows it.

        Raises InvalidArgument without group.id or for an offset below 0, OffsetMetadataTooLarge, UnknownTopicId for a
        deleted topic, UnknownOutcome for a lost answer (a second commit is safe), and RetriableError if nothing was
        committed.
        """
        self._loop.run(self._shell.commit(own(offsets), metadata))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offsets that the group has committed: the next to read of each partition, or None. This waits for a
        transaction that holds offsets of the group. Raises InvalidArgument without group.id, UnstableOffsetCommit if
        the transaction has not ended within request.timeout.ms, UnknownTopicOrPartition."""
        return self._loop.run(self._shell.committed(list(partitions)))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of the log of each partition. The partitions need not be assigned, and no position moves.
        Raises UnknownTopicOrPartition, TimedOut."""
        return self._loop.run(self._shell.ends_of_logs(own(partitions), "earliest"))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of the readable records of each partition. Under isolation.level=read_committed it is the last stable
        offset, and otherwise the high watermark. Raises UnknownTopicOrPartition, TimedOut."""
        return self._loop.run(self._shell.ends_of_logs(own(partitions), "latest"))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record of each partition at or after its time, in milliseconds since 1970. None if
        all records are older. Raises InvalidArgument for a value that is no time, UnknownTopicOrPartition, TimedOut."""
        return self._loop.run(offsets_for_times(self._shell.cluster, own(timestamps)))

    def lag(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int | None]:
        """The number of offsets from the position to the end of the readable records, as the leader knows it now. None
        while the client still asks for the position. Without `partitions` it is for all assigned ones. Markers of
        transactions and aborted records count. Raises InvalidArgument for a partition that is not assigned,
        TimedOut."""
        return self._loop.run(self._shell.lag(own(partitions)))

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, ready for `assign`. Raises UnknownTopicOrPartition."""
        return self._loop.run(self._shell.partitions_for(topic))

    def list_topics(self) -> list[str]:
        """The sorted names of all topics that this user may see, without internal ones."""
        return self._loop.run(list_topics(self._shell.cluster))

    def finished(self) -> bool:
        """Whether all partitions with an end_offset have reached it."""
        self._loop.check_process()
        self._settle()
        return self._shell.core.finished()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        iterated, polls = self._shell.core.iterated, self._shell.polls
        if self._shell.takes_wakeup():
            raise StopIteration
        if self._shell.group is not None and iterated and not self._shell.may_iterate_on(self._now_ms()):
            self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
        while not iterated or not polls.are_settled():
            self._settle()
            if not iterated and self._shell.core.has_ended():
                raise StopIteration
            number, taken = self._take(ITERATION_S, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
            taken_records = [record for run, every in taken for rows in every for record in records(run, rows)]
            if self._shell.may_hand_out(self._now_ms()):
                iterated.put(taken_records)
                polls.returned = number
            if self._shell.was_woken:
                raise StopIteration
        return iterated.next()

    def poll(self, timeout: float = 1.0) -> list[Record]:
        """The next records, in the order of their offsets in each partition. After `timeout` seconds without records it
        is an empty list.

        One call hands out about 1 MiB (as on the wire), at most max.poll.bytes (in memory), and at least one record.
        Raises OffsetOutOfRange (see auto.offset.reset), UnknownTopicOrPartition, UnknownTopicId (deleted or created
        again), and CorruptMessage (damaged at the third attempt too). Raises ResourceExhausted if this process lacks
        the memory or the threads to decode one batch. That loses nothing, and the next poll tries again. A poll that
        ends with an exception, KeyboardInterrupt too, has handed out nothing: the same records come again.
        """
        if self._shell.core.iterated:
            self._settle()
            if self._shell.group is not None:
                self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
            if self._shell.core.iterated:
                return self._shell.core.iterated.take_all()
        number, taken = self._take(timeout, POLL_BYTES, AS_RECORDS, RECORD_BYTES)
        polled = [record for run, every in taken for rows in every for record in records(run, rows)]
        if not self._shell.may_hand_out(self._now_ms()):
            return []
        self._shell.polls.returned = number  # the very last act: an exception before it gives all records back
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
        deletes: bool = False,
    ) -> list[pa.RecordBatch]:
        """The next records as Arrow batches, of max.poll.bytes and at most one batch more. The columns are key, value:
        binary, topic: string, partition: int32, offset: int64, timestamp: timestamp[us, UTC], timestampType: int32 (0),
        and with include_headers headers: list<struct<key, value>>.

        A topic with a schema gives its columns, or `columns` of them in that order. It gives the rows for which `where`
        is true (SQL over columns: comparisons, in, between, is null, like 'prefix%', and, or, not). Only these travel.
        With `metadata` there are also _topic, _partition, _offset, _timestamp and _key (and _headers with
        include_headers). Another selection than before drops the records that were fetched ahead. Raises
        InvalidArgument for a column that the topic does not have, and for a `where` that is not valid.

        `schemas` has the version of the schema to read a topic by, by the topic's name. A value that this version
        cannot hold, since a column has become wider, raises NarrowSchemaVersion. Without an entry the consumer takes
        the version that the topic has at the first read. The names and the order of the columns stay, even if columns
        are renamed, added or dropped meanwhile. Their types become wider if a value does not fit.

        With `deletes` there are also the rows that delete their key, and a last column `_deleted` (boolean). In such a
        row all columns but those of the key are null. They come whatever `where` says. Without `deletes` they are left
        out."""
        selection = row_selection(
            columns, where, metadata=metadata, headers=include_headers, schemas=schemas, deletes=deletes
        )
        if self._shell.core.iterated:
            self._loop.run(self._shell.change(self._shell.core.steering.put_iterated_back))
        number, taken = self._take(timeout, POLL_ARROW_BYTES, selection)
        batches = [as_polled(run, rows, include_headers=include_headers) for run, every in taken for rows in every]
        if not self._shell.may_hand_out(self._now_ms()):
            return []
        self._shell.polls.returned = number  # as in poll
        return batches

    def close(self, leave: bool = True) -> None:
        """Close the connections. Idempotent. A member calls on_revoked and leaves its group: for a while if it has a
        group.instance.id, otherwise for good. With `leave` False it goes silently, and the group fences it after its
        session time-out."""
        self._close(leave)
