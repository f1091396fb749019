"""The voters, as the metadata log records them. The first entry names them, and each later entry changes one of them.

An entry counts as soon as it is in the log, committed or not. It counts no more when it is cut (Raft,
membership changes).

    change                    elections and commits need
    one added or removed      a majority of the voters after it: any majority of them has a voter in common with any
                              majority before it (Raft thesis 4.1; the controller makes one change at a time, and none
                              before an entry of its own epoch is committed)
    one replaced              until it is committed, a majority of the voters before it, too: it is two changes at once,
                              and a majority of the old three and one of the new three need not have a voter in common

A removed voter takes part until it knows that its removal is committed. Its vote does not count. It takes part because
perhaps nobody else can lead while the others lack the entry (Raft thesis 4.2.2).

The first entry has the addresses that its brokers were first started with. A broker that is started with other
addresses uses those. From the first change on, the recorded addresses count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """A voter of the metadata quorum. Its id and the id of its data directory identify it. Its address may change."""

    broker_id: int
    directory_id: bytes
    host: str
    port: int

    @property
    def key(self) -> VoterKey:
        return VoterKey(self.broker_id, self.directory_id)


class VoterKey(NamedTuple):
    """One voter. The same broker with another directory is another voter. The directory is empty until it is
    recorded."""

    broker_id: int
    directory_id: bytes


VoterSet: TypeAlias = frozenset[VoterKey]


def voters_of(record: records_pb2.ClusterRecord | records_pb2.VotersRecord) -> tuple[Voter, ...]:
    return tuple(Voter(voter.broker_id, voter.directory_id, voter.host, voter.port) for voter in record.voters)


def wire_voters(voters: Iterable[Voter]) -> list[records_pb2.Voter]:
    return [
        records_pb2.Voter(broker_id=voter.broker_id, directory_id=voter.directory_id, host=voter.host, port=voter.port)
        for voter in voters
    ]


def replaced(voters: tuple[Voter, ...], record: records_pb2.VoterReplacedRecord) -> tuple[Voter, ...]:
    """`voters` with another directory for one of them. Unchanged if that one does not have the directory that was
    lost."""
    return tuple(
        replace(voter, directory_id=record.directory_id)
        if (voter.broker_id, voter.directory_id) == (record.broker_id, record.lost_directory_id)
        else voter
        for voter in voters
    )


class _VotersEntry(NamedTuple):
    """The voters from the entry that ends at `end_offset` on. `has_addresses`: whether their addresses count, too."""

    end_offset: int
    cluster_id: str
    voters: tuple[Voter, ...]
    keys: VoterSet
    has_addresses: bool


def _entry(end_offset: int, cluster_id: str, voters: tuple[Voter, ...], *, has_addresses: bool) -> _VotersEntry:
    keys = frozenset(voter.key for voter in voters)
    return _VotersEntry(end_offset, cluster_id, voters, keys, has_addresses)


class VoterHistory:
    """The voters of one log: `note` what is appended, `cut` what is cut, and ask who votes."""

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
        """The voters as of the newest entry. Empty if there is none."""
        return self._entries[-1].voters if self._entries else ()

    @property
    def keys(self) -> VoterSet:
        """Those of `current`."""
        return self._entries[-1].keys if self._entries else frozenset()

    @property
    def has_addresses(self) -> bool:
        """Whether the addresses of `current` count."""
        return bool(self._entries) and self._entries[-1].has_addresses

    @property
    def newest_end_offset(self) -> int:
        """The end of the newest entry, 0 if there is none."""
        return self._entries[-1].end_offset if self._entries else 0

    def sets(self, committed_end_offset: int) -> tuple[VoterSet, ...]:
        """The sets that each need a majority: the newest, and the sets before it that it need not overlap with."""
        sets: list[VoterSet] = []
        for keys in self._uncertain(committed_end_offset):
            if not sets or len(keys ^ sets[-1]) > 1:
                sets.append(keys)
        return tuple(sets)

    def takes_part(self, key: VoterKey, committed_end_offset: int) -> bool:
        """Whether the voter votes, or did before a change that is not known to be committed."""
        return any(key in keys for keys in self._uncertain(committed_end_offset))

    def _uncertain(self, committed_end_offset: int) -> Iterator[VoterSet]:
        """The newest voters first, then those before each change that is not committed."""
        for entry in reversed(self._entries):
            yield entry.keys
            if entry.end_offset <= committed_end_offset:
                return

    # -- what the log does

    def note(self, batches: PlacedBatches) -> None:
        """These batches were given to the log."""
        run = batches.buffers[0] if len(batches.buffers) == 1 else b"".join(batches.buffers)
        self._note_run(run)

    def cut(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        while self._entries and self._entries[-1].end_offset > end_offset:
            self._entries.pop()

    def start_at(self, end_offset: int, cluster_id: str, voters: Iterable[Voter], *, has_addresses: bool) -> None:
        """A snapshot has the voters at its end. `note` and `scan` add the log's entries behind it afterwards."""
        self._entries = [_entry(end_offset, cluster_id, tuple(voters), has_addresses=has_addresses)]

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
        """Whether a batch is worth decoding: it is the first one, or a voter's directory id is in it.

        An entry of a change names all voters, and changes one of them.
        """
        if not self._entries:
            return True
        content = bytes(batch)
        return any(voter.directory_id in content for voter in self._entries[-1].voters)

    def _note_record(self, end_offset: int, record: records_pb2.MetadataRecord) -> None:
        match record.WhichOneof("record"):
            case "cluster" if not self._entries:
                cluster = record.cluster
                self._entries.append(_entry(end_offset, cluster.cluster_id, voters_of(cluster), has_addresses=False))
            case "voter_replaced" if self._entries:
                self._change(
                    end_offset, replaced(self.current, record.voter_replaced), has_addresses=self.has_addresses
                )
            case "voters" if self._entries:
                self._change(end_offset, voters_of(record.voters), has_addresses=True)
            case _:
                pass

    def _change(self, end_offset: int, voters: tuple[Voter, ...], *, has_addresses: bool) -> None:
        newest = self._entries[-1]
        if (voters, has_addresses) != (newest.voters, newest.has_addresses):
            self._entries.append(_entry(end_offset, newest.cluster_id, voters, has_addresses=has_addresses))
