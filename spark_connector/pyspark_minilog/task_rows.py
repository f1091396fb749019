"""What the driver gives to a task of the source about topics with a schema. typed_rows.py makes it on the driver.

Before its process settles in (worker.py), a task loads this module and the one that reads such topics, and no more of
them."""

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
