"""Changes of the voters by command: a broker is added, removed, moved to another address, or goes on with another disk.

Nothing changes by itself. An empty disk does not show where the old one is, and committed metadata may be on the old
disk and one other disk alone. So a person has to say that the old one will not come back (as in KIP-853). Voters change
one at a time. The majorities that a change needs are in quorum/voters.py.

    refused                                                     because
    a change while the one before is not committed              two changes apart, two majorities may share no voter
    a new voter that has not fetched the metadata log           commits would wait for it
    where no majority of the voters after it is heard           nothing would be committed any more, not even the change
    the last voter, and a sixth one                             nobody would decide; each commit would wait for more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from minilog.addresses import address_text
from minilog.errors import InvalidArgument, VotersNotReady
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.cluster_records import voters_record
from minilog_broker.controller.image import BrokerRegistration
from minilog_broker.controller.ledger import Ledger
from minilog_broker.levels import OPERATIONS_LEVEL, check_reached
from minilog_broker.quorum.voters import Voter, VoterKey, VoterSet

MOST_VOTERS = 5
_LARGEST_LAG = 1_000  # entries of the metadata log that a new voter may lack: it fetches them in milliseconds
_Change = admin_pb2.VoterChange


class QuorumView(Protocol):
    """What the leader of the quorum sees of the brokers that fetch from it."""

    def copy_end(self, key: VoterKey) -> int | None:
        """The durable end of a broker's metadata log; None: it does not fetch."""

    def hears_majority_of(self, voters: VoterSet) -> bool:
        """Whether a majority of these is heard of late, where they vote or not."""


class VoterChanges:
    """One at a time: each method writes the entry of one change, or raises the reason why it cannot."""

    def __init__(self, ledger: Ledger, quorum: QuorumView) -> None:
        self._ledger = ledger
        self._quorum = quorum
        self._last_end = 0  # the end of the log behind the last change of this term

    def replace(self, request: admin_pb2.ReplaceVoterRequest, committed: int) -> admin_pb2.ReplaceVoterResponse:
        """Raises InvalidArgument for what is no voter, or has lost nothing, and VotersNotReady while another change is
        not committed. `committed`: the end of what is."""
        voter, broker = self._lost_and_running(request)
        self._check_committed(committed)
        if self._ledger.image.level < OPERATIONS_LEVEL:
            record = records_pb2.VoterReplacedRecord(
                broker_id=voter.broker_id, lost_directory_id=voter.directory_id, directory_id=broker.directory_id
            )
            self._last_end = self._ledger.write(records_pb2.MetadataRecord(voter_replaced=record)) + 1
        else:
            others = [other for other in self._voters() if other.broker_id != voter.broker_id]
            self._write(others, _as_registered(broker))
        return admin_pb2.ReplaceVoterResponse(lost_directory_id=voter.directory_id, directory_id=broker.directory_id)

    def alter(self, request: admin_pb2.AlterVoterRequest, committed: int) -> admin_pb2.AlterVoterResponse:
        """Raises InvalidArgument for what cannot be, VotersNotReady for what cannot be now, and LevelNotReached."""
        check_reached(self._ledger.image.level, OPERATIONS_LEVEL, "The voters cannot change: that came")
        match request.change:
            case _Change.VOTER_CHANGE_ADD:
                changed = self._add(request.broker_id, committed)
            case _Change.VOTER_CHANGE_REMOVE:
                changed = self._remove(request.broker_id, committed)
            case _Change.VOTER_CHANGE_MOVE:
                changed = self._move(request.broker_id, committed)
            case _:
                raise InvalidArgument(f"the change {request.change} of voter {request.broker_id} is not known")
        voter_ids = [voter.broker_id for voter in self._ledger.image.voters]
        return admin_pb2.AlterVoterResponse(changed=changed, voter_ids=voter_ids)

    # -- the changes: whether there was anything to do

    def _add(self, broker_id: int, committed: int) -> bool:
        broker = self._running(broker_id)
        if (voter := self._voter(broker_id)) is not None:
            _check_disk(voter, broker)
            return False
        if len(self._ledger.image.voters) >= MOST_VOTERS:
            raise InvalidArgument(
                f"broker {broker_id} cannot be added: there are {MOST_VOTERS} voters, and with more of them each "
                f"decision would wait longer. Remove one first: `minilog cluster remove-voter ID`"
            )
        self._check_committed(committed)
        added = _as_registered(broker)
        end = self._quorum.copy_end(added.key)
        if end is None or committed - end > _LARGEST_LAG:
            raise VotersNotReady(
                f"broker {broker_id} cannot be added yet: it has fetched the metadata log up to offset {end or 0}, and "
                f"{committed} are committed. It is ready when it lacks less than {_LARGEST_LAG}"
            )
        self._check_heard([*self._voters(), added], f"broker {broker_id} cannot be added")
        self._write(self._voters(), added)
        return True

    def _remove(self, broker_id: int, committed: int) -> bool:
        if self._voter(broker_id) is None:
            if broker_id not in self._ledger.image.brokers:
                raise InvalidArgument(f"broker {broker_id} is no voter, and has never registered")
            return False
        left = [voter for voter in self._voters() if voter.broker_id != broker_id]
        if not left:
            raise InvalidArgument(
                f"broker {broker_id} cannot be removed: it is the only voter. Add another one first: `minilog cluster "
                f"add-voter ID`"
            )
        self._check_committed(committed)
        self._check_heard(left, f"voter {broker_id} cannot be removed")
        self._write(left)
        return True

    def _move(self, broker_id: int, committed: int) -> bool:
        voter = self._voter(broker_id)
        if voter is None:
            raise self._no_voter(broker_id)
        broker = self._running(broker_id)
        _check_disk(voter, broker)
        if self._ledger.image.has_voter_addresses and (voter.host, voter.port) == broker.peer_address:
            return False
        self._check_committed(committed)
        self._write([other for other in self._voters() if other.broker_id != broker_id], _as_registered(broker))
        return True

    # -- the entry

    def _voters(self) -> list[Voter]:
        """The voters as the next entry names them. Before the first one: at the addresses they are registered with."""
        image = self._ledger.image
        if image.has_voter_addresses:
            return list(image.voters)
        return [_at_registered_address(voter, image.brokers.get(voter.broker_id)) for voter in image.voters]

    def _write(self, others: Sequence[Voter], changed: Voter | None = None) -> None:
        voters = sorted([*others, *([] if changed is None else [changed])], key=lambda voter: voter.broker_id)
        self._last_end = self._ledger.write(voters_record(voters)) + 1

    # -- what it rests on

    def _voter(self, broker_id: int) -> Voter | None:
        return next((voter for voter in self._ledger.image.voters if voter.broker_id == broker_id), None)

    def _running(self, broker_id: int) -> BrokerRegistration:
        broker = self._ledger.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            raise InvalidArgument(f"broker {broker_id} is not running: start it first")
        return broker

    def _no_voter(self, broker_id: int) -> InvalidArgument:
        voter_ids = [voter.broker_id for voter in self._ledger.image.voters]
        return InvalidArgument(f"broker {broker_id} is no voter: the voters are {voter_ids}")

    def _check_committed(self, committed: int) -> None:
        if self._last_end > committed:
            raise VotersNotReady("another change of the voters is not committed yet, and it is one at a time")

    def _check_heard(self, voters: Sequence[Voter], what: str) -> None:
        if not self._quorum.hears_majority_of(frozenset(voter.key for voter in voters)):
            voter_ids = sorted(voter.broker_id for voter in voters)
            raise VotersNotReady(
                f"{what} now: of the voters {voter_ids} no majority is heard, and nothing would be committed any "
                f"more. Start those that are down"
            )

    def _lost_and_running(self, request: admin_pb2.ReplaceVoterRequest) -> tuple[Voter, BrokerRegistration]:
        broker_id = request.broker_id
        voter = self._voter(broker_id)
        if voter is None:
            raise self._no_voter(broker_id)
        if request.lost_directory_id and request.lost_directory_id != voter.directory_id:
            raise InvalidArgument(
                f"voter {broker_id} has the directory id {voter.directory_id.hex()}, not "
                f"{request.lost_directory_id.hex()}: that one was replaced already"
            )
        broker = self._ledger.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            raise InvalidArgument(f"broker {broker_id} is not running: start it with its new data directory first")
        if broker.directory_id == voter.directory_id:
            raise InvalidArgument(
                f"voter {broker_id} has the data directory it votes with, {voter.directory_id.hex()}: nothing is lost"
            )
        return voter, broker


def _check_disk(voter: Voter, broker: BrokerRegistration) -> None:
    if voter.directory_id != broker.directory_id:
        raise InvalidArgument(
            f"broker {voter.broker_id} is a voter, and runs with another data directory than the one that votes: "
            f"where that is lost for good, `minilog cluster replace-voter {voter.broker_id}`"
        )


def _as_registered(broker: BrokerRegistration) -> Voter:
    host, port = broker.peer_address
    if not host or not port:
        raise InvalidArgument(
            f"broker {broker.broker_id} has no address for other brokers ({address_text(broker.peer_address)}): start "
            f"it with --listen or inter.broker.listen"
        )
    return Voter(broker.broker_id, broker.directory_id, host, port)


def _at_registered_address(voter: Voter, broker: BrokerRegistration | None) -> Voter:
    if broker is None or not broker.peer_address[0]:
        return voter
    host, port = broker.peer_address
    return replace(voter, host=host, port=port)
