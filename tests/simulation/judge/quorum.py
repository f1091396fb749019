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
from tests.judges.quorum import Leaders, Votes
from tests.judges.violation import Violation
from tests.simulation.judge.copies import read_json
from tests.simulation.judge.metadata import LOG_NAME
from tests.simulation.machines.host import DATA_PATH

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
        epoch, voted_for = self._stored(voter)
        if message.epoch > max(epoch, self._epoch_of_log(voter)):
            text = f"b{voter} answers a vote in epoch {message.epoch}, its disk has epoch {epoch}"
            raise Violation("V11", text)
        self._votes.epoch(voter, disk, message.epoch, is_voter=voter in self._truth.metadata.voters)
        if not message.granted or request.pre_vote:
            return
        if request.voter_directory_id not in (b"", message.directory_id):
            text = f"b{voter} grants the vote of directory {request.voter_directory_id.hex()[:8]}, which it lost"
            raise Violation("V11", text)
        candidate = request.candidate_id
        if epoch < request.epoch or (epoch == request.epoch and voted_for != candidate):
            text = f"b{voter} votes for b{candidate} in epoch {request.epoch}, its disk has ({epoch}, {voted_for})"
            raise Violation("V11", text)
        self._votes.vote(voter, disk, request.epoch, candidate)

    def _stored(self, number: int) -> tuple[int, int]:
        """Epoch and vote on a voter's disk."""
        host = self._truth.copies.of(number, LOG_NAME).host
        stored = read_json(host, f"{DATA_PATH}/quorum-vote")
        return (0, -1) if stored is None else (int(stored["epoch"]), int(stored["voted_for"]))

    def _epoch_of_log(self, number: int) -> int:
        batches = self._truth.copies.of(number, LOG_NAME).durable.batches
        return batches[-1].partition_leader_epoch if batches else 0

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
        if not self._leaders.leads(number, life, epoch):
            return
        stored, _ = self._stored(number)
        if stored < epoch:
            text = f"b{number} leads quorum epoch {epoch}, its disk has {stored}"
            raise Violation("V11", text)
        self._truth.metadata.check_leader(number, epoch)
        self._hearing.leads(number, life, epoch)
