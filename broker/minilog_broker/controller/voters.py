"""A voter that lost its disk is replaced by command: the disk its broker is registered with votes from then on.

Never by itself: that a disk is empty says nothing of where the old one is. What was committed may stand on that one and
one other alone, so a person has to say that it will not come back (as in KIP-853). One at a time: a change counts when
a majority of the voters before it, and of those after it, have it.
"""

from __future__ import annotations

from minilog.errors import InvalidArgument
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.controller.ledger import Ledger


class VoterReplacements:
    """One at a time: `replace` writes the entry, or says why not."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last_end = 0  # the end of the log behind the last replacement of this term

    def replace(self, request: admin_pb2.ReplaceVoterRequest, committed: int) -> admin_pb2.ReplaceVoterResponse:
        """Raises InvalidArgument for what is no voter, or has lost nothing. `committed`: the end of what is."""
        lost, found = self._lost_and_found(request)
        if self._last_end > committed:
            raise InvalidArgument("another voter is being replaced: one at a time, try again when that is done")
        record = records_pb2.VoterReplacedRecord(
            broker_id=request.broker_id, lost_directory_id=lost, directory_id=found
        )
        self._last_end = self._ledger.write(records_pb2.MetadataRecord(voter_replaced=record)) + 1
        return admin_pb2.ReplaceVoterResponse(lost_directory_id=lost, directory_id=found)

    def _lost_and_found(self, request: admin_pb2.ReplaceVoterRequest) -> tuple[bytes, bytes]:
        image, broker_id = self._ledger.image, request.broker_id
        voter = next((voter for voter in image.voters if voter.broker_id == broker_id), None)
        if voter is None:
            voters = [voter.broker_id for voter in image.voters]
            raise InvalidArgument(f"broker {broker_id} is no voter: the voters are {voters}")
        if request.lost_directory_id and request.lost_directory_id != voter.directory_id:
            raise InvalidArgument(
                f"voter {broker_id} has the directory id {voter.directory_id.hex()}, not "
                f"{request.lost_directory_id.hex()}: that one was replaced already"
            )
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            raise InvalidArgument(f"broker {broker_id} is not running: start it with its new data directory first")
        if broker.directory_id == voter.directory_id:
            raise InvalidArgument(
                f"voter {broker_id} has the data directory it votes with, {voter.directory_id.hex()}: nothing is lost"
            )
        return voter.directory_id, broker.directory_id
