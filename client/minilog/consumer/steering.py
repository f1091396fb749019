"""The user's control of the assigned partitions, and the user's positions in them. No I/O.

    seek, seek_to    go on from an offset, or from the start or the end of the log
    pause            hand out nothing, and fetch nothing, until the user resumes the partition
    position         the next record that the user gets, also if a program gets its records one by one (iterated.py)

A paused partition keeps its position. The consumer drops its records that it fetched ahead. They come again after
`resume`. A newly assigned partition is not paused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from minilog.consumer import requests
from minilog.consumer.iterated import Iterated
from minilog.consumer.partition import Assigned
from minilog.errors import InvalidArgument, MinilogError
from minilog.groups.messages import Committed
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition


class Steering:
    """The steering of one consumer. `assigned` is the core's own table. The core's next poll looks at each partition
    that changes."""

    def __init__(
        self,
        assigned: Mapping[TopicPartition, Assigned],
        iterated: Iterated,
        next_number: Callable[[], int],
        look_at: Callable[[Assigned], None],
    ) -> None:
        self._assigned = assigned
        self._iterated = iterated
        self._next_number = next_number
        self._look_at = look_at

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`. Raises InvalidArgument for a partition that is not assigned."""
        assigned = self._get(partition)
        if offset < 0:
            raise InvalidArgument(f"{requests.name_of(partition)} has no offset {offset}: offsets begin at 0")
        self._leave(assigned)
        assigned.place(offset, self._next_number())

    def seek_to(self, where: str, partitions: Iterable[TopicPartition] | None) -> None:
        """Go on from the "earliest" or the "latest" offset of these partitions, or of all if None. Raises
        InvalidArgument."""
        for assigned in self._several(partitions):
            self._leave(assigned)
            assigned.error = None
            assigned.begin_reset(where, self._next_number())

    def _leave(self, assigned: Assigned) -> None:
        """The user goes elsewhere in this partition."""
        self._iterated.let_go([assigned.partition])
        assigned.broken_runs, assigned.retry_at_ms = 0, 0.0
        self._look_at(assigned)

    def pause(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Hand out nothing of these partitions until the user resumes them, or of all if None. Raises
        InvalidArgument."""
        paused = self._several(partitions)
        self.put_iterated_back({assigned.partition for assigned in paused})
        for assigned in paused:
            assigned.hold(self._next_number())
            self._look_at(assigned)

    def resume(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Hand out records of these partitions again, or of all if None. Raises InvalidArgument."""
        for assigned in self._several(partitions):
            assigned.is_held = False
            self._look_at(assigned)

    def paused(self) -> list[TopicPartition]:
        """The partitions that the user has paused."""
        return [partition for partition, assigned in self._assigned.items() if assigned.is_held]

    def failures(self) -> dict[TopicPartition, MinilogError]:
        """The partitions that cannot go on by themselves, with the reason."""
        return {p: assigned.error for p, assigned in self._assigned.items() if assigned.error is not None}

    def put_iterated_back(self, partitions: Container[TopicPartition] | None = None) -> None:
        """Put back the records that wait for the program's loop: they come with a later poll. These are the records of
        these partitions, or of all if None."""
        for partition, offset in self._iterated.places().items():
            assigned = self._assigned.get(partition)
            if assigned is not None and (partitions is None or partition in partitions):
                self._leave(assigned)
                assigned.place(offset, self._next_number())

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the user's next record. None while the client still asks for it. Raises InvalidArgument."""
        position = self._get(partition).position
        return self._iterated.places().get(partition, position)

    def consumed(self) -> dict[PartitionKey, Committed]:
        """The user's positions, in the form that a group commits. Partitions without a position are left out."""
        waiting = self._iterated.places()
        return {
            assigned.key: Committed(waiting[partition])
            if partition in waiting
            else Committed(assigned.position, assigned.position_epoch)
            for partition, assigned in self._assigned.items()
            if assigned.key is not None and assigned.position is not None
        }

    def _several(self, partitions: Iterable[TopicPartition] | None) -> list[Assigned]:
        if isinstance(partitions, TopicPartition):
            raise InvalidArgument(f"{requests.name_of(partitions)} is not a list: give a list of partitions")
        return (
            list(self._assigned.values()) if partitions is None else [self._get(partition) for partition in partitions]
        )

    def _get(self, partition: TopicPartition) -> Assigned:
        if partition not in self._assigned:
            raise InvalidArgument(f"{requests.name_of(partition)} is not assigned to this consumer")
        return self._assigned[partition]
