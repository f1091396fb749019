"""The judge of the whole brokers is judged: it reads disks as they are, and finds wrong rules where they first show."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest

from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import PLACEMENT_BYTES, placement
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.epoch_cache import EpochCache
from tests.judges.partition import check_epochs, check_start
from tests.judges.violation import Violation
from tests.rules import proves
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge.copies import Copies, Copy
from tests.simulation.judge.fencing import Fencing
from tests.simulation.judge.hearing import Lead
from tests.simulation.judge.leader_epochs import first_wrong
from tests.simulation.judge.metadata import Metadata
from tests.simulation.judge.registrations import Decision, Registrations
from tests.simulation.machines.machine import EPOCH_S
from tests.simulation.plan import Plan
from tests.world.disk import MemoryDisk
from tests.world.loop import Process

pytestmark = proves("DEL.5")

SESSION = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "150"}
PATH = "/data/t-0"
TOPIC_ID = bytes(16)


def _batch(offset: int, records: int = 2, epoch: int = 0) -> bytes:
    columns = records_to_columns([b"%d" % number for number in range(offset, offset + records)])
    batch = build_batch(TOPIC_ID, 0, columns, timestamp_us=1)
    return placement(batch, offset, epoch) + batch[PLACEMENT_BYTES:]


@pytest.mark.parametrize(("fenced", "stopping"), [(True, False), (False, True), (False, False)])
def test_nobody_joins_an_isr_who_is_fenced_or_stops(fenced: bool, stopping: bool) -> None:
    registrations, key = Registrations(lambda state, decision: None), PartitionKey(TOPIC_ID, 0)
    registrations.registered(2, 7)
    state = records_pb2.BrokerStateRecord(broker_id=2, broker_epoch=7, fenced=fenced, stopping=stopping)
    registrations.changed(state, None)
    if fenced or stopping:
        with pytest.raises(Violation, match="session: b2 joins"):
            registrations.check_joiners(key, [2])
    else:
        registrations.check_joiners(key, [2])
        with pytest.raises(Violation, match="b3 joins the ISR of partition 0, and registered is None"):
            registrations.check_joiners(key, [3])


class _Call:
    """Heartbeats of b2 to b1."""

    method, client, host = "/minilog.v1.PeerService/Heartbeat", "b2", "b1"


class TestFencing:
    """b1 is the controller of epoch 1 from 10 s on, with a session time-out of 1.5 s; b2 is registered at 7."""

    EPOCH, LIFE = 1, 7

    @pytest.fixture(autouse=True)
    def world(self) -> None:
        self.cluster = cluster = SimulatedCluster(1, Plan(configs=dict.fromkeys((1, 2, 3), SESSION)))
        cluster.loop.close()
        controller = cluster.hosts[1]
        self.process = controller.process = Process("b1")
        controller.lives = 1
        controller.listens()
        self.fencing, self.call = Fencing(cluster), _Call()
        self._at(10.0)
        self.registrations = Registrations(self.fencing.fenced)
        self.registrations.registered(2, self.LIFE)
        self._state(fenced=False)

    def _at(self, now_s: float) -> None:
        self.cluster.loop.now_s = now_s

    def _state(self, *, fenced: bool) -> None:
        state = records_pb2.BrokerStateRecord(broker_id=2, broker_epoch=self.LIFE, fenced=fenced)
        now_us, elected_us = (int((EPOCH_S + each) * 1e6) for each in (self.cluster.now_s, 10.0))
        self.registrations.changed(state, Decision(self.EPOCH, 1, now_us, elected_us))

    def _beats(self, now_s: float) -> None:
        self._at(now_s)
        call: Any = self.call
        self.fencing.saw(call, peer_pb2.HeartbeatRequest(broker_id=2, broker_epoch=self.LIFE), False)
        self.fencing.heard(call, False)
        answer = peer_pb2.HeartbeatResponse(controller_epoch=self.EPOCH, session_timeout_ms=1_500)
        self.fencing.saw(call, answer, True)

    def _pauses(self, since_s: float, until_s: float) -> None:
        self.process.stop(since_s)
        self.process.go_on(until_s)

    @pytest.mark.parametrize(("heard_s", "fenced_s"), [(12.0, 13.2), (None, 10.8)])
    def test_a_broker_heard_of_late_is_fenced_too_early(self, heard_s: float | None, fenced_s: float) -> None:
        if heard_s is not None:
            self._beats(heard_s)
        self._at(fenced_s)
        with pytest.raises(Violation, match=r"V20: b1 fences b2"):
            self._state(fenced=True)

    def test_the_time_in_which_the_controller_stood_still_is_no_silence(self) -> None:
        self._beats(12.0)
        self._pauses(12.1, 18.0)
        self._at(18.0)
        with pytest.raises(Violation, match=r"fences b2 for 0\.100 s"):
            self._state(fenced=True)

    def test_heartbeats_after_the_decision_do_not_count(self) -> None:
        self._beats(12.0)
        state = records_pb2.BrokerStateRecord(broker_id=2, broker_epoch=self.LIFE, fenced=True)
        decided_us, elected_us = (int((EPOCH_S + each) * 1e6) for each in (13.6, 10.0))
        self._beats(13.7)
        self._at(14.0)
        self.registrations.changed(state, Decision(self.EPOCH, 1, decided_us, elected_us))

    def test_a_refused_connection_fences_at_once(self) -> None:
        self._beats(12.0)
        self.cluster.network.refused_s["b1", "b2"] = 12.2
        self._at(12.3)
        self._state(fenced=True)

    @pytest.mark.parametrize(("paused_s", "is_found"), [(0.0, True), (0.4, True), (2.0, False)])
    def test_whom_nobody_hears_is_fenced_however_often_its_controller_was_late(
        self, paused_s: float, is_found: bool
    ) -> None:
        self._beats(12.0)
        self._pauses(13.0, 13.0 + paused_s)
        self._at(15.5)
        own: Any = _Call()
        own.client = "b1"
        self.fencing.saw(own, peer_pb2.HeartbeatRequest(broker_id=1, broker_epoch=6), False)
        answer = peer_pb2.HeartbeatResponse(controller_epoch=self.EPOCH, session_timeout_ms=1_000)
        self.fencing.saw(own, answer, True)
        copies = Copies(list(self.cluster.hosts.values()))
        metadata = Metadata(copies, [1, 2, 3], lambda change: None, self.registrations)
        lead = Lead(self.EPOCH, 1, 1, 10.0)
        if is_found:
            with pytest.raises(Violation, match="has not heard b2"):
                self.fencing.look(lead, metadata)
        else:
            self.fencing.look(lead, metadata)


class TestLeaderEpochs:
    """A log from 0 to 10, with batches of epoch 1 from 0 on and of epoch 3 from 4 on."""

    BATCHES: ClassVar = [(1, 0), (3, 4)]

    @pytest.mark.parametrize("recorded", [[(1, 0), (3, 4)], [(1, 0), (3, 4), (7, 10)], [(0, -3), (1, 0), (3, 4)]])
    def test_a_file_that_agrees_may_say_more_of_what_is_not_there(self, recorded: list[tuple[int, int]]) -> None:
        assert first_wrong(self.BATCHES, EpochCache(recorded).encode(), 0, 10) is None

    @pytest.mark.parametrize("recorded", [[], [(1, 0)], [(3, 0)], [(1, 0), (3, 5)], [(1, 0), (2, 3), (3, 4)]])
    def test_a_leader_epoch_that_does_not_rise_is_wrong(self, recorded: list[tuple[int, int]]) -> None:
        assert first_wrong(self.BATCHES, EpochCache(recorded).encode(), 0, 10) is not None

    def test_below_the_start_of_the_log_nobody_asks(self) -> None:
        assert first_wrong(self.BATCHES, EpochCache([(3, 5)]).encode(), 5, 10) is None

    def test_epochs_that_go_back_are_wrong_whatever_the_file_says(self) -> None:
        check_epochs("b1", [3, 3, 4])
        with pytest.raises(Violation, match="V3: in the log of b1 epoch 3 is followed by 1"):
            check_epochs("b1", [3, 1])


def test_a_log_start_that_a_leader_tells_never_goes_back() -> None:
    check_start("b1", 7, 5)
    with pytest.raises(Violation, match="V1: b1 tells the log start 5, and told 7 before"):
        check_start("b1", 5, 7)


class TestCopies:
    """A copy on a disk of two segments: what is synced, and what is not."""

    @pytest.fixture
    def disk(self) -> MemoryDisk:
        cluster = SimulatedCluster(1, Plan())
        cluster.loop.close()
        host = cluster.hosts[1]
        self.copy = Copy(host, "t-0")
        host.disk.make_dir("/data")
        host.disk.make_dir(PATH)
        for name in ("/", "/data", PATH):
            host.disk.fsync_dir(name)
        return host.disk

    def _write(self, disk: MemoryDisk, base: int, content: bytes, position: int, *, sync: bool) -> None:
        file = disk.open(f"{PATH}/{base:020d}.log", create=True)
        file.write([content], position)
        if sync:
            file.fdatasync()
        file.close()

    def test_bytes_without_a_sync_are_live_and_not_durable(self, disk: MemoryDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        disk.fsync_dir(PATH)
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=False)
        assert (self.copy.live.end, self.copy.durable.end) == (4, 2)

    def test_a_file_whose_name_is_not_synced_is_not_durable(self, disk: MemoryDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        assert (self.copy.live.end, self.copy.durable.end) == (2, 0)
        disk.fsync_dir(PATH)
        assert self.copy.durable.end == 2

    def test_growing_copies_are_read_on_and_agreed_records_stay(self, disk: MemoryDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        view = self.copy.live
        view.agreed = view.end
        self._write(disk, 0, _batch(2, 3), len(_batch(0)), sync=True)
        assert [header.base_offset for header in self.copy.live.batches] == [0, 2]
        assert (view.agreed, view.end) == (2, 5)

    def test_cut_records_are_reported_once_also_where_they_were_written_again(self, disk: MemoryDisk) -> None:
        self._write(disk, 0, _batch(0) + _batch(2), 0, sync=True)
        self.copy.live.agreed = self.copy.live.end
        file = disk.open(f"{PATH}/{0:020d}.log")
        file.truncate(len(_batch(0)))
        file.write([_batch(2, epoch=7)], len(_batch(0)))
        view = self.copy.live
        assert (view.take_cut("a"), view.take_cut("a")) == (2, None)
        assert (view.agreed, view.end, view.batches[-1].partition_leader_epoch) == (2, 4, 7)

    def test_a_torn_batch_ends_the_log_and_so_does_a_gap(self, disk: MemoryDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        self._write(disk, 4, _batch(4), 0, sync=True)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2)[:-8], len(_batch(0)), sync=True)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=True)
        assert self.copy.live.end == 6

    @pytest.mark.parametrize(("log_start", "start", "end"), [(3, 0, 2), (4, 4, 6), (5, 4, 6)])
    def test_a_gap_below_the_start_of_the_log_is_what_a_crash_left(
        self, disk: MemoryDisk, log_start: int, start: int, end: int
    ) -> None:
        """Seed 1301134: of three segments that were being deleted the second had gone."""
        self._write(disk, 0, _batch(0), 0, sync=True)
        self._write(disk, 4, _batch(4), 0, sync=True)
        write_durable_file(disk, f"{PATH}/checkpoint", b'{"log_start_offset":%d}' % log_start)
        assert (self.copy.live.start, self.copy.live.end) == (start, end)

    def test_after_a_loss_of_power_the_copy_is_what_was_durable(self, disk: MemoryDisk) -> None:
        disk.random = random.Random(1)
        self._write(disk, 0, _batch(0), 0, sync=True)
        disk.fsync_dir(PATH)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=False)
        assert self.copy.live.end == 4
        disk.lose_power()
        assert self.copy.live.end == self.copy.durable.end
        assert self.copy.live.start == 0
