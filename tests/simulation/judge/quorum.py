"""Votes, epochs and controllers of the metadata quorum, by what voters say and what their disks have. V11.

an answer to a vote     its epoch is on the voter's disk; so is a vote that is granted, the only one of that disk in
                        that epoch; what it says never goes back
who leads an epoch      at most one life, by what it tells voters, followers and brokers; its vote is on its disk,
                        and it has all that is committed (V12)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.v1 import common_pb2
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_ID
from tests.judges.quorum import NOBODY, Leaders, Stored, Votes
from tests.judges.violation import Violation
from tests.simulation.judge.metadata import LOG_NAME
from tests.simulation.machines.host import DATA_PATH
from tests.world.stored import durable_json

if TYPE_CHECKING:
    from tests.simulation.judge.hearing import Hearing
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

_OK = common_pb2.ERROR_CODE_NONE


class Quorum:
    """See the module's text."""

    def __init__(self, truth: Truth, hearing: Hearing) -> None:
        self._truth = truth
        self._hearing = hearing
        self._requests: weakref.WeakKeyDictionary[Said, Any] = weakref.WeakKeyDictionary()
        self._votes, self._leaders = Votes(), Leaders()
        self._asked: dict[str, Callable[[Said, Any], None]] = {
            "/minilog.v1.PeerService/Vote": self._vote_asked,
            "/minilog.v1.PeerService/BeginQuorumEpoch": self._began,
        }
        self._answered: dict[str, Callable[[Said, Any], None]] = {
            "/minilog.v1.PeerService/Vote": self._voted,
            "/minilog.v1.PeerService/Heartbeat": self._heard,
            "/minilog.v1.PeerService/Replicate": self._sent,
            "/minilog.v1.MetadataService/GetMetadata": self._described,
        }

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        look = (self._answered if answers else self._asked).get(call.method)
        if look is not None:
            look(call, message)

    # -- votes

    def _vote_asked(self, call: Said, message: Any) -> None:
        self._requests[call] = message

    def _voted(self, call: Said, message: Any) -> None:
        voter, _ = self._truth.speaker(call.host)
        request = self._requests.get(call)
        if request is None or message.error.code != _OK:
            return
        disk = (voter, message.directory_id)
        granted_to = request.candidate_id if message.granted and not request.pre_vote else NOBODY
        is_voter = voter in self._truth.metadata.voters
        self._votes.answered(voter, disk, message.epoch, self._stored(voter), is_voter=is_voter, granted_to=granted_to)
        if granted_to != NOBODY and request.voter_directory_id not in (b"", message.directory_id):
            text = f"b{voter} grants the vote of directory {request.voter_directory_id.hex()[:8]}, which it lost"
            raise Violation("V11", text)

    def _stored(self, number: int) -> Stored:
        copy = self._truth.copies.of(number, LOG_NAME)
        vote, batches = durable_json(copy.host.disk, f"{DATA_PATH}/quorum-vote"), copy.durable.batches
        log_epoch = batches[-1].partition_leader_epoch if batches else 0
        return Stored(0, NOBODY, log_epoch) if vote is None else Stored(vote["epoch"], vote["voted_for"], log_epoch)

    # -- who leads

    def _began(self, call: Said, message: Any) -> None:
        number, life = self._truth.speaker(call.client)  # a forger has no number
        if message.leader_id == number:
            self._leads(number, life, message.epoch)

    def _heard(self, call: Said, message: Any) -> None:
        if message.error.code == _OK:
            number, life = self._truth.speaker(call.host)
            self._leads(number, life, message.controller_epoch)
            self._hearing.check_answers(number, message.controller_epoch)

    def _described(self, call: Said, message: Any) -> None:
        number, _ = self._truth.speaker(call.host)
        if message.error.code == _OK and message.controller_id == number:
            self._hearing.check_answers(number, message.controller_epoch)

    def _sent(self, call: Said, message: Any) -> None:
        for run in message.runs:
            if run.partition_id.topic_id == CLUSTER_METADATA_TOPIC_ID and run.error.code == _OK:
                self._leads(*self._truth.speaker(call.host), run.leader_epoch)

    def _leads(self, number: int, life: int, epoch: int) -> None:
        if not self._leaders.leads(number, life, epoch, self._stored(number).epoch):
            return
        self._truth.metadata.check_leader(number, epoch)
        self._hearing.leads(number, life, epoch)
