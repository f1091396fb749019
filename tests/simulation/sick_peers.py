"""A sick peer: votes and new epochs in the name of any voter, as far ahead as its receiver might just believe.

And voters whose stored epochs lie far apart, which is what such messages once made of them.

A method returns whether the fault could be placed now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from minilog.v1 import peer_pb2
from minilog_broker.quorum.epochs_told import LEAP_EPOCHS, NEAR_EPOCHS
from minilog_broker.server.disk.vote_file import FILE_NAME as VOTE_FILE
from minilog_broker.storage.durable_file import write_durable_file
from tests.simulation.life import DATA_PATH
from tests.simulation.network_faults import NetworkFaults

if TYPE_CHECKING:
    from tests.simulation.life import Life

STEPS = (0, 1, 2, NEAR_EPOCHS, NEAR_EPOCHS + 1, LEAP_EPOCHS)
MESSAGES = 7


class SickPeers(NetworkFaults):
    """See the module's text."""

    def sick_peer(self) -> bool:
        """Some messages in a row, each ahead of what its receiver knows then."""
        if len(self._cluster.plan.voter_ids) == 1:
            return False
        count = self._random.randint(1, MESSAGES)
        self._note(f"a sick peer sends {count} messages")
        for number in range(count):
            self._cluster.scheduler.after(number * self._random.choice((0.0, 1.0, 30.0)), lambda _: self._say())
        return True

    def _say(self) -> None:
        voters = list(self._cluster.plan.voter_ids)
        to, name = self._random.sample(voters, 2)
        life = self._cluster.nodes[to].life
        if life is None or not self._cluster.nodes[to].is_serving or self._cluster.nodes[to].paused or self.over:
            return
        epoch = max(0, life.quorum.epoch) + self._random.choice(STEPS)
        if self._random.random() < 0.5:
            cluster_id = life.quorum_part.image.cluster_id or ""
            begin = peer_pb2.BeginQuorumEpochRequest(cluster_id=cluster_id, leader_id=name, epoch=epoch, voter_id=to)
            life.process.run(life.quorum_part.voting.forged_begin, begin)
        else:
            life.process.run(life.quorum_part.voting.forged_vote, self._vote(life, name, epoch))

    def _vote(self, life: Life, candidate_id: int, epoch: int) -> peer_pb2.VoteRequest:
        candidate = self._cluster.nodes[candidate_id]
        return peer_pb2.VoteRequest(
            cluster_id=life.quorum_part.image.cluster_id or "",
            candidate_id=candidate_id,
            candidate_directory_id=bytes.fromhex(candidate.directory_id or ""),
            epoch=epoch,
            pre_vote=self._random.random() < 0.5,
            last_end_offset=0,  # a vote for a log that has less than was committed is another sickness
            last_epoch=-1,
            voter_id=life.node.node_id,
            voter_directory_id=bytes.fromhex(life.node.directory_id or ""),
            voter_ids=list(self._cluster.plan.voter_ids),
        )

    def stray_epoch(self) -> bool:
        """A voter that is down has an epoch on its disk that is some leaps above all others, where none is already."""
        voters = self._cluster.plan.voter_ids
        node = self._one(lambda each: each.node_id in voters and each.life is None and each.stored_vote() is not None)
        if node is None or not node.power_on or len(voters) == 1:
            return False
        stored = node.stored_vote()
        assert stored is not None
        others = [self._cluster.nodes[each].stored_vote() for each in voters if each != node.node_id]
        epochs = [stored.epoch, *(vote.epoch for vote in others if vote is not None)]
        if max(epochs) - min(epochs) >= LEAP_EPOCHS:
            return False
        vote = replace(stored, epoch=stored.epoch + self._random.choice((1, 2, 3)) * LEAP_EPOCHS, voted_for=-1)
        write_durable_file(node.files, f"{DATA_PATH}/{VOTE_FILE}", msgspec.json.encode(vote))
        self._note(f"node {node.node_id} has epoch {vote.epoch} on its disk")
        return True
