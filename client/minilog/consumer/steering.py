"""What the user says of the partitions that are read, and where the user is in them. No I/O.

    seek, seek_to    go on from an offset, or from the start or the end of the log
    pause            hand out nothing, and let nothing be sent, until the partition is resumed
    position         the next record that the user gets, also where a program gets its records one by one (iterated.py)

A paused partition keeps its position. Its records that were fetched ahead are dropped, and come again after `resume`.
What is assigned anew is not paused.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from minilog.consumer import requests
from minilog.consumer.iterated import Iterated
from minilog.consumer.partition import Assigned
from minilog.errors import InvalidArgument
from minilog.groups.messages import Committed
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition


class Steering:
    """Of one consumer. `assigned` is the core's own table. Whatever changes is looked at with the core's next poll."""

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
        """Go on from the "earliest" or the "latest" offset of these; None: of all. Raises InvalidArgument."""
        for assigned in self._several(partitions):
            self._leave(assigned)
            assigned.error = None
            assigned.begin_reset(where, self._next_number())

    def _leave(self, assigned: Assigned) -> None:
        """The user goes elsewhere in it."""
        self._iterated.let_go([assigned.partition])
        assigned.broken_runs, assigned.retry_at_ms = 0, 0.0
        self._look_at(assigned)

    def pause(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Hand out nothing of these until they are resumed; None: of all. Raises InvalidArgument."""
        paused = self._several(partitions)
        self.put_iterated_back({assigned.partition for assigned in paused})
        for assigned in paused:
            assigned.hold(self._next_number())
            self._look_at(assigned)

    def resume(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Hand them out again; None: all. Raises InvalidArgument."""
        for assigned in self._several(partitions):
            assigned.is_held = False
            self._look_at(assigned)

    def paused(self) -> list[TopicPartition]:
        """Those that the user has paused."""
        return [partition for partition, assigned in self._assigned.items() if assigned.is_held]

    def put_iterated_back(self, partitions: Container[TopicPartition] | None = None) -> None:
        """The records of these partitions that wait for the program's loop come with a later poll; None: of all."""
        for partition, offset in self._iterated.places().items():
            assigned = self._assigned.get(partition)
            if assigned is not None and (partitions is None or partition in partitions):
                self._leave(assigned)
                assigned.place(offset, self._next_number())

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset that is handed out, None while it is being asked for. Raises InvalidArgument."""
        position = self._get(partition).position
        return self._iterated.places().get(partition, position)

    def consumed(self) -> dict[PartitionKey, Committed]:
        """How far the user has got, as a group commits it: of all partitions whose position is known."""
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
            raise InvalidArgument(f"{requests.name_of(partitions)} is given alone: give a list of partitions")
        return (
            list(self._assigned.values()) if partitions is None else [self._get(partition) for partition in partitions]
        )

    def _get(self, partition: TopicPartition) -> Assigned:
        if partition not in self._assigned:
            raise InvalidArgument(f"{requests.name_of(partition)} is not assigned to this consumer")
        return self._assigned[partition]
