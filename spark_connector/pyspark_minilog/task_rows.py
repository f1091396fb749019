"""What a task of the source is told of topics with a schema. typed_rows.py makes it on the driver. A task loads no more
than this of it, and with it what reads such topics: before its process settles in (worker.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import minilog.typed.reader  # noqa: F401

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema


@dataclass(frozen=True)
class TaskRows:
    """What a task asks its consumer for, `schemas` by topic; `as_kafka`: rows become keys and values."""

    schemas: dict[str, TopicSchema]
    columns: tuple[str, ...] | None
    where: str | None
    metadata: bool
    as_kafka: bool
