"""The selection of a position, and the amount that is read for it.

In a typed topic a position may select columns and rows, in a topic without a schema the headers of batches.

A replica reads whole stored batches and sends only the selected part. So it reads more by the share that it left out of
the last run, up to one message. It does not read more than it can cut in its turn, judged by the last run, because it
would have to read the rest again. It takes up new versions of the schema as this broker learns of them.

Most positions of a reader have the same selection, and so have the positions of many readers. The replica parses such a
selection once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from minilog.errors import InvalidArgument
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2, typed_pb2
from minilog_broker.replication.sessions.scanner import HeaderScanner, Scanned, Scanner

_LEAST_SHARE = 1 / 64
_FIRST_BYTES = 64  # for each piece of work, before the first run was cut: about the size of a small batch
_MARGIN = 1.25  # the next batches may be a little larger. Without it a second run of one or two batches would follow
_READING_WORK = 4  # for parsing each condition: more than one comparison with a batch
MAX_KNOWN = 256  # selections that are kept to be used again ...
MAX_KNOWN_BYTES = 1 << 20  # ... and their bytes on the wire, each of which is some ten in memory


_HEADERS = HeaderScanner()


class Scanners:
    """The scanners of this broker's readers, by the bytes of the selection and the schemas. There is one per broker. If
    there is no room, the oldest scanner goes."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[bytes, int], Scanner] = OrderedDict()
        self._size_bytes = 0

    def of(self, selection: typed_pb2.Selection, schemas: TopicSchemas) -> Scanner:
        """The scanner of a selection in a typed topic. Raises the errors of Scanner."""
        key = (
            selection.SerializeToString(),
            id(schemas),
        )  # the scanner keeps the schemas alive, so no other object gets their id
        if (scanner := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return scanner
        scanner = self._known[key] = Scanner(selection, schemas)
        self._size_bytes += len(key[0])
        while len(self._known) > MAX_KNOWN or self._size_bytes > MAX_KNOWN_BYTES:
            (content, _), _ = self._known.popitem(last=False)
            self._size_bytes -= len(content)
        return scanner


class Selected:
    """The selection of one position. Raises the errors of Scanner, and InvalidArgument if the topic has no schema."""

    def __init__(self, position: data_pb2.FetchPosition, schemas: TopicSchemas | None, scanners: Scanners) -> None:
        if schemas is None and position.HasField("selection"):
            raise InvalidArgument("the reader asks for columns, but the topic has no schema: read keys and values")
        self._selection = position.selection
        self._schemas = schemas
        self._scanners = scanners
        self._scanner: Scanner | HeaderScanner = _HEADERS if schemas is None else scanners.of(self._selection, schemas)
        self._share = 1.0
        self._bytes_per_work = float(_FIRST_BYTES)

    def stored_bytes(self, max_bytes: int, message_bytes: int, most_work: int) -> int:
        """The bytes to read if `max_bytes` may be sent, for at most this much work."""
        may_be_sent = max(max_bytes, min(message_bytes, int(max_bytes / self._share)))
        return min(may_be_sent, max(1, int(most_work * self._bytes_per_work * _MARGIN)))

    def cut(self, key: PartitionKey, batches: Buffer, schemas: TopicSchemas | None, most_work: int) -> Scanned:
        """The part of these batches that is sent, as far as the work allows. Raises CorruptMessage for a damaged
        one."""
        read_anew = schemas is not None and schemas is not self._schemas
        if schemas is not None and read_anew:
            self._schemas, self._scanner = schemas, self._scanners.of(self._selection, schemas)
        cut = self._scanner.scan(key, batches, most_work)
        self._share = max(_LEAST_SHARE, len(cut.batches) / cut.end)
        self._bytes_per_work = cut.end / cut.work
        return replace(cut, work=cut.work + _READING_WORK * self._scanner.condition_work) if read_anew else cut
