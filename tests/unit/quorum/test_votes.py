"""What a voter answers (V11), and what it does with requests that cannot be true."""

from __future__ import annotations

from typing import TypedDict, Unpack

import pytest

from minilog.errors import InvalidArgument, UnknownLeaderEpoch, error_from_wire
from minilog.stream_messages import StreamMessage
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.quorum.member import MAX_EPOCH, Role
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import AnswerVote, PersistVote, SendVote, VoteState
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS
from minilog_broker.quorum.vote_keeper import VoteKeeper
from tests.rules import proves
from tests.unit.quorum.cluster import QuorumCluster
from tests.unit.quorum.machine import QuorumMachine

GARBAGE_EPOCHS = (-1, -(2**31), 2**31 - 1, MAX_EPOCH, 1 << 21)


def lonely_voter() -> tuple[QuorumCluster, QuorumMachine, QuorumNode]:
    """A voter of three that has a log and, cut off from the others, no leader; in epoch `node.epoch`."""
    cluster = QuorumCluster(0, (1, 2, 3))
    cluster.start(1, 2, 3)
    cluster.run(1_000)
    cluster.cut_off(2)
    cluster.run(3_000)
    node = cluster.node(2)
    assert node.leader_id == -1
    node.take_effects()
    return cluster, cluster.machine(2), node


class Fields(TypedDict, total=False):
    """Of a VoteRequest, besides its epoch and whether it is a pre-vote."""

    cluster_id: str
    candidate_id: int
    candidate_directory_id: bytes
    last_end_offset: int
    last_epoch: int
    voter_id: int
    voter_directory_id: bytes
    voter_ids: list[int]


def request(
    cluster: QuorumCluster, epoch: int, *, candidate: int = 1, pre_vote: bool = False, **other: Unpack[Fields]
) -> peer_pb2.VoteRequest:
    machine = cluster.machine(2)
    fields: Fields = {
        "cluster_id": machine.cluster_id or "",
        "candidate_id": candidate,
        "candidate_directory_id": cluster.machine(candidate).directory_id,
        "last_end_offset": 1_000,
        "last_epoch": 1,
        "voter_id": 2,
        "voter_directory_id": machine.directory_id,
        "voter_ids": [1, 2, 3],
    }
    fields.update(other)
    return peer_pb2.VoteRequest(epoch=epoch, pre_vote=pre_vote, **fields)


def ask(cluster: QuorumCluster, node: QuorumNode, asked: peer_pb2.VoteRequest) -> peer_pb2.VoteResponse | None:
    """The answer, where it comes without waiting for the disk."""
    ticket = object()
    node.vote_request(ticket, asked, cluster.now_ms)
    answers = [each for each in node.take_effects() if isinstance(each, AnswerVote) and each.ticket is ticket]
    return answers[0].response if answers else None


def test_a_broker_that_stands_with_two_directories_is_two_candidates() -> None:
    """Its lost disk was none: the two have the same id, and sets of voters that need not meet but in us (V11)."""
    cluster, machine, node = lonely_voter()
    epoch = node.epoch + 1
    assert ask(cluster, node, request(cluster, epoch)) is None
    node.vote_persisted(cluster.now_ms, 0)
    node.take_effects()
    other = request(cluster, epoch, candidate_directory_id=b"another one's id")
    for _ in range(2):
        answer = ask(cluster, node, other)
        assert answer is not None
        assert not answer.granted
        again = ask(cluster, node, request(cluster, epoch))
        assert again is not None
        assert again.granted
        machine.write_vote(node._transitions.keeper.durable)
        cluster.stop(2)
        cluster.start(2)  # it is as true in the next life
        cluster.run(1.0)
        node = cluster.node(2)
        assert node.epoch == epoch


@proves("MD.4")
def test_a_vote_is_on_disk_before_it_is_answered() -> None:
    cluster, _, node = lonely_voter()
    epoch = node.epoch + 1
    ticket = object()
    node.vote_request(ticket, request(cluster, epoch), cluster.now_ms)
    assert node.take_effects() == [PersistVote(epoch, 1)]
    node.vote_persisted(cluster.now_ms, 0)
    (answer,) = node.take_effects()
    assert isinstance(answer, AnswerVote)
    assert answer.response.granted
    assert answer.response.epoch == epoch


@proves("MD.4")
def test_a_voter_has_one_vote_in_an_epoch_and_repeats_it_to_its_candidate() -> None:
    cluster, _, node = lonely_voter()
    epoch = node.epoch + 1
    ask(cluster, node, request(cluster, epoch))
    node.vote_persisted(cluster.now_ms, 0)
    node.take_effects()
    again, other = ask(cluster, node, request(cluster, epoch)), ask(cluster, node, request(cluster, epoch, candidate=3))
    assert again is not None
    assert again.granted
    assert other is not None
    assert not other.granted


def test_a_pre_vote_changes_nothing() -> None:
    cluster, _, node = lonely_voter()
    epoch = node.epoch
    answer = ask(cluster, node, request(cluster, epoch + 1, pre_vote=True))
    assert answer is not None
    assert answer.granted
    assert node.epoch == epoch
    behind = ask(cluster, node, request(cluster, epoch + 1, pre_vote=True, last_end_offset=1))
    assert behind is not None
    assert not behind.granted


def test_a_candidate_whose_log_is_behind_is_refused_and_its_epoch_adopted_when_it_says_so_itself() -> None:
    cluster, _, node = lonely_voter()
    before, epoch = node.epoch, node.epoch + 1
    ticket, asked = object(), request(cluster, epoch, last_end_offset=1)
    node.vote_request(ticket, asked, cluster.now_ms)
    effects = node.take_effects()
    (answer,) = (each for each in effects if isinstance(each, AnswerVote))
    assert not answer.response.granted
    assert node.epoch == before
    questions = [each for each in effects if isinstance(each, SendVote)]
    assert [each.voter_id for each in questions] == [1, 3]
    assert all(each.request.pre_vote for each in questions)
    node.vote_answered(1, questions[0].request, peer_pb2.VoteResponse(epoch=epoch, leader_id=-1), cluster.now_ms, 0)
    assert node.epoch == epoch
    assert PersistVote(epoch, -1) in node.take_effects()


@proves("MD.9")
def test_a_voter_that_hears_the_leader_refuses_everybody_else() -> None:
    cluster = QuorumCluster(0, (1, 2, 3))
    cluster.start(1, 2, 3)
    cluster.run(1_000)
    (leader,) = cluster.leaders()
    voter = next(machine for machine in cluster.running() if machine is not leader)
    other = next(machine for machine in cluster.running() if machine not in (leader, voter))
    assert voter.node is not None
    epoch = voter.node.epoch
    for pre_vote in (True, False):
        asked = request(cluster, epoch + 1, candidate=other.node_id, pre_vote=pre_vote, voter_id=voter.node_id)
        asked.voter_directory_id = voter.directory_id
        answer = ask(cluster, voter.node, asked)
        assert answer is not None
        assert not answer.granted
        assert answer.leader_id == leader.node_id
        assert voter.node.epoch == epoch


@proves("MD.21")
@pytest.mark.parametrize("epoch", GARBAGE_EPOCHS)
def test_an_epoch_that_cannot_be_poisons_nothing(epoch: int) -> None:
    cluster, _, node = lonely_voter()
    before = node.epoch
    for pre_vote in (True, False):
        answer = ask(cluster, node, request(cluster, epoch, pre_vote=pre_vote))
        assert answer is not None
        assert not answer.granted
    begin = peer_pb2.BeginQuorumEpochRequest(cluster_id=cluster.machine(2).cluster_id or "", leader_id=1, voter_id=2)
    begin.epoch = epoch
    refused = error_from_wire(node.begin_quorum_epoch(begin, cluster.now_ms).error)
    assert isinstance(refused, UnknownLeaderEpoch if 0 <= epoch <= MAX_EPOCH else InvalidArgument)
    response = peer_pb2.VoteResponse(epoch=epoch, leader_id=1)
    node.vote_answered(1, request(cluster, before, candidate=3), response, cluster.now_ms, 0)
    node.begin_epoch_answered(1, peer_pb2.BeginQuorumEpochResponse(epoch=epoch, leader_id=1), cluster.now_ms)
    assert node.epoch <= before + LEAP_EPOCHS  # for a voter's own word, where that can be true: one leap
    assert 0 <= epoch <= MAX_EPOCH or node.epoch == before


@proves("MD.21")
@pytest.mark.parametrize("epoch", GARBAGE_EPOCHS)
def test_a_follower_believes_no_epoch_that_cannot_be(epoch: int) -> None:
    cluster = QuorumCluster(0, (1, 2, 3))
    cluster.start(1, 2, 3, 8)
    cluster.run(1_000)
    followers = [m.node for m in cluster.running() if m.node and m.node.role is Role.FOLLOWER]
    for node in followers if 0 <= epoch <= MAX_EPOCH else (cluster.node(8), *followers):
        before = node.epoch
        message = peer_pb2.ReplicateResponse()
        message.runs.add(leader_epoch=epoch).partition_id.topic_id = bytes(15) + b"\x01"
        node.leader_message(StreamMessage(message, [b""]), cluster.now_ms)
        assert node.epoch == before
        refusal = peer_pb2.ReplicateResponse(quorum_epoch=epoch, quorum_leader_id=1)
        refusal.error.code = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
        node.leader_message(StreamMessage(refusal), cluster.now_ms)
        # Its own leader says that it leads no more: one voter's word, where that can be true, is one leap.
        assert node.epoch == before + (LEAP_EPOCHS if 0 <= epoch <= MAX_EPOCH else 0)
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1


@proves("MD.21")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cluster_id": "another"}, common_pb2.ERROR_CODE_INCONSISTENT_CLUSTER_ID),
        ({"cluster_id": "", "voter_ids": [1, 2], "voter_id": 3}, common_pb2.ERROR_CODE_INCONSISTENT_VOTERS),
        ({"voter_id": 3}, common_pb2.ERROR_CODE_INCONSISTENT_VOTERS),
        ({"candidate_id": 2}, common_pb2.ERROR_CODE_INCONSISTENT_VOTERS),
        ({"candidate_id": -1}, common_pb2.ERROR_CODE_INVALID_REQUEST),
    ],
)
def test_a_request_that_does_not_belong_here_is_refused_with_a_sentence(wrong: Fields, code: int) -> None:
    cluster, _, node = lonely_voter()
    before = node.epoch
    answer = ask(cluster, node, request(cluster, before + 1, **wrong))
    assert answer is not None
    assert answer.error.code == code
    assert str(error_from_wire(answer.error))
    assert node.epoch == before


def test_a_vote_for_another_directory_is_not_given() -> None:
    cluster, _, node = lonely_voter()
    before = node.epoch
    for directory_id in (b"", bytes(16)):
        answer = ask(cluster, node, request(cluster, before + 1, voter_directory_id=directory_id))
        assert answer is not None
        assert not answer.granted
    assert node.epoch == before


@proves("MD.4")
def test_a_vote_is_never_taken_back() -> None:
    keeper = VoteKeeper(VoteState(3, 1), lambda effect: None)
    keeper.record(3, 1)
    keeper.record(3)
    for vote in ((2, 1), (3, 2)):
        with pytest.raises(AssertionError):
            keeper.record(*vote)
