"""What a position of a typed topic asked for, and how much is read for it.

A replica reads what is stored and sends what is left of it: so it reads as much more as it left out of the last run, up
to one message. It reads no more than it can cut in its turn, as far as the last run tells: what is read and not cut is
read again. Versions of the schema that came since are taken up as they are known here.

Most positions of a reader ask for the same, and the positions of many readers, too. What they asked for is read once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.typed.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2, typed_pb2
from minilog_broker.replication.sessions.scanner import Scanned, Scanner

_LEAST_SHARE = 1 / 64
_FIRST_BYTES = 64  # for each piece of work, as long as no run was cut: about a small batch
_MARGIN = 1.25  # the next batches are a little larger: else a second run of one or two would follow
_READING_WORK = 4  # of each condition when it is read: more than to hold it against a batch
MAX_KNOWN = 256  # selections that are kept to be used again ...
MAX_KNOWN_BYTES = 1 << 20  # ... and their bytes on the wire, each of which is some ten in memory


class Scanners:
    """What was asked for here, by the bytes of it and the schemas that it was read by. One per broker; the oldest goes
    where there is no room."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, int], Scanner] = OrderedDict()
        self._size_bytes = 0

    def of(self, asked: typed_pb2.Selection, schemas: TopicSchemas) -> Scanner:
        """Raises what Scanner raises."""
        key = (asked.SerializeToString(), id(schemas))  # the cutting holds the schemas: no others get this id
        if (known := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return known
        made = self._known[key] = Scanner(asked, schemas)
        self._size_bytes += len(key[0])
        while len(self._known) > MAX_KNOWN or self._size_bytes > MAX_KNOWN_BYTES:
            (content, _), _ = self._known.popitem(last=False)
            self._size_bytes -= len(content)
        return made


class Selected:
    """The selection of one position; see the module's text. Raises the errors of Scanner, and InvalidArgument where the
    topic has no schema."""

    def __init__(self, position: data_pb2.FetchPosition, schemas: TopicSchemas | None, scanners: Scanners) -> None:
        if schemas is None:
            raise InvalidArgument("columns were asked for, and the topic has no schema: read key and value")
        self._asked = position.selection
        self._schemas = schemas
        self._scanners = scanners
        self._scanner = scanners.of(self._asked, schemas)
        self._share = 1.0
        self._bytes_per_work = float(_FIRST_BYTES)

    def stored_bytes(self, max_bytes: int, message_bytes: int, most_work: int) -> int:
        """How much is read where `max_bytes` may be sent, and so much work be done for it."""
        may_be_sent = max(max_bytes, min(message_bytes, int(max_bytes / self._share)))
        return min(may_be_sent, max(1, int(most_work * self._bytes_per_work * _MARGIN)))

    def cut(self, key: PartitionKey, batches: Buffer, schemas: TopicSchemas | None, most_work: int) -> Scanned:
        """What is sent of these, as far as the work allows. Raises CorruptMessage where one of them is damaged."""
        read_anew = schemas is not None and schemas is not self._schemas
        if schemas is not None and read_anew:
            self._schemas, self._scanner = schemas, self._scanners.of(self._asked, schemas)
        cut = self._scanner.scan(key, batches, most_work)
        self._share = max(_LEAST_SHARE, len(cut.batches) / cut.end)
        self._bytes_per_work = cut.end / cut.work
        return replace(cut, work=cut.work + _READING_WORK * self._scanner.condition_work) if read_anew else cut
