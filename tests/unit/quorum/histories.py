"""Random histories of a quorum: what may happen to brokers, links and disks; then peace, in which all must be well."""

from __future__ import annotations

import random

from minilog.v1 import records_pb2
from minilog_broker.controller.cluster_records import voters_record
from tests.unit.quorum.cluster import QuorumCluster, Weather, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import QuorumMachine

PEACE_MS = 8_000.0  # within so much a quorum that nothing disturbs must be whole again


class QuorumHistory:
    """One history, by its seed."""

    def __init__(self, seed: int, voters: int, *, steps: int = 40) -> None:
        self.cluster = QuorumCluster(
            seed, range(1, voters + 1), snapshot_bytes=random.Random(seed).choice((1_200, 6_000, 1 << 30))
        )
        self.random = self.cluster.random
        self.judges = Judges(self.cluster)
        self.steps = steps
        self.appended = 0
        self.replaced = False
        self.brokers = [*self.cluster.voters, 7, 8]
        self.changes = 0  # of the voters, by command
        self.moved: QuorumMachine | None = None
        self._faults = [
            fault
            for fault in (
                self.crash,
                self.crash_leader,
                self.restart,
                self.restart,
                self.pause,
                self.cut_one,
                self.cut_link,
                self.heal,
                self.heal,
                self.break_stream,
                self.all_down,
                self.crash_twice,
                self.lose_disk,
                self.storm,
                self.other_voters,
                self.change_voters,
                self.change_voters,
                self.move,
            )
            if self.random.random() < 0.75
        ]

    def run(self) -> Judges:
        self.cluster.start(*self.brokers)
        self.cluster.run(self.random.choice((0.0, 400.0, 1_000.0)))
        for _ in range(self.steps):
            self._append()
            if self._faults and self.random.random() < 0.5:
                self.random.choice(self._faults)()
            self.cluster.run(self.random.choice((1.0, 5.0, 30.0, 200.0, 700.0)))
        self.peace()
        return self.judges

    def _append(self) -> None:
        for machine in self.cluster.running():
            for _ in range(self.random.randrange(4)):
                if machine.node is not None and machine.node.is_active:
                    self.appended += 1
                    machine.append(topic_record(f"topic-{self.appended}"))

    # -- what may happen

    def any(self) -> QuorumMachine:
        return self.cluster.machine(self.random.choice(self.brokers))

    def crash(self) -> None:
        machine = self.any()
        if machine.node is not None:
            self.cluster.stop(machine.node_id, power_loss=self.random.random() < 0.6)

    def crash_leader(self) -> None:
        for machine in self.cluster.leaders():
            self.cluster.stop(machine.node_id, power_loss=self.random.random() < 0.6)

    def restart(self) -> None:
        for node_id in self.brokers:
            if self.cluster.machine(node_id).node is None:
                self.cluster.start(node_id)

    def pause(self) -> None:
        self.any().pause(self.random.choice((80.0, 600.0, 1_500.0, 4_000.0)))

    def cut_one(self) -> None:
        self.cluster.cut_off(self.any().node_id, self.brokers)

    def cut_link(self) -> None:
        self.cluster.cut.add((self.any().node_id, self.any().node_id))

    def heal(self) -> None:
        self.cluster.cut.clear()
        self.cluster.weather = Weather()

    def break_stream(self) -> None:
        for stream in list(self.cluster.streams.values()):
            if self.random.random() < 0.5:
                self.cluster.break_stream(stream)

    def all_down(self) -> None:
        for machine in self.cluster.running():
            self.cluster.stop(machine.node_id, power_loss=True)
        self.restart()

    def crash_twice(self) -> None:
        """All processes die while they write, go on with what the kernel kept, and then the power fails."""
        self.cluster.weather = Weather(disk_ms=(0.1, 30.0))
        self._append()
        self.cluster.run(self.random.uniform(0.0, 60.0))
        for power_loss in (False, True):
            for machine in self.cluster.running():
                self.cluster.stop(machine.node_id, power_loss=power_loss)
            self.restart()
            self.cluster.run(self.random.uniform(100.0, 400.0))

    def storm(self) -> None:
        slow = self.random.choice((1.0, 10.0, 60.0))
        disk = self.random.choice((2.0, 30.0))
        self.cluster.weather = Weather((0.1, slow), (0.1, disk), self.random.choice((0.0, 0.3)), 0.2)

    def other_voters(self) -> None:
        """Somebody starts a broker with a wrong list of voters: it goes on with the recorded ones."""
        machine = self.any()
        if machine.cluster_id is None:
            return
        if machine.node is not None:
            self.cluster.stop(machine.node_id)
        others = [node_id for node_id in self.brokers if node_id != machine.node_id]
        machine.voters = (machine.node_id,) if self.random.random() < 0.5 else tuple(self.random.sample(others, 1))
        self.cluster.start(machine.node_id)

    def change_voters(self) -> None:
        """A broker is added or removed, as the controller lets it be (controller/voters.py)."""
        leaders = [machine for machine in self.cluster.leaders() if machine.node is not None and machine.node.is_active]
        if not leaders or self.cluster.leader() not in leaders:
            return
        leader = self.cluster.leader()
        node = leader.node
        assert node is not None
        if node.committed_end_offset < node._member.voters.newest_end_offset:
            return
        machine = self.cluster.machine(self.random.choice(self.brokers))
        voters = {voter.broker_id: voter for voter in node.voters}
        if voters.pop(machine.node_id, None) is None:
            if (node.copy_end(machine.voter().key) or 0) < node.committed_end_offset:
                return
            voters[machine.node_id] = machine.voter()
        keys = frozenset(voter.key for voter in voters.values())
        if any(self.cluster.machine(key.broker_id).voter().key != key for key in keys):
            return  # its disk was lost a moment ago: whoever commands knows that
        if voters and node.hears_majority_of(keys, self.cluster.now_ms):
            self.changes += 1
            leader.append(voters_record(voter for _, voter in sorted(voters.items())))

    def move(self) -> None:
        """One broker starts at another address, and, where it is a voter, the log records that some time later."""
        machine = self.moved or self.any()
        if machine.cluster_id is None or any(m.node and len(m.node.voters) < 3 for m in self.cluster.running()):
            return  # whoever comes later asks where no one else is to answer
        self.moved = machine
        if machine.node is not None:
            self.cluster.stop(machine.node_id)
        machine.host = f"host{machine.node_id}-{machine.life}"
        self.cluster.start(machine.node_id)

    def _give_addresses(self) -> None:
        """The operator starts all brokers with the addresses of today: nobody may reach the leader at its new one."""
        if self.moved is not None and not any(m.node and m.node.is_active for m in self.cluster.leaders()):
            self.cluster.given_hosts[self.moved.node_id] = self.moved.host
            for machine in self.cluster.running():
                self.cluster.stop(machine.node_id)
                machine.voters = tuple(voter.broker_id for voter in self.judges.image.voters)
            self.restart()
            self.cluster.run(PEACE_MS / 2)

    def _record_moves(self) -> None:
        self._give_addresses()
        leader = self.cluster.leader()
        assert leader.node is not None
        for voter in leader.node.voters:
            machine = self.cluster.machine(voter.broker_id)
            if machine.host != voter.host and machine.directory_id == voter.directory_id:
                others = [other for other in leader.node.voters if other.broker_id != voter.broker_id]
                voters = sorted([*others, machine.voter()], key=lambda voter: voter.broker_id)
                leader.append(voters_record(voters))
                self.cluster.run(500.0)
                leader = self.cluster.leader()
                assert leader.node is not None

    def lose_disk(self) -> None:
        """One voter of several loses its disk once, and is replaced later: never more than a majority survives."""
        if self.replaced or not self.judges.committed:
            return
        leaders = self.cluster.leaders()
        sizes = {len(voters) for m in leaders if m.node for voters in (m.node.voters, self.judges.image.voters)}
        if not sizes or not sizes <= {3, 5}:
            return  # an even number of voters survives no more than one less
        self.replaced = True
        machine = self.cluster.machine(self.random.choice(self.cluster.voters))
        if machine.node is not None:
            self.cluster.stop(machine.node_id)
        machine.new_disk()
        machine.voters = self.cluster.voters  # with an empty disk and a wrong list a broker would found a cluster
        self.cluster.start(machine.node_id)

    # -- peace

    def peace(self) -> None:
        self.heal()
        self.cluster.run(4_000.0)
        self.restart()
        self.cluster.run(PEACE_MS / 2)
        self._record_moves()
        self.cluster.run(PEACE_MS / 2)
        self._replace_lost()
        self.cluster.run(PEACE_MS / 2)
        for node_id in self.brokers:
            machine = self.cluster.machine(node_id)
            assert machine.failure is None, machine.failure
        (leader,) = self.cluster.leaders()
        end = leader.append(topic_record("the-last"))
        self.cluster.run(500.0)
        for node_id in self.brokers:
            machine = self.cluster.machine(node_id)
            assert machine.image.end_offset == end, (node_id, machine.image.end_offset, end)
            assert machine.image == self.judges.image
            assert machine.node is not None
            assert machine.node.leader_id == leader.node_id
            assert machine.node.may_vote

    def _replace_lost(self) -> None:
        leader = self.cluster.leader()
        assert leader.node is not None
        for voter in leader.node.voters:
            machine = self.cluster.machine(voter.broker_id)
            if machine.directory_id != voter.directory_id:
                assert machine.node is not None
                assert not machine.node.may_vote
                record = records_pb2.VoterReplacedRecord(
                    broker_id=voter.broker_id,
                    lost_directory_id=voter.directory_id,
                    directory_id=machine.directory_id,
                )
                leader.append(records_pb2.MetadataRecord(voter_replaced=record))
