"""What this broker says to the voters of the metadata quorum beside its session: votes, new epochs, snapshots.

Each voter has a channel of its own for it: neither data nor a session that stalls delays a vote. An answer that does
not come is None; the node asks again when it has reason to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc
import structlog

from minilog.addresses import address_text
from minilog.errors import BrokerNotAvailable, MinilogError, error_from_wire
from minilog.v1 import peer_pb2, peer_pb2_grpc
from minilog_broker.server.clients.channels import CALL_ERRORS, reason
from minilog_broker.server.clients.peer_channels import Peer, PeerChannels

logger = structlog.get_logger()

SNAPSHOT_TIMEOUT_S = 60.0
SILENT_VOTER_S = 5.0  # longer than brokers that are started together take, and than any election
PIECE_TIMEOUT_S = 5.0  # a leader that stands still or is cut off: another may have the snapshot by then


class VoterNews:
    """Says once what keeps an election from being won: a voter that refuses this broker, or one that is silent."""

    def __init__(self) -> None:
        self._silent_s: dict[int, tuple[float, float]] = {}  # voter: since when, and when it was asked last
        self._told: set[tuple[int, str]] = set()

    def unanswered(self, voter_id: int, address: object, now_s: float) -> None:
        since_s, asked_s = self._silent_s.get(voter_id, (now_s, now_s))
        if now_s - asked_s > SILENT_VOTER_S:  # another election, long after
            since_s = now_s
        self._silent_s[voter_id] = since_s, now_s
        if now_s - since_s >= SILENT_VOTER_S:
            self._tell(voter_id, f"a voter at {address} does not answer: start it, or see whether it can be reached")

    def answered(self, voter_id: int, refusal: MinilogError | None) -> None:
        self._silent_s.pop(voter_id, None)
        if refusal is None:
            self._told = {told for told in self._told if told[0] != voter_id}
        else:
            self._tell(voter_id, f"a voter refuses this broker: {refusal}")

    def _tell(self, voter_id: int, words: str) -> None:
        if (voter_id, words) not in self._told:
            self._told.add((voter_id, words))
            logger.warning(words, voter=voter_id)


class QuorumPeers:
    """A broker's calls to the voters of the metadata quorum.

    `addresses`: the address of each voter, by this broker's configuration.
    """

    def __init__(
        self, addresses: Mapping[int, tuple[str, int]], answer_timeout_ms: float, channels: PeerChannels
    ) -> None:
        self._open = channels.open
        self._addresses = dict(addresses)
        self._answer_timeout_s = answer_timeout_ms / 1000.0
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._news = VoterNews()

    def address(self, voter_id: int) -> tuple[str, int] | None:
        """Where a voter listens; None where it is none."""
        return self._addresses.get(voter_id)

    def peer(self, voter_id: int) -> Peer | None:
        """The same with its id."""
        address = self._addresses.get(voter_id)
        return None if address is None else (voter_id, address)

    def _stub(self, voter_id: int) -> Any:
        address = self._addresses.get(voter_id)
        if address is None:
            raise BrokerNotAvailable(f"broker {voter_id} is not among the voters that this broker was started with")
        if voter_id not in self._channels:
            self._channels[voter_id] = self._open(voter_id, address)
        return peer_pb2_grpc.PeerServiceStub(self._channels[voter_id])

    async def vote(self, voter_id: int, request: peer_pb2.VoteRequest) -> peer_pb2.VoteResponse | None:
        """Ask for a vote, or whether there would be one."""
        try:
            answer: peer_pb2.VoteResponse = await self._stub(voter_id).Vote(request, timeout=self._answer_timeout_s)
        except (*CALL_ERRORS, BrokerNotAvailable) as error:
            logger.debug("no answer to a candidate", voter=voter_id, error=reason(error))
            address = address_text(self.address(voter_id) or ("?", 0))
            self._news.unanswered(voter_id, address, asyncio.get_running_loop().time())
            return None
        self._news.answered(voter_id, error_from_wire(answer.error))
        return answer

    async def begin_quorum_epoch(
        self, voter_id: int, request: peer_pb2.BeginQuorumEpochRequest
    ) -> peer_pb2.BeginQuorumEpochResponse | None:
        """Tell a voter who leads."""
        try:
            answer: peer_pb2.BeginQuorumEpochResponse = await self._stub(voter_id).BeginQuorumEpoch(
                request, timeout=self._answer_timeout_s
            )
        except (*CALL_ERRORS, BrokerNotAvailable) as error:
            logger.debug("a voter did not hear who leads", voter=voter_id, error=reason(error))
            return None
        return answer

    async def fetch_snapshot(
        self, leader_id: int, request: peer_pb2.FetchSnapshotRequest
    ) -> AsyncIterator[peer_pb2.FetchSnapshotResponse]:
        """The pieces of a snapshot's file, in order. Raises BrokerNotAvailable, or what the leader refused it with."""
        try:
            call = self._stub(leader_id).FetchSnapshot(request, timeout=SNAPSHOT_TIMEOUT_S)
            while True:
                async with asyncio.timeout(PIECE_TIMEOUT_S):
                    piece = await call.read()
                if not isinstance(piece, peer_pb2.FetchSnapshotResponse):  # the end of the stream
                    return
                if (refused := error_from_wire(piece.error)) is not None:
                    raise refused
                yield piece
        except CALL_ERRORS as error:
            raise BrokerNotAvailable(f"broker {leader_id} broke off a snapshot: {reason(error)}") from error

    async def close(self) -> None:
        """Close all channels; what was asked is not answered any more."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()
