"""The bounds of the judge of whole brokers, on made-up histories: what waits for others, how often an ISR changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.v1 import common_pb2, data_pb2, peer_pb2, records_pb2
from tests.judges.violation import Violation
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge.backlog import MOST_CALLS, MOST_IN_FLIGHT, Backlog
from tests.simulation.judge.bounds import CALM_S, MOST_CHANGES, Calm, Changes
from tests.simulation.judge.lag import Lag
from tests.simulation.judge.liveness import refused_s
from tests.simulation.judge.metadata import JudgedChange
from tests.simulation.plan import Plan
from tests.world.loop import Process

TOPIC_ID = bytes(16)
KEY = PartitionKey(TOPIC_ID, 0)
CALM = Plan(configs={number: {} for number in range(1, 4)})


class _Call:
    def __init__(self, method: str) -> None:
        self.method, self.client, self.host = method, "p1", "b1"


def _cluster(plan: Plan = CALM) -> SimulatedCluster:
    """Of brokers that all run."""
    cluster = SimulatedCluster(1, plan)
    cluster.loop.close()
    for host in cluster.hosts.values():
        host.process, host.wanted = Process(host.name), True
        host.listens()
    return cluster


class TestBacklog:
    @pytest.fixture(autouse=True)
    def world(self) -> None:
        self.cluster = _cluster()
        self.backlog = Backlog(self.cluster)

    def test_batches_are_sent_while_there_is_credit_and_the_last_may_go_beyond(self) -> None:
        call: Any = _Call("/minilog.v1.PeerService/Replicate")
        self.backlog.saw(call, peer_pb2.ReplicateRequest(credit_bytes=100), (), False)
        self.backlog.saw(call, peer_pb2.ReplicateResponse(), (bytes(60), b"", bytes(60)), True)
        self.backlog.saw(call, peer_pb2.ReplicateResponse(), (b"",), True)  # news needs none
        with pytest.raises(Violation, match="b1 has sent 120 bytes to p1, whose credit is 100, and sends 1 more"):
            self.backlog.saw(call, peer_pb2.ReplicateResponse(), (bytes(1),), True)

    def test_credit_that_was_given_back_counts(self) -> None:
        call: Any = _Call("/minilog.v1.DataService/Fetch")
        self.backlog.saw(call, data_pb2.FetchRequest(credit_bytes=100), (), False)
        self.backlog.saw(call, data_pb2.FetchResponse(), (bytes(100),), True)
        self.backlog.heard(call, True)
        self.backlog.saw(call, data_pb2.FetchRequest(credit_bytes=150), (), False)
        self.backlog.saw(call, data_pb2.FetchResponse(), (bytes(50),), True)

    @pytest.mark.parametrize("path", ["PeerService/Replicate", "DataService/Fetch"])
    def test_no_more_credit_comes_back_than_has_come(self, path: str) -> None:
        call: Any = _Call(f"/minilog.v1.{path}")
        self.backlog.saw(call, peer_pb2.ReplicateRequest(credit_bytes=100), (), False)
        self.backlog.saw(call, peer_pb2.ReplicateResponse(), (bytes(60), bytes(10)), True)
        self.backlog.saw(call, peer_pb2.ReplicateResponse(), (bytes(20),), True)
        self.backlog.heard(call, True)
        self.backlog.saw(call, peer_pb2.ReplicateRequest(credit_bytes=170), (), False)
        with pytest.raises(Violation, match="p1 gives b1 leave for 171 bytes, has a window of 100, and 70 have come"):
            self.backlog.saw(call, peer_pb2.ReplicateRequest(credit_bytes=171), (), False)

    def _produce(self, call: Any, correlation_id: int, producer_id: int) -> None:
        partition = common_pb2.PartitionId(topic_id=TOPIC_ID, partition=0)
        entry = data_pb2.ProduceEntry(correlation_id=correlation_id, partition_id=partition)
        batch = build_batch(
            TOPIC_ID, 0, records_to_columns([b"a"]), timestamp_us=1, producer_id=producer_id, producer_epoch=0,
            base_sequence=correlation_id,
        )  # fmt: skip
        self.backlog.saw(call, data_pb2.ProduceRequest(acks=-1, entries=[entry]), (batch,), False)

    def test_a_producer_has_so_many_unanswered_batches_under_one_id(self) -> None:
        call: Any = _Call("/minilog.v1.DataService/Produce")
        for number in range(MOST_IN_FLIGHT):
            self._produce(call, number, 7)
        self._produce(call, 100, 8)
        result = data_pb2.ProduceResult(correlation_id=0)
        self.backlog.saw(call, data_pb2.ProduceResponse(results=[result]), (), True)
        self._produce(call, 101, 7)
        with pytest.raises(Violation, match="p1 has 6 unanswered batches at b1"):
            self._produce(call, 102, 7)

    def test_a_process_has_so_many_calls_open(self) -> None:
        connection = self.cluster.network.connection(Process("p1"), "b1")
        connection.calls = dict.fromkeys(range(MOST_CALLS))
        self.backlog.look()
        connection.calls[MOST_CALLS] = None
        with pytest.raises(Violation, match=f"p1 has {MOST_CALLS + 1} open calls to b1"):
            self.backlog.look()


class TestChanges:
    """Of an ISR that goes to and fro, a second apart."""

    def _flap(self, cluster: SimulatedCluster, calm: Calm, changes: Changes, times: int, **moved: Any) -> None:
        states = [records_pb2.PartitionRecord(in_sync_replicas=each, **moved) for each in ([1, 2, 3], [1, 2])]
        for number in range(times):
            cluster.loop.now_s += 1.0
            calm.look()
            changes.changed(JudgedChange(KEY, states[number % 2], states[1 - number % 2], number))

    def _world(self, plan: Plan = CALM) -> tuple[SimulatedCluster, Calm, Changes]:
        cluster = _cluster(plan)
        calm = Calm(cluster)
        calm.look()
        cluster.loop.now_s = CALM_S
        return cluster, calm, Changes(cluster, calm)

    def test_the_isr_changes_seldom_where_nothing_is_broken(self) -> None:
        cluster, calm, changes = self._world()
        self._flap(cluster, calm, changes, MOST_CHANGES)
        with pytest.raises(Violation, match=r"V19: the ISR of partition 0 has changed 4 times since 6\.0 s"):
            self._flap(cluster, calm, changes, 1)

    def test_a_broker_that_was_late_and_a_connection_that_broke_are_no_calm(self) -> None:
        cluster, calm, changes = self._world()
        self._flap(cluster, calm, changes, MOST_CHANGES)
        process = cluster.hosts[2].process
        assert process is not None
        process.stop(cluster.now_s)
        process.go_on(cluster.now_s)
        self._flap(cluster, calm, changes, 1)
        assert calm.lasts_s < 0
        cluster.loop.now_s += CALM_S + 60.0
        self._flap(cluster, calm, changes, MOST_CHANGES)
        call: Any = _Call("any")
        calm.heard(call, None)
        self._flap(cluster, calm, changes, 1)

    @pytest.mark.parametrize("moved", [{"adding_replicas": [3]}, {"removing_replicas": [3]}])
    def test_moves_of_an_operator_do_not_count(self, moved: dict[str, Any]) -> None:
        self._flap(*self._world(), 2 * MOST_CHANGES, **moved)

    def test_nor_does_a_burst_of_writes_under_a_bound_in_records(self) -> None:
        configs = {number: {"replica.lag.max.records": "20"} for number in range(1, 4)}
        self._flap(*self._world(replace(CALM, configs=configs)), 2 * MOST_CHANGES)


class TestKeptOut:
    """Seed 60000121: a bound in records keeps a follower out that reads slower than producers write."""

    @pytest.mark.parametrize(
        ("comes_on", "cold_share", "in_sync", "is_kept_out"),
        [
            (100, 1.0, (1,), True),
            (0, 1.0, (1,), False),  # it is stuck
            (150, 1.0, (1,), False),  # it is near enough, and could join
            (100, 0.0, (1,), False),  # no read is cold: nobody is slow
            (100, 1.0, (1, 2), False),  # the ISR is large enough
        ],
    )
    def test_a_follower_that_comes_on_and_is_too_far_behind_is_kept_out(
        self, comes_on: int, cold_share: float, in_sync: tuple[int, ...], is_kept_out: bool
    ) -> None:
        assert (self._seconds_out(comes_on, 150, cold_share, in_sync) > 0.0) == is_kept_out

    def _seconds_out(self, comes_on: int, grows: int, cold_share: float, in_sync: tuple[int, ...]) -> float:
        """Up to when broker 3 was kept out, over ten seconds; both are records a second."""
        configs = {number: {"replica.lag.max.records": "20"} for number in range(1, 4)}
        cluster = _cluster(Plan(configs=configs, cold_share=cold_share))
        cluster.hosts[1].configs = configs[1] | {"replica.lag.time.max.ms": "500"}
        state = records_pb2.PartitionRecord(leader_id=1, in_sync_replicas=in_sync, replicas=[*in_sync, 3])
        durable = SimpleNamespace(durable=SimpleNamespace(end=0))
        truth: Any = SimpleNamespace(
            metadata=SimpleNamespace(states={KEY: state}),
            log_name=lambda key: "t0-0",
            copies=SimpleNamespace(of=lambda number, name: durable),
            partitions={},
            speaker=lambda name: (int(name[1:]), cluster.hosts[int(name[1:])].lives),
        )
        lag, call = Lag(cluster, truth), SimpleNamespace(method="/minilog.v1.PeerService/Replicate", client="b3")
        call.host = "b1"
        for second in range(20):
            cluster.loop.now_s = second / 2
            durable.durable.end = second * grows // 2
            told = peer_pb2.ReplicateRequest()
            told.progress.add(durable_end_offset=second * comes_on // 2).partition_id.CopyFrom(
                common_pb2.PartitionId(topic_id=KEY.topic_id, partition=KEY.partition)
            )
            lag.saw(call, told, answers=False)
            lag.look(None)
        return lag.kept_out_s.get(KEY, 0.0)


def test_a_leader_that_refuses_a_client_that_lives_is_not_well_for_it() -> None:
    """Seed 1300536: it stays the leader, since brokers are connected to it."""
    cluster = _cluster()
    cluster.client("p1")
    cluster.network.refused_s |= {("p1", "b1"): 12.0, ("p0", "b1"): 14.0, ("b3", "b1"): 15.0, ("p1", "b2"): 16.0}
    assert refused_s(cluster, cluster.hosts[1]) == 12.0
    assert refused_s(cluster, cluster.hosts[3]) == 0.0
    assert refused_s(cluster, None) == 0.0
