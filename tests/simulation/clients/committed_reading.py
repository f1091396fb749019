"""A reader of what is committed: from the beginning of a topic, for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minilog.aio import Consumer
from minilog.errors import OffsetOutOfRange
from minilog.types import Record, TopicPartition
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.machines.machine import ClientMachine


async def read_committed(
    settings: dict[str, object],
    machine: ClientMachine,
    topic: str,
    positions: dict[int, int],
    saw: Callable[[Record], None],
) -> None:
    """`positions`: of each partition the next offset, moved on as it reads. Raises Violation where it is told that what
    it has read is not in the log any more, or is handed something that lies behind it."""
    committed = settings | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    async with Consumer(committed, machine) as consumer:
        await consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions.items()])
        while True:
            try:
                records = await consumer.poll(0.5)
            except OffsetOutOfRange as error:
                raise Violation("V14", str(error)) from error
            for record in records:
                if record.offset < positions[record.partition]:
                    text = f"{topic}-{record.partition} is read at {record.offset} again, where "
                    raise Violation("V14", f"{text}{positions[record.partition]} comes next")
                positions[record.partition] = record.offset + 1
                saw(record)
            for partition in positions:
                positions[partition] = consumer.position(TopicPartition(topic, partition)) or 0
