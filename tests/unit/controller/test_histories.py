"""Seeded random histories of a whole cluster's controller: after every event the image is the replay of the log, and V4
and V17 hold (World.check); further V10 as far as the controller can break it, and that the answers tell the truth.

The replicas' data is modelled by one number per (partition, broker): how many of the committed writes a copy has. A
write is committed where the committed ISR has min members; then every member has it. No election may choose a copy that
lacks one (V6), except an unclean one; a copy that starts uncleanly under fsync loses nothing, a damaged one all.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from minilog.errors import IneligibleReplica
from minilog.partition_key import PartitionKey
from minilog_broker.controller.controller_effects import UncleanElection
from minilog_broker.replication.partition_state import NO_LEADER
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("MD.1", "MD.2", "MD.3", "MD.7", "MD.50", "MD.52", "MD.60")

BROKERS = (1, 2, 3, 4)
STEPS = 150


class ControllerHistory:
    """One random history; each step is one event and its checks."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = ControllerCluster(seed)
        self.cluster.start_all(len(BROKERS))
        self.copies: dict[tuple[PartitionKey, int], int] = {}
        self.committed: dict[PartitionKey, int] = {}
        self.topics = 0

    def run(self) -> None:
        steps = [self.write] * 6 + [self.propose] * 5 + [self.kill, self.start, self.start, self.stop, self.fail_disk]
        steps += [
            self.create,
            self.create,
            self.delete,
            self.alter,
            self.elect,
            self.wait,
            self.fail_over,
            self.say_nonsense,
        ]
        steps += [self.reassign] * 3
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.cluster.commit()
            self.judge()

    def some_key(self) -> PartitionKey | None:
        keys = sorted(self.cluster.image.partitions)
        return self.random.choice(keys) if keys else None

    # -- events

    def write(self) -> None:
        for key, state in self.cluster.image.partitions.items():
            if state.leader_id == NO_LEADER or self.random.random() < 0.3:
                continue
            if len(state.in_sync_replicas) >= min(2, state.replication_factor):
                self.committed[key] = self.committed.get(key, 0) + 1
                for member in state.in_sync_replicas:
                    self.copies[key, member] = self.committed[key]

    def propose(self) -> None:
        key = self.some_key()
        if key is None or (state := self.cluster.state(key)).leader_id == NO_LEADER:
            return
        members = {state.leader_id} | {broker for broker in state.replicas if self.random.random() < 0.7}
        before, partition_epoch = state, state.partition_epoch
        answer = self.cluster.propose(key, sorted(members))
        if error_of(answer) is None:
            for member in members:  # a joiner has caught up
                self.copies[key, member] = self.committed.get(key, 0)
            after = self.cluster.state(key)
            done = after.replicas != before.replicas  # a reassignment
            assert set(after.in_sync_replicas) == members or after.leader_id != before.leader_id or done
            assert (answer.partition_epoch, answer.leader_epoch) == (after.partition_epoch, after.leader_epoch)
        else:  # refused for good, which is committed; or made from what is not the state any more
            for_good = isinstance(error_of(answer), IneligibleReplica)
            assert self.cluster.state(key) == replace(before, partition_epoch=partition_epoch + for_good)

    def kill(self) -> None:
        self.cluster.fence(self.random.choice(BROKERS))

    def start(self) -> None:
        broker_id = self.random.choice(BROKERS)
        broker = self.cluster.image.brokers[broker_id]
        clean = broker.broker_epoch if broker.stopping and self.random.random() < 0.7 else None
        replicas = self.cluster.image.replicas_on(broker_id)
        damaged = [state.key for state in replicas if self.random.random() < 0.1]
        for key in damaged:
            self.copies[key, broker_id] = 0
        response = self.cluster.register(broker_id, clean=clean, damaged=damaged, boot=str(self.random.randrange(3)))
        assert error_of(response) is None
        if self.random.random() < 0.8:
            self.cluster.heartbeat(broker_id)

    def stop(self) -> None:
        """A broker may go, unless an ISR cannot spare it and a live replica stands outside."""
        broker_id = self.random.choice(BROKERS)
        waits = not self.cluster.heartbeat(broker_id, wants_stop=True).should_stop
        image = self.cluster.image
        live = {each.broker_id for each in image.brokers.values() if not each.fenced and not each.stopping}
        scarce = [
            state
            for state in image.replicas_on(broker_id)
            if broker_id in state.in_sync_replicas
            and len(state.in_sync_replicas) <= min(2, state.replication_factor)
            and live & (set(state.replicas) - set(state.in_sync_replicas))
        ]
        assert not waits or scarce

    def fail_disk(self) -> None:
        key = self.some_key()
        if key is not None:
            broker_id = self.random.choice(self.cluster.state(key).replicas)
            self.cluster.heartbeat(broker_id, offline=[key])

    def create(self) -> None:
        usable = sum(not each.fenced and not each.stopping for each in self.cluster.image.brokers.values())
        if usable and len(self.cluster.image.topics) < 6:
            self.topics += 1
            unclean = "true" if self.random.random() < 0.2 else "false"
            factor = self.random.randint(1, min(3, usable))
            self.cluster.created(f"t{self.topics}", 2, factor, unclean_leader_election_enable=unclean)

    def delete(self) -> None:
        key = self.some_key()
        if key is not None and self.random.random() < 0.5:
            assert error_of(self.cluster.delete(topic_id=key.topic_id)) is None

    def alter(self) -> None:
        key = self.some_key()
        if key is not None:
            self.cluster.alter(self.cluster.state(key).topic_name, retention_ms=str(self.random.randrange(9)))

    def elect(self) -> None:
        key = self.some_key()
        if key is not None:
            self.cluster.elect(self.cluster.state(key).topic_name)

    def reassign(self) -> None:
        """Other replicas, fewer, more, or back again; what is refused changes nothing."""
        key = self.some_key()
        if key is None:
            return
        before = self.cluster.state(key)
        target = self.random.sample(BROKERS, self.random.randint(0, 3))
        if error_of(self.cluster.reassign(key, target)) is not None:
            assert self.cluster.state(key) == before

    def wait(self) -> None:
        self.cluster.advance(self.random.choice((100.0, 1_000.0)))
        for broker_id in BROKERS:
            if self.random.random() < 0.8:
                self.cluster.heartbeat(broker_id)

    def fail_over(self) -> None:
        """Another term: what is not in the image is forgotten."""
        cluster = self.cluster
        cluster.controller.deactivate(-1)
        cluster.controller.activate(2, cluster.image, cluster.image.end_offset, cluster.now_ms)

    def say_nonsense(self) -> None:
        """What must be refused without a trace."""
        key, before = self.some_key(), list(self.cluster.records)
        if key is None:
            return
        state = self.cluster.state(key)
        proposer = state.replicas[0]
        everyone = list(state.replicas)
        assert error_of(self.cluster.propose(key, everyone, proposer=proposer, leader_epoch=state.leader_epoch + 1))
        assert error_of(
            self.cluster.propose(key, everyone, proposer=proposer, partition_epoch=state.partition_epoch - 1)
        )
        assert error_of(self.cluster.create(state.topic_name))
        assert error_of(self.cluster.heartbeat(proposer, epoch=0, wants_stop=True))
        assert self.cluster.records == before

    # -- judgement

    def judge(self) -> None:
        forgiven = {effect.key for effect in self.cluster.effects if isinstance(effect, UncleanElection)}
        for key in forgiven & self.committed.keys():
            state = self.cluster.image.partitions.get(key)
            self.committed[key] = 0
            for broker_id in state.replicas if state else ():
                self.copies[key, broker_id] = 0
        self.cluster.effects.clear()
        for key, broker_id in list(self.copies):
            state = self.cluster.image.partitions.get(key)
            if state is None or broker_id not in state.replicas:
                del self.copies[key, broker_id]  # its log is deleted
        for key, state in self.cluster.image.partitions.items():
            if state.leader_id != NO_LEADER:
                held = self.copies.get((key, state.leader_id), 0)
                assert held >= self.committed.get(key, 0), f"{state} leads without what was committed (V6)"


@pytest.mark.parametrize("seed", range(40))
def test_no_history_breaks_the_rules(seed: int) -> None:
    ControllerHistory(seed).run()
