"""A sick peer: votes and new epochs in the name of any voter, as far ahead as its receiver might just believe.

And voters whose stored epochs lie far apart, which is what such messages once made of them. What is said fits what lies
on the disks of both.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc

from minilog.security.channel_security import ChannelSecurity, PemFiles
from minilog.v1 import peer_pb2, peer_pb2_grpc
from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS, NEAR_EPOCHS
from minilog_broker.storage.durable_file import write_durable_file
from tests.simulation.machines.host import DATA_PATH, PEER_PORT, PORT

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost
    from tests.simulation.machines.machine import ClientMachine

STEPS = (0, 1, 2, NEAR_EPOCHS, NEAR_EPOCHS + 1, LEAP_EPOCHS)
MESSAGES = 7
ANSWER_S = 1.0
VOTE_FILE = "quorum-vote"
SETTLES_S = 12.0  # three leaps, each of which waits twice as long as the one before


class Peers:
    """Messages in the name of brokers that did not send them, and epochs that nobody led."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._random = ground.random
        self._number = 0

    def sick_peer(self) -> None:
        """Some messages in a row, each ahead of what its receiver had on its disk then."""
        self._number += 1
        process, machine = self._ground.cluster.client(f"sick{self._number}")
        self._ground.cluster.run_client(process, self._say_things(machine))

    async def _say_things(self, machine: ClientMachine) -> None:
        pause_s = self._random.choice((0.0, 0.001, 0.03))
        for _ in range(self._random.randint(1, MESSAGES)):
            to, name = self._random.sample(self._ground.cluster.voters, 2)
            epoch = self._epoch(to)
            if epoch is not None and self._ground.cluster.rages:
                await self._say(machine, to, name, epoch + self._random.choice(STEPS))
            await asyncio.sleep(pause_s)

    async def _say(self, machine: ClientMachine, to: SimulatedHost, name: SimulatedHost, epoch: int) -> None:
        ground = self._ground
        secured = ground.cluster.identities is not None  # it has no certificate then, and nobody listens to it
        address = (to.name, PEER_PORT if secured else PORT)
        security = ChannelSecurity(PemFiles()) if secured else None
        async with machine.open_channel(address, security) as channel:
            stub = peer_pb2_grpc.PeerServiceStub(channel)
            try:
                if self._random.random() < 0.5:
                    begin = peer_pb2.BeginQuorumEpochRequest(
                        cluster_id=ground.cluster_id(to), leader_id=name.number, epoch=epoch, voter_id=to.number
                    )
                    await stub.BeginQuorumEpoch(begin, timeout=ANSWER_S)
                else:
                    await stub.Vote(self._vote(to, name, epoch), timeout=ANSWER_S)
            except grpc.aio.AioRpcError as error:
                ground.cluster.note(f"the sick peer is not heard: {error.details()}")

    def _vote(self, to: SimulatedHost, candidate: SimulatedHost, epoch: int) -> peer_pb2.VoteRequest:
        ground = self._ground
        return peer_pb2.VoteRequest(
            cluster_id=ground.cluster_id(to),
            candidate_id=candidate.number,
            candidate_directory_id=bytes.fromhex(ground.directory_id(candidate) or ""),
            epoch=epoch,
            pre_vote=self._random.random() < 0.5,
            last_end_offset=0,  # a vote for a log that has less than was committed is another sickness
            last_epoch=-1,
            voter_id=to.number,
            voter_directory_id=bytes.fromhex(ground.directory_id(to) or ""),
            voter_ids=list(ground.cluster.plan.voter_ids),
        )

    def stray_epoch(self) -> bool:
        """A voter that is down has an epoch on its disk that is some leaps above all others, where none is already."""
        ground = self._ground
        voters = ground.cluster.voter_ids
        host = ground.some_host(
            lambda host: host.number in voters and host.process is None and not host.disk.armed
            and self._epoch(host) is not None
        )  # fmt: skip
        if host is None:
            return False
        epochs = [epoch for each in ground.cluster.voters if (epoch := self._epoch(each)) is not None]
        if max(epochs) - min(epochs) >= LEAP_EPOCHS:
            return False
        vote = {**(ground.stored(host, VOTE_FILE) or {}), "voted_for": -1, "voted_directory": ""}
        vote["epoch"] = int(vote["epoch"]) + self._random.choice((1, 2, 3)) * LEAP_EPOCHS
        write_durable_file(host.disk, f"{DATA_PATH}/{VOTE_FILE}", json.dumps(vote).encode())
        ground.cluster.strayed(host.name, vote["epoch"])
        for each in ground.cluster.voters:
            ground.ails_for(each, "epochs far apart", SETTLES_S, SETTLES_S, lambda: None)
        return True

    def _epoch(self, host: SimulatedHost) -> int | None:
        stored = self._ground.stored(host, VOTE_FILE)
        return None if stored is None or "epoch" not in stored else int(stored["epoch"])  # a bit of it may be rotten
