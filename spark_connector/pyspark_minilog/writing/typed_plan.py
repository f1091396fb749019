"""The plan of a write to a topic with a schema. typed_sink.py makes it on the driver, and Spark takes it to the tasks.

Before its process settles in (login/worker.py), a task loads only this module and the module that writes such
topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import minilog.producer.typed_rows  # noqa: F401
from pyspark_minilog.writing.sink import Payload

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog.typed.schema.topic_schema import TopicSchema


@dataclass(frozen=True)
class TypedPlan:
    """Rows for one topic, by this version of its schema. `columns` has the DataFrame's columns in the topic's
    spelling. `is_pending`: the version becomes the topic's latest with the commit of the write (typed_sink.py)."""

    topic: str
    schema: TopicSchema
    columns: tuple[str, ...]
    is_pending: bool = False

    def topics(self, batch: pa.RecordBatch) -> frozenset[str]:
        """The topics of the rows of `batch`."""
        return frozenset([self.topic] if batch.num_rows else [])

    def payloads(self, batch: pa.RecordBatch) -> Iterator[Payload]:
        """The rows as they are: the producer matches them by name, or refuses them."""
        yield Payload(self.topic, None, self.written(batch), self.schema)

    def written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns in the topic's spelling."""
        return batch.rename_columns(list(self.columns))
