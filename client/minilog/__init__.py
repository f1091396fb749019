"""minilog for Python programs: Producer, Consumer, QueueConsumer and Admin. They block here. Those of `minilog.aio` are
for asyncio.

Importing this package is light: nothing that needs gRPC or Arrow is loaded before a name is used. Every error is a
MinilogError with a stable `code`; see minilog.errors.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minilog import aio as aio
    from minilog.errors import BufferExhausted as BufferExhausted
    from minilog.errors import MinilogError as MinilogError
    from minilog.errors import RetriableError as RetriableError
    from minilog.errors import UnknownOutcome as UnknownOutcome
    from minilog.properties import properties_file as properties_file
    from minilog.scanning.scan import Scan as Scan
    from minilog.scanning.scan import scan as scan
    from minilog.sync.admin import Admin as Admin
    from minilog.sync.consumer import Consumer as Consumer
    from minilog.sync.producer import Producer as Producer
    from minilog.sync.queue_consumer import QueueConsumer as QueueConsumer
    from minilog.typed.ddl import schema_from_ddl as schema_from_ddl
    from minilog.typed.expressions import col as col
    from minilog.typed.schema_json import schema_from_json as schema_from_json
    from minilog.typed.topic_schema import TopicSchema as TopicSchema
    from minilog.typed.topic_schema import schema_from_arrow as schema_from_arrow
    from minilog.types import BatchMetadata as BatchMetadata
    from minilog.types import NewTopic as NewTopic
    from minilog.types import Record as Record
    from minilog.types import RecordMetadata as RecordMetadata
    from minilog.types import TopicAlteration as TopicAlteration
    from minilog.types import TopicPartition as TopicPartition

# gRPC's own handlers of forks work half where its threads run: one child in five died of them, though it made no call.
# gRPC reads this when it is imported. What works in a child, and what does not: net/home.py.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Without it gRPC writes a line to stderr for each handshake of TLS that fails. The errors of minilog have the reason.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__all__ = [
    "Admin",
    "BatchMetadata",
    "BufferExhausted",
    "Consumer",
    "MinilogError",
    "NewTopic",
    "Producer",
    "QueueConsumer",
    "Record",
    "RecordMetadata",
    "RetriableError",
    "Scan",
    "TopicAlteration",
    "TopicPartition",
    "TopicSchema",
    "UnknownOutcome",
    "aio",
    "col",
    "properties_file",
    "scan",
    "schema_from_arrow",
    "schema_from_ddl",
    "schema_from_json",
]

_HOME = {
    "Admin": "minilog.sync.admin",
    "Consumer": "minilog.sync.consumer",
    "Producer": "minilog.sync.producer",
    "QueueConsumer": "minilog.sync.queue_consumer",
    "Scan": "minilog.scanning.scan",
    "scan": "minilog.scanning.scan",
    "BatchMetadata": "minilog.types",
    "NewTopic": "minilog.types",
    "Record": "minilog.types",
    "RecordMetadata": "minilog.types",
    "TopicAlteration": "minilog.types",
    "TopicPartition": "minilog.types",
    "TopicSchema": "minilog.typed.topic_schema",
    "col": "minilog.typed.expressions",
    "properties_file": "minilog.properties",
    "schema_from_arrow": "minilog.typed.topic_schema",
    "schema_from_ddl": "minilog.typed.ddl",
    "schema_from_json": "minilog.typed.schema_json",
}
_MODULES = ("aio", "errors", "types")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"minilog.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'minilog' has no attribute {name!r}")
    errors = importlib.import_module("minilog.errors")
    error_class = getattr(errors, name, None)
    if isinstance(error_class, type) and issubclass(error_class, errors.MinilogError):
        return error_class
    raise AttributeError(f"module 'minilog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
