"""Who votes, as the metadata log records it: the first entry names the voters, later ones replace a lost directory.

An entry counts from when it is in the log, committed or not, and no more when it is cut (Raft, membership changes).
While it is not committed, elections and commits need a majority of the voters before it too: one voter replaced is two
changes at once, and a majority of the old three and one of the new three need not have a voter in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from minilog.record_batch.header import Buffer, iterate_headers
from minilog.v1 import records_pb2
from minilog_broker.quorum.records import decode_run
from minilog_broker.replication.replica_effects import PlacedBatches

if TYPE_CHECKING:
    from minilog_broker.storage.log import Log

SCAN_BYTES = 1 << 20  # one step of reading the log at a start


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the metadata quorum: known by its id and the id of its data directory; the address may change."""

    broker_id: int
    directory_id: bytes
    host: str
    port: int

    @property
    def key(self) -> VoterKey:
        return VoterKey(self.broker_id, self.directory_id)


class VoterKey(NamedTuple):
    """One voter: the same broker with another directory is another. The directory is empty until it is recorded."""

    broker_id: int
    directory_id: bytes


VoterSet: TypeAlias = frozenset[VoterKey]


def voters_of(record: records_pb2.ClusterRecord) -> tuple[Voter, ...]:
    return tuple(Voter(each.broker_id, each.directory_id, each.host, each.port) for each in record.voters)


def replaced(voters: tuple[Voter, ...], record: records_pb2.VoterReplacedRecord) -> tuple[Voter, ...]:
    """`voters` with another directory for one of them; unchanged where it does not have the directory that was lost."""
    return tuple(
        replace(each, directory_id=record.directory_id)
        if (each.broker_id, each.directory_id) == (record.broker_id, record.lost_directory_id)
        else each
        for each in voters
    )


class _VotersEntry(NamedTuple):
    """`voters` from the entry that ends at `end_offset` on."""

    end_offset: int
    cluster_id: str
    voters: tuple[Voter, ...]
    keys: VoterSet


def _entry(end_offset: int, cluster_id: str, voters: tuple[Voter, ...]) -> _VotersEntry:
    return _VotersEntry(end_offset, cluster_id, voters, frozenset(voter.key for voter in voters))


class VoterHistory:
    """Of one log: `note` what is appended, `cut` where it is cut, and ask who votes."""

    def __init__(self) -> None:
        self._entries: list[_VotersEntry] = []

    @property
    def cluster_id(self) -> str | None:
        """None: the log has no first entry yet."""
        return self._entries[-1].cluster_id if self._entries else None

    def committed_cluster_id(self, committed_end_offset: int) -> str | None:
        """None: the log has no first entry that is committed."""
        is_committed = bool(self._entries) and self._entries[0].end_offset <= committed_end_offset
        return self._entries[0].cluster_id if is_committed else None

    @property
    def current(self) -> tuple[Voter, ...]:
        """As of the newest entry, empty where there is none."""
        return self._entries[-1].voters if self._entries else ()

    @property
    def keys(self) -> VoterSet:
        """Those of `current`."""
        return self._entries[-1].keys if self._entries else frozenset()

    @property
    def newest_end_offset(self) -> int:
        """The end of the newest entry, 0 where there is none."""
        return self._entries[-1].end_offset if self._entries else 0

    def sets(self, committed_end_offset: int) -> tuple[VoterSet, ...]:
        """The sets that each need a majority: the newest first, then those whose successor is not committed."""
        found: list[VoterSet] = []
        for entry in reversed(self._entries):
            found.append(entry.keys)
            if entry.end_offset <= committed_end_offset:
                break
        return tuple(found)

    # -- what the log does

    def note(self, batches: PlacedBatches) -> None:
        """These were given to the log."""
        run = batches.buffers[0] if len(batches.buffers) == 1 else b"".join(batches.buffers)
        self._note_run(run)

    def cut(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        while self._entries and self._entries[-1].end_offset > end_offset:
            self._entries.pop()

    def start_at(self, end_offset: int, cluster_id: str, voters: Iterable[Voter]) -> None:
        """A snapshot says who votes at its end; what the log has behind it is noted or scanned afterwards."""
        self._entries = [_entry(end_offset, cluster_id, tuple(voters))]

    def scan(self, log: Log, offset: int, end_offset: int) -> None:
        """Read the log from `offset` on, at a start."""
        while offset < end_offset:
            run = log.read(offset, SCAN_BYTES, end_offset)
            offset = self._note_run(run)

    def _note_run(self, run: Buffer) -> int:
        view, end_offset = memoryview(run), 0
        for position, header in iterate_headers(view):
            batch = view[position : position + header.length]
            end_offset = header.next_offset
            if not header.is_control and self._may_concern(batch):
                for decision in decode_run(batch):
                    for record in decision.records:
                        self._note_record(end_offset, record)
        return end_offset

    def _may_concern(self, batch: Buffer) -> bool:
        """Whether it is worth decoding: the first records do, and those that have a voter's directory id in them."""
        if not self._entries:
            return True
        content = bytes(batch)
        return any(voter.directory_id in content for voter in self._entries[-1].voters)

    def _note_record(self, end_offset: int, record: records_pb2.MetadataRecord) -> None:
        match record.WhichOneof("record"):
            case "cluster" if not self._entries:
                self._entries.append(_entry(end_offset, record.cluster.cluster_id, voters_of(record.cluster)))
            case "voter_replaced" if self._entries:
                voters = replaced(self.current, record.voter_replaced)
                if voters != self.current:
                    self._entries.append(_entry(end_offset, self._entries[-1].cluster_id, voters))
            case _:
                pass
