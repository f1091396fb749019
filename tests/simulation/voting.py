"""Votes, new epochs and snapshots between quorum nodes: unary calls and one stream, as
server/clients/quorum_peers.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage, MinilogError, wire_error
from minilog.v1 import peer_pb2
from minilog_broker.controller.snapshot import check_snapshot
from minilog_broker.quorum import quorum_effects
from minilog_broker.server.clients.quorum_peers import PIECE_TIMEOUT_S, SNAPSHOT_TIMEOUT_S
from minilog_broker.storage.snapshot_files import SnapshotReceiver
from tests.simulation.network import Failure, Respond
from tests.simulation.pump import Pump
from tests.simulation.stream import Stream
from tests.simulation.touched import Voted

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.quorum_part import QuorumPart

CHUNK_BYTES = 2_048  # small, so that a snapshot is several messages and can break in the middle


class Voting:
    """See the module's text."""

    def __init__(self, life: Life, part: QuorumPart) -> None:
        self._life = life
        self._part = part
        self._fetching: Stream | None = None

    def handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What carries out each effect that is this module's."""
        return {
            quorum_effects.SendVote: self._send_vote,
            quorum_effects.AnswerVote: self._answer_vote,
            quorum_effects.SendBeginQuorumEpoch: self._send_begin_epoch,
            quorum_effects.FetchSnapshot: self._fetch_snapshot,
        }

    # -- votes and epochs, asked

    def _send_vote(self, effect: quorum_effects.SendVote) -> None:
        life, part = self._life, self._part

        def answered(answer: Any) -> None:
            if isinstance(answer, Failure):
                part.node.vote_unanswered(effect.voter_id, effect.request, life.now_ms)
            else:
                life.touched.heard[(effect.voter_id, life.node.node_id)] = None
                part.node.vote_answered(effect.voter_id, effect.request, answer, life.now_ms, life.node.now_us)
            part.run()

        timeout_ms = life.plan.election_timeout_ms
        life.network.call(life.process, effect.voter_id, "Vote", effect.request, answered, timeout_ms)

    def _send_begin_epoch(self, effect: quorum_effects.SendBeginQuorumEpoch) -> None:
        life, part = self._life, self._part

        def answered(answer: Any) -> None:
            response = None if isinstance(answer, Failure) else answer
            if response is not None:
                life.touched.heard[(effect.voter_id, life.node.node_id)] = None
            part.node.begin_epoch_answered(effect.voter_id, response, life.now_ms)
            part.run()

        timeout_ms = life.plan.election_timeout_ms
        life.network.call(life.process, effect.voter_id, "BeginQuorumEpoch", effect.request, answered, timeout_ms)

    # -- votes and epochs, served

    def vote_asked(self, request: peer_pb2.VoteRequest, respond: Respond) -> None:
        life = self._life
        life.touched.heard[(request.candidate_id, life.node.node_id)] = None
        self._part.node.vote_request((request, respond), request, life.now_ms)
        self._part.run()

    def _answer_vote(self, effect: quorum_effects.AnswerVote) -> None:
        life = self._life
        assert isinstance(effect.ticket, tuple)
        request, respond = effect.ticket
        life.touched.votes.append(Voted(life.node.node_id, life.number, request, effect.response))
        respond(effect.response)

    def epoch_begun(self, request: peer_pb2.BeginQuorumEpochRequest, respond: Respond) -> None:
        life = self._life
        life.touched.heard[(request.leader_id, life.node.node_id)] = None
        response = self._part.node.begin_quorum_epoch(request, life.now_ms)
        self._part.run()
        respond(response)

    # -- what a sick peer sends: in a voter's name, but not by it, and whoever answers is not heard

    def forged_vote(self, request: peer_pb2.VoteRequest) -> None:
        self._part.node.vote_request((request, lambda _: None), request, self._life.now_ms)
        self._part.run()

    def forged_begin(self, request: peer_pb2.BeginQuorumEpochRequest) -> None:
        self._part.node.begin_quorum_epoch(request, self._life.now_ms)
        self._part.run()

    # -- snapshots

    def _fetch_snapshot(self, effect: quorum_effects.FetchSnapshot) -> None:
        life, part = self._life, self._part
        receiver: list[SnapshotReceiver] = []
        pieces = 0
        self._fetching = stream = life.network.open_stream(life.process, effect.leader_id, "FetchSnapshot")
        end = stream.client

        def failed(_: object = None) -> None:
            if self._fetching is stream:
                self._fetching = None
                end.close()
                for each in receiver:
                    each.abandon()
                part.node.snapshot_unfetched(life.now_ms)
                part.run()

        def opened(_: object) -> None:
            end.send(
                peer_pb2.FetchSnapshotRequest(
                    cluster_id=part.image.cluster_id or "",
                    broker_id=life.node.node_id,
                    epoch=part.node.epoch,
                    snapshot_id=peer_pb2.SnapshotId(
                        end_offset=effect.snapshot_id.end_offset, epoch=effect.snapshot_id.epoch
                    ),
                )
            )

        def received(piece: peer_pb2.FetchSnapshotResponse) -> None:
            nonlocal pieces
            if self._fetching is not stream:
                return
            if piece.error.code:
                failed()
                return
            pieces += 1
            give_up_unless_more(pieces)
            if not receiver:
                receiver.append(part.snapshots.receive(effect.snapshot_id))
            receiver[0].write(piece.position, piece.content)
            if receiver[0].size_bytes >= piece.total_bytes:
                self._whole(effect, receiver[0], failed)

        def give_up_unless_more(since: int) -> None:
            life.process.after(PIECE_TIMEOUT_S * 1e3, lambda _: failed() if pieces == since else None)

        end.on_open, end.on_message, end.on_closed = opened, received, failed
        life.process.after(SNAPSHOT_TIMEOUT_S * 1e3, failed)
        give_up_unless_more(0)

    def _whole(
        self, effect: quorum_effects.FetchSnapshot, receiver: SnapshotReceiver, failed: Callable[[], None]
    ) -> None:
        try:
            check_snapshot(receiver.content(), effect.snapshot_id)
        except CorruptMessage:
            failed()
            return
        assert self._fetching is not None
        self._fetching.client.close()
        self._fetching = None
        life, part = self._life, self._part
        life.cluster.count("snapshot fetched")
        part.submit(receiver.finish, lambda: part.node.snapshot_fetched(effect.snapshot_id, life.now_ms))

    def serve_snapshot(self, stream: Stream) -> None:
        """One request, then the file in pieces."""
        end, part = stream.server, self._part

        def asked(request: peer_pb2.FetchSnapshotRequest) -> None:
            try:
                snapshot_id = part.node.snapshot_request(request)
                content = part.snapshots.read(snapshot_id)
            except (MinilogError, FileNotFoundError) as error:
                refused = error if isinstance(error, MinilogError) else MinilogError(str(error))
                end.send(peer_pb2.FetchSnapshotResponse(error=wire_error(refused)))
                end.close()
                return
            position = 0

            def take() -> peer_pb2.FetchSnapshotResponse | None:
                nonlocal position
                if position >= len(content):
                    return None
                piece = content[position : position + CHUNK_BYTES]
                response = peer_pb2.FetchSnapshotResponse(position=position, content=piece, total_bytes=len(content))
                position += len(piece)
                return response

            Pump(self._life.process, end, take).wake()

        end.on_message = asked
