"""How a coordinator's keys and values are written: a table of the kinds of values for each log. A new kind is one row,
and a level (levels.py). What is not known in a record is of a later version, and never skipped."""

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
    """Values of one type (`value`), each one message. `is_of`: whether the values of a key are of this kind."""

    value: type[Any]
    is_of: Callable[[Key], bool]
    message: type[Message]
    write: Callable[[Any], Message]
    read: Callable[[Any], Any]


class RecordCodec(Generic[Key, Value]):
    """The records of the log of `what`. `write_key`, `read_key`: a key as a message of `key_message`, and back; the
    latter raises ValueError for one that cannot be."""

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
        kind = next(each for each in self._kinds if isinstance(change.value, each.value))
        return LogRecord(key, kind.write(change.value).SerializeToString())

    def decode(self, record: LogRecord) -> Change[Key, Value]:
        """Raises CorruptMessage; UnsupportedVersion where a later version wrote it."""
        what = f"a record in the log of {self._what}"
        try:
            key = self._read_key(parse_known(self._key_message, record.key, what))
            if record.value is None:
                return Change(key, None)
            kind = next(each for each in self._kinds if each.is_of(key))
            return Change(key, kind.read(parse_known(kind.message, record.value, what)))
        except (DecodeError, ValueError) as error:
            raise CorruptMessage(f"the log of {self._what} has a record that cannot be read: {error}") from error
