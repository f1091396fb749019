"""The data directory: whose it is, that one process has it, and what a clean stop leaves."""

from __future__ import annotations

from random import Random

import pytest

from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.errors import DataDirectoryError, DataDirectoryInUse
from minilog_broker.storage.log import Log
from tests.unit.storage.logs import KEY, SETTINGS, TOPIC, fill
from tests.world.disk import MemoryDisk, PowerLoss


def opened(
    files: MemoryDisk, *, broker_id: int = 1, cluster_id: str | None = None, boot_id: str = "boot-1"
) -> DataDirectory:
    return DataDirectory.open(files, "/data", broker_id, cluster_id, boot_id=boot_id, process_id=4711)


def open_partition(files: MemoryDisk, directory: DataDirectory) -> Log:
    path = directory.partition_path(TOPIC, KEY.partition)
    return Log.open(files, path, KEY, TOPIC, SETTINGS, unclean=True, create=True)


def test_a_directory_in_use_names_itself_and_the_process(files: MemoryDisk) -> None:
    directory = opened(files)
    with pytest.raises(DataDirectoryInUse, match="/data is in use by process 4711"):
        opened(files)
    directory.close()
    opened(files)
    assert files.content("/data/broker.pid") == b"4711\n"


def test_the_pid_file_goes_with_the_process_that_wrote_it(files: MemoryDisk) -> None:
    """Once: whoever was refused overwrote and removed the pid file of the broker that has the directory."""
    directory = opened(files)
    with pytest.raises(DataDirectoryInUse):
        DataDirectory.open(files, "/data", 1, None, process_id=4712)
    assert files.content("/data/broker.pid") == b"4711\n"
    directory.close()
    assert not files.exists("/data/broker.pid")


def test_a_pid_file_of_somebody_else_stays(files: MemoryDisk) -> None:
    directory = opened(files)
    file = files.open("/data/broker.pid")
    file.write([b"4712\n"], 0)
    directory.close()
    assert files.content("/data/broker.pid") == b"4712\n"


def test_the_directory_id_is_made_once(files: MemoryDisk) -> None:
    first = opened(files).directory_id
    assert len(first) == 32
    files.lose_power()
    assert opened(files).directory_id == first


def test_another_brokers_directory_is_refused_with_both_ids(files: MemoryDisk) -> None:
    opened(files, broker_id=1).close()
    with pytest.raises(DataDirectoryError, match="/data belongs to broker 1, and this is broker 2"):
        opened(files, broker_id=2)
    opened(files, broker_id=1)  # the refusal left no lock behind


def test_another_clusters_directory_is_refused_with_both_ids(files: MemoryDisk) -> None:
    directory = opened(files)
    assert directory.cluster_id is None
    directory.set_cluster("first", [1])
    with pytest.raises(DataDirectoryError, match="belongs to cluster first, and this broker joins cluster second"):
        directory.set_cluster("second", [1])
    files.lose_power()
    assert opened(files).cluster_id == "first"
    files.end_process()
    with pytest.raises(DataDirectoryError, match="belongs to cluster first"):
        opened(files, cluster_id="second")


def test_a_clean_stop_is_told_to_the_next_life_only(files: MemoryDisk) -> None:
    directory = opened(files)
    assert directory.clean_stop_epoch is None
    directory.write_clean_stop(17)
    files.lose_power()
    assert opened(files).clean_stop_epoch == 17
    files.lose_power()
    assert opened(files).clean_stop_epoch is None


def test_a_refused_start_leaves_the_mark(files: MemoryDisk) -> None:
    opened(files).write_clean_stop(17)
    files.lose_power()
    with pytest.raises(DataDirectoryError):
        opened(files, broker_id=2)
    assert opened(files).clean_stop_epoch == 17


def test_the_mark_is_gone_before_anything_of_the_new_life_is_written(files: MemoryDisk) -> None:
    for step in range(12):
        for seed in range(5):
            files = MemoryDisk(Random(seed))
            opened(files).write_clean_stop(17)
            files.lose_power()
            files.die_after(step, PowerLoss)
            started = False
            try:
                directory = opened(files)
                started = True
                fill(open_partition(files, directory), 1)
            except PowerLoss:
                pass
            files.lose_power()
            assert not (started and opened(files).clean_stop_epoch)


def test_logs_are_listed_with_their_topic_ids(files: MemoryDisk) -> None:
    directory = opened(files)
    open_partition(files, directory)
    files.make_dir("/data/half-0")  # creating it was cut short
    found, half = [directory.partition_at(path) for path in directory.partition_paths()]
    assert half is None
    assert found is not None
    assert (found.path, found.topic_id, found.topic_name, found.partition) == ("/data/flights-3", *KEY[:1], TOPIC, 3)


def test_a_log_set_aside_is_no_log_any_more_and_can_be_removed(files: MemoryDisk) -> None:
    directory = opened(files)
    log = open_partition(files, directory)
    fill(log, 3)
    log.close(clean=False)
    aside = directory.set_aside(log.directory)
    files.lose_power()
    directory = opened(files)
    assert directory.partition_paths() == []
    assert directory.partitions_set_aside() == [aside]
    with pytest.raises(ValueError, match="not a directory that was set aside"):
        directory.remove_set_aside("/data/flights-3", 1)
    assert directory.remove_set_aside(aside, 1) is not None, "one file at a time"
    assert len(files.list(aside)) > 0
    while directory.remove_set_aside(aside, 1) is not None:
        continue
    assert directory.partitions_set_aside() == []
    assert open_partition(files, directory).log_end_offset == 0


def test_a_long_name_still_fits(files: MemoryDisk) -> None:
    directory = opened(files)
    files.make_dir("/data/" + "n" * 249 + "-12")
    assert len(directory.set_aside("/data/" + "n" * 249 + "-12").removeprefix("/data/")) < 255
