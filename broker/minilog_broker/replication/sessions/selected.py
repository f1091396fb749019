"""What a position of a typed topic asked for, and how much is read for it.

A replica reads what is stored and sends what is left of it: so it reads as much more as it left out of the last run, up
to one message. Versions of the schema that came since are taken up as they are known here.
"""

from __future__ import annotations

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.typed.cutting import Cutting
from minilog.typed.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2

_LEAST_SHARE = 1 / 64


class Selected:
    """Of one position; see the module's text. Raises what Cutting raises; InvalidArgument where there is no schema."""

    def __init__(self, position: data_pb2.FetchPosition, schemas: TopicSchemas | None) -> None:
        if schemas is None:
            raise InvalidArgument("columns were asked for, and the topic has no schema: read key and value")
        self._asked = position.selection
        self._schemas = schemas
        self._cutting = Cutting(self._asked, schemas)
        self._share = 1.0

    def stored_bytes(self, max_bytes: int, message_bytes: int) -> int:
        """How much is read where `max_bytes` may be sent."""
        return max(max_bytes, min(message_bytes, int(max_bytes / self._share)))

    def cut(self, key: PartitionKey, batches: bytes, schemas: TopicSchemas | None) -> bytes:
        """What is sent of these. Raises CorruptMessage where one of them is damaged."""
        if schemas is not None and schemas is not self._schemas:
            self._schemas, self._cutting = schemas, Cutting(self._asked, schemas)
        cut = self._cutting.cut(key, batches)
        self._share = max(_LEAST_SHARE, len(cut) / len(batches))
        return cut
