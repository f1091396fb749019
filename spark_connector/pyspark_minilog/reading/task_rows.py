"""The part of a read task for topics with a schema. typed_rows.py makes it on the driver, and Spark takes it to the
task.

Before its process settles in (login/worker.py), a task loads only this module and the module that reads such topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import minilog.typed.rows.reader  # noqa: F401

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


@dataclass(frozen=True)
class TaskRows:
    """The arguments of a task's poll, with `schemas` by topic. With `as_kafka`, rows become keys and values."""

    schemas: dict[str, TopicSchema]
    columns: tuple[str, ...] | None
    where: str | None
    metadata: bool
    as_kafka: bool
    deletes: bool = False
