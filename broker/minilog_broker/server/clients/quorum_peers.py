"""What this broker says to the voters of the metadata quorum beside its session: votes, new epochs, snapshots.

Each voter has a channel of its own for it: neither data nor a session that stalls delays a vote. An answer that does
not come is None; the node asks again when it has reason to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import structlog

from minilog.addresses import Address, address_text
from minilog.errors import (
    BrokerNotAvailable,
    InconsistentClusterId,
    InconsistentVoters,
    MinilogError,
    error_from_wire,
)
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
            self._told = {warning for warning in self._told if warning[0] != voter_id}
        else:
            self._tell(voter_id, f"a voter refuses this broker: {refusal}")

    def _tell(self, voter_id: int, words: str) -> None:
        if (voter_id, words) not in self._told:
            self._told.add((voter_id, words))
            logger.warning(words, voter=voter_id)


class QuorumPeers:
    """A broker's calls to the voters of the metadata quorum.

    `find_addresses`: where a voter may listen, the likeliest address first. They may change: a channel is of one
    address, and another one takes its place when that fails and there is another address.
    """

    def __init__(
        self, find_addresses: Callable[[int], Sequence[Address]], answer_timeout_ms: float, channels: PeerChannels
    ) -> None:
        self._open = channels.open
        self._find_addresses = find_addresses
        self._answer_timeout_s = answer_timeout_ms / 1000.0
        self._channels: dict[int, tuple[Address, grpc.aio.Channel]] = {}
        self._failed: dict[int, set[Address]] = {}  # of voters with several addresses: those that were tried in vain
        self._closing: set[asyncio.Task[None]] = set()
        self._news = VoterNews()

    def address(self, voter_id: int) -> Address | None:
        """Where a voter listens, as far as is known; None where it is none."""
        addresses = self._find_addresses(voter_id)
        failed = self._failed.get(voter_id, set())
        if failed.issuperset(addresses):
            failed.clear()
        return next((address for address in addresses if address not in failed), None)

    def peer(self, voter_id: int) -> Peer | None:
        """The same with its id."""
        address = self.address(voter_id)
        return None if address is None else (voter_id, address)

    def failed(self, peer: Peer) -> bool:
        """No broker of that id answers there: its next address is tried from now on. Whether there is one that was not
        tried in vain."""
        voter_id, address = peer
        addresses = self._find_addresses(voter_id)
        if len(addresses) <= 1:
            return False
        failed = self._failed.setdefault(voter_id, set())
        failed.add(address)
        return not failed.issuperset(addresses)

    def _stub(self, voter_id: int) -> Any:
        address = self.address(voter_id)
        if address is None:
            raise BrokerNotAvailable(f"no address of broker {voter_id} is known, which is none of the voters here")
        open_address, channel = self._channels.get(voter_id, (None, None))
        if channel is None or open_address != address:
            if channel is not None:
                self._close(channel)
            channel = self._open(voter_id, address)
            self._channels[voter_id] = address, channel
        return peer_pb2_grpc.PeerServiceStub(channel)

    def _close(self, channel: grpc.aio.Channel) -> None:
        """The voter has another address. Calls that wait end as those of a voter that cannot be reached."""
        task = asyncio.get_running_loop().create_task(channel.close(grace=self._answer_timeout_s))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def vote(self, voter_id: int, request: peer_pb2.VoteRequest) -> peer_pb2.VoteResponse | None:
        """Ask for a vote, or whether there would be one."""
        peer = self.peer(voter_id)
        try:
            answer: peer_pb2.VoteResponse = await self._stub(voter_id).Vote(request, timeout=self._answer_timeout_s)
        except (*CALL_ERRORS, BrokerNotAvailable) as error:
            logger.debug("no answer to a candidate", voter=voter_id, error=reason(error))
            if peer is not None:
                self.failed(peer)
            if request.voter_directory_id or not request.cluster_id:  # else it is none, and asked for news only
                address = "?" if peer is None else address_text(peer[1])
                self._news.unanswered(voter_id, address, asyncio.get_running_loop().time())
            return None
        refusal = error_from_wire(answer.error)
        if isinstance(refusal, InconsistentClusterId | InconsistentVoters) and peer is not None and self.failed(peer):
            return None  # another broker listens there by now
        self._news.answered(voter_id, refusal)
        return answer

    async def begin_quorum_epoch(
        self, voter_id: int, request: peer_pb2.BeginQuorumEpochRequest
    ) -> peer_pb2.BeginQuorumEpochResponse | None:
        """Tell a voter who leads."""
        peer = self.peer(voter_id)
        try:
            answer: peer_pb2.BeginQuorumEpochResponse = await self._stub(voter_id).BeginQuorumEpoch(
                request, timeout=self._answer_timeout_s
            )
        except (*CALL_ERRORS, BrokerNotAvailable) as error:
            logger.debug("a voter did not hear who leads", voter=voter_id, error=reason(error))
            if peer is not None:
                self.failed(peer)
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
        for _, channel in channels:
            await channel.close()
        for task in list(self._closing):
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
