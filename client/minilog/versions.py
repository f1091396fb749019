"""The versions that one side supports, and the errors if two sides have none in common. Pure.

Two numbers have such ranges. One is the *protocol* of clients and brokers. The other is the *level* of a cluster, which
decides what brokers may write to its logs (minilog_broker/levels.py). Data of a later version never counts as damage.
Reading it raises UnsupportedVersion, which ends a broker, and which a client passes to its user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from minilog.errors import UnsupportedVersion
from minilog.v1 import common_pb2

_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """All versions from `lowest` to `highest`, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"

    def meets(self, other: VersionRange) -> bool:
        """Whether there is a version in both."""
        return self.lowest <= other.highest and other.lowest <= self.highest

    def to_wire(self) -> common_pb2.VersionRange:
        return common_pb2.VersionRange(lowest=self.lowest, highest=self.highest)


FIRST = VersionRange(1, 1)
PROTOCOL = VersionRange(2, 2)  # 2 brought streams on connections of their own
"""The protocol of this version. A message that an older side would misread raises the number."""


def range_from_wire(message: common_pb2.VersionRange) -> VersionRange:
    """The range of the other side. A side that sends no range supports only the first version."""
    return VersionRange(message.lowest, message.highest) if message.highest else FIRST


def check_protocol(own: VersionRange, own_name: str, other: VersionRange, other_name: str) -> None:
    """Raises UnsupportedVersion if two sides have no version of the protocol in common. The message has the names of
    both sides with their versions, and the side that is too old."""
    if not own.meets(other):
        too_old = own_name if own.highest < other.lowest else other_name
        raise UnsupportedVersion(
            f"{own_name} speaks version {own} of the protocol, and {other_name} speaks {other}: {too_old} is too old, "
            "upgrade it"
        )


def written_later(what: str) -> UnsupportedVersion:
    """The error for stored data with right checksums and an unknown form."""
    return UnsupportedVersion(
        f"{what} was written by a later version of minilog, and this version leaves it as it is: use the later version"
    )


def parse_known(kind: type[_Message], content: bytes, what: str) -> _Message:
    """Parses a stored message. Raises UnsupportedVersion if the message has, at any depth, a field that this version
    does not know, and google.protobuf.message.DecodeError for bytes in another form."""
    record = kind.FromString(content)
    size_bytes = record.ByteSize()
    record.DiscardUnknownFields()
    if record.ByteSize() != size_bytes:
        raise written_later(what)
    return record
