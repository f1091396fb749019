"""The form of a coordinator's records: a table of the kinds of values for each log. A new kind is one row, and a level
(levels.py). A later version wrote what is not known in a record: it is never skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from google.protobuf.message import DecodeError, Message

from minilog.errors import CorruptMessage
from minilog.versions import parse_known
from minilog_broker.coordinators.table import Change, Key, LogRecord, Value


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[Key]):
    """The values of one type (`value`) as messages. `is_of`: whether a key has values of this kind."""

    value: type[Any]
    is_of: Callable[[Key], bool]
    message: type[Message]
    write: Callable[[Any], Message]
    read: Callable[[Any], Any]


class RecordCodec(Generic[Key, Value]):
    """The records of the log of `what`. `write_key` makes a message of a key, `read_key` a key of a message of
    `key_message`; it raises ValueError where that is no key."""

    def __init__(
        self,
        what: str,
        key_message: type[Message],
        write_key: Callable[[Key], Message],
        read_key: Callable[[Any], Key],
        kinds: Sequence[ValueKind[Key]],
    ) -> None:
        self._what = what
        self._key_message = key_message
        self._write_key = write_key
        self._read_key = read_key
        self._kinds = tuple(kinds)

    def encode(self, change: Change[Key, Value]) -> LogRecord:
        """A value of None removes the key."""
        key = self._write_key(change.key).SerializeToString(deterministic=True)
        if change.value is None:
            return LogRecord(key, None)
        kind = next(row for row in self._kinds if isinstance(change.value, row.value))
        return LogRecord(key, kind.write(change.value).SerializeToString())

    def decode(self, record: LogRecord) -> Change[Key, Value]:
        """Raises CorruptMessage; UnsupportedVersion where a later version wrote it."""
        what = f"a record in the log of {self._what}"
        try:
            key = self._read_key(parse_known(self._key_message, record.key, what))
            if record.value is None:
                return Change(key, None)
            kind = next((row for row in self._kinds if row.is_of(key)), None)
            if kind is None:
                raise ValueError(f"{key} has no values")
            return Change(key, kind.read(parse_known(kind.message, record.value, what)))
        except (DecodeError, ValueError) as error:
            raise CorruptMessage(f"the log of {self._what} has a record that cannot be read: {error}") from error
