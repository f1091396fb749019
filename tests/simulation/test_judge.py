"""The judge of the whole brokers is judged: it reads disks as they are, and finds wrong rules where they first show."""

from __future__ import annotations

import random

import pytest

from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import PLACEMENT_BYTES, placement
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge.copies import Copy
from tests.simulation.machines.disk import SimulatedDisk
from tests.simulation.plan import Plan
from tests.simulation.run import run_many

CALM = Plan(writers=1, quiet_s=1.0, safety_s=0.5)  # nothing befalls it
AT_ONCE = {
    "15 a decision takes effect before it is committed": "V15",
    "16 LSO above HW": "V1",
    "19 vote answered before it is written": "V11",
    "24 progress before fsync": "V1",
    "V14 producer ids are told before they are committed": "V14",
}
PATH = "/data/t-0"
TOPIC_ID = bytes(16)


def _batch(offset: int, records: int = 2, epoch: int = 0) -> bytes:
    columns = records_to_columns([b"%d" % number for number in range(offset, offset + records)])
    batch = build_batch(TOPIC_ID, 0, columns, timestamp_us=1)
    return placement(batch, offset, epoch) + batch[PLACEMENT_BYTES:]


@pytest.mark.parametrize("mutant", AT_ONCE)
def test_what_is_told_too_early_is_found_though_nothing_befalls_the_cluster(mutant: str) -> None:
    (result,) = run_many([1], 1, mutant, plan=CALM)
    assert result.failure is not None
    assert result.failure.startswith(f"{AT_ONCE[mutant]}:")


class TestCopies:
    """A copy on a disk of two segments: what is synced, and what is not."""

    @pytest.fixture
    def disk(self) -> SimulatedDisk:
        cluster = SimulatedCluster(1, Plan())
        cluster.loop.close()
        host = cluster.hosts[1]
        self.copy = Copy(host, "t-0")
        host.disk.make_dir("/data")
        host.disk.make_dir(PATH)
        for name in ("/", "/data", PATH):
            host.disk.fsync_dir(name)
        return host.disk

    def _write(self, disk: SimulatedDisk, base: int, content: bytes, position: int, *, sync: bool) -> None:
        file = disk.open(f"{PATH}/{base:020d}.log", create=True)
        file.write([content], position)
        if sync:
            file.fdatasync()
        file.close()

    def test_what_is_not_synced_is_live_and_not_durable(self, disk: SimulatedDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        disk.fsync_dir(PATH)
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=False)
        assert (self.copy.live.end, self.copy.durable.end) == (4, 2)

    def test_a_file_whose_name_is_not_synced_is_not_durable(self, disk: SimulatedDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        assert (self.copy.live.end, self.copy.durable.end) == (2, 0)
        disk.fsync_dir(PATH)
        assert self.copy.durable.end == 2

    def test_what_grows_is_read_on_and_what_agreed_stays(self, disk: SimulatedDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        view = self.copy.live
        view.agreed = view.end
        self._write(disk, 0, _batch(2, 3), len(_batch(0)), sync=True)
        assert [header.base_offset for header in self.copy.live.batches] == [0, 2]
        assert (view.agreed, view.end) == (2, 5)

    def test_what_was_cut_away_is_told_once_also_where_it_was_written_again(self, disk: SimulatedDisk) -> None:
        self._write(disk, 0, _batch(0) + _batch(2), 0, sync=True)
        self.copy.live.agreed = self.copy.live.end
        file = disk.open(f"{PATH}/{0:020d}.log")
        file.truncate(len(_batch(0)))
        file.write([_batch(2, epoch=7)], len(_batch(0)))
        view = self.copy.live
        assert (view.take_cut(), view.take_cut()) == (2, None)
        assert (view.agreed, view.end, view.batches[-1].partition_leader_epoch) == (2, 4, 7)

    def test_a_torn_batch_ends_the_log_and_so_does_a_gap(self, disk: SimulatedDisk) -> None:
        self._write(disk, 0, _batch(0), 0, sync=True)
        self._write(disk, 4, _batch(4), 0, sync=True)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2)[:-8], len(_batch(0)), sync=True)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=True)
        assert self.copy.live.end == 6

    def test_after_a_loss_of_power_the_copy_is_what_was_durable(self, disk: SimulatedDisk) -> None:
        disk.random = random.Random(1)
        self._write(disk, 0, _batch(0), 0, sync=True)
        disk.fsync_dir(PATH)
        assert self.copy.live.end == 2
        self._write(disk, 0, _batch(2), len(_batch(0)), sync=False)
        assert self.copy.live.end == 4
        disk.lose_power()
        assert self.copy.live.end == self.copy.durable.end
        assert self.copy.live.start == 0
