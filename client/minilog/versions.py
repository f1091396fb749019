"""Versions that one side supports, and what to say where they do not suffice. Pure.

Two numbers have such ranges: the *protocol* that clients and brokers speak, and the *level* of a cluster, which says
what may be written to its logs (minilog_broker/levels.py). What was written by a later version is never taken for
damage: it is refused with UnsupportedVersion, which ends a broker, and which a client tells its user.
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
"""What this version speaks with clients and brokers. A message that an older side would misread raises it."""


def range_from_wire(told: common_pb2.VersionRange) -> VersionRange:
    """What the other side supports; who tells nothing supports the first version alone."""
    return VersionRange(told.lowest, told.highest) if told.highest else FIRST


def check_protocol(own: VersionRange, own_name: str, other: VersionRange, other_name: str) -> None:
    """Raises UnsupportedVersion where two sides speak no common version of the protocol, and says which one is too old.
    The names are those of the sides, with their versions."""
    if not own.meets(other):
        too_old = own_name if own.highest < other.lowest else other_name
        raise UnsupportedVersion(
            f"{own_name} speaks version {own} of the protocol, {other_name} {other}: {too_old} is too old, upgrade it"
        )


def written_later(what: str) -> UnsupportedVersion:
    """The error for something stored whose checksums are right and whose form is not known here."""
    return UnsupportedVersion(
        f"{what} was written by a later version of minilog than this one: it is left as it is; go on with that version"
    )


def parse_known(kind: type[_Message], content: bytes, what: str) -> _Message:
    """A stored message. Raises UnsupportedVersion where it has, at any depth, a field that this version does not know;
    google.protobuf.message.DecodeError where it is none."""
    record = kind.FromString(content)
    size_bytes = record.ByteSize()
    record.DiscardUnknownFields()
    if record.ByteSize() != size_bytes:
        raise written_later(what)
    return record
