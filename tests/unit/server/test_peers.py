"""What a broker says to others, and how long it waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from minilog.addresses import Address
from minilog.errors import BrokerNotAvailable
from minilog.v1 import common_pb2, peer_pb2, peer_pb2_grpc
from minilog_broker.controller.controller_effects import ProbeBroker
from minilog_broker.controller.image import MetadataImage
from minilog_broker.server.clients import quorum_peers
from minilog_broker.server.clients.coordinator_calls import CoordinatorCalls
from minilog_broker.server.clients.peer_channels import PeerChannels
from minilog_broker.server.clients.quorum_peers import QuorumPeers
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.shells import controller_shell
from minilog_broker.server.shells.controller_shell import ControllerShell
from minilog_broker.server.system_runtime import SYSTEM_BROKER_RUNTIME
from tests.unit.server.surroundings import calls_here

TAKES_AT_MOST_S = 10.0


@pytest.mark.parametrize(("host", "port"), [("a..b", 9092), ("a" * 70, 9092), ("nul\0", 9092), ("127.0.0.1", 70_000)])
def test_a_broker_that_registered_an_address_that_cannot_be_one_does_not_end_the_controller(
    host: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_shell, "PROBES", 1)
    shell = ControllerShell.__new__(ControllerShell)
    asyncio.run(shell._probe(ProbeBroker(7, 30, host, port)))


def test_a_voter_with_several_addresses_is_looked_for_at_each_in_turn() -> None:
    async def look() -> list[int]:
        addresses = [("127.0.0.1", 1), ("127.0.0.1", 2)]
        peers = QuorumPeers(lambda _: addresses, 1_000, PeerChannels(BrokerConfig(), SYSTEM_BROKER_RUNTIME))
        tried: list[Address] = []
        for _ in range(3):
            tried.append(peers.address(2) or ("", 0))
            assert await peers.vote(2, peer_pb2.VoteRequest(voter_id=2)) is None
        addresses[:] = [("127.0.0.1", 3)]
        tried.append(peers.address(2) or ("", 0))
        assert not peers.failed((2, ("127.0.0.1", 3))), "there is no other to try"
        tried.append(peers.address(2) or ("", 0))
        await peers.close()
        return [port for _, port in tried]

    assert asyncio.run(look()) == [1, 2, 1, 3, 3]


def test_the_question_for_stable_offsets_goes_to_this_broker_itself_without_a_connection() -> None:
    async def ask() -> tuple[peer_pb2.AwaitStableOffsetsRequest, int]:
        requests: list[peer_pb2.AwaitStableOffsetsRequest] = []

        async def here(request: peer_pb2.AwaitStableOffsetsRequest) -> peer_pb2.AwaitStableOffsetsResponse:
            requests.append(request)
            return peer_pb2.AwaitStableOffsetsResponse(partitions=[peer_pb2.StableOffset(last_stable_offset=5)])

        channels = PeerChannels(BrokerConfig(), SYSTEM_BROKER_RUNTIME)
        client = common_pb2.ClientIdentity(client_id="broker-1")
        answers = calls_here(await_stable_offsets=here)
        calls = CoordinatorCalls(1, client, MetadataImage(), lambda _: None, answers, channels)
        with pytest.raises(BrokerNotAvailable, match="does not know broker 2"):
            await calls.await_stable_offsets(2, peer_pb2.AwaitStableOffsetsRequest())
        response = await calls.await_stable_offsets(1, peer_pb2.AwaitStableOffsetsRequest(max_wait_ms=7))
        return requests[0], response.partitions[0].last_stable_offset

    request, offset = asyncio.run(ask())
    assert (request.client.client_id, request.broker_id, request.max_wait_ms, offset) == ("broker-1", 1, 7, 5)


class StandsStill(peer_pb2_grpc.PeerServiceServicer):
    """Sends the first piece of a snapshot, and no other."""

    async def FetchSnapshot(  # noqa: N802
        self, request: peer_pb2.FetchSnapshotRequest, context: object
    ) -> AsyncIterator[peer_pb2.FetchSnapshotResponse]:
        yield peer_pb2.FetchSnapshotResponse(position=0, content=b"begin", total_bytes=10)
        await asyncio.sleep(TAKES_AT_MOST_S)


def test_a_leader_that_stands_still_is_not_waited_for_until_a_whole_snapshot_would_be_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum_peers, "PIECE_TIMEOUT_S", 0.2, raising=False)

    async def fetch() -> list[bytes]:
        server = grpc.aio.server()
        peer_pb2_grpc.add_PeerServiceServicer_to_server(StandsStill(), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = PeerChannels(BrokerConfig(), SYSTEM_BROKER_RUNTIME)
        peers = QuorumPeers(lambda _: [("127.0.0.1", port)], 1_000, channels)
        pieces = peers.fetch_snapshot(2, peer_pb2.FetchSnapshotRequest())
        came = [(await anext(pieces)).content]
        try:
            async with asyncio.timeout(TAKES_AT_MOST_S / 2):
                with pytest.raises(BrokerNotAvailable):
                    await anext(pieces)
        finally:
            await peers.close()
            await server.stop(0)
        return came

    assert asyncio.run(fetch()) == [b"begin"]
