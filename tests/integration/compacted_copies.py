"""The copies of a compacted partition, as they are on the disks of a cluster of real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import iterate_headers
from minilog.record_batch.reader import iterate_records
from minilog_broker.storage.checkpoint import Checkpoint, read_checkpoint
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.files import OsFileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.topic_id_file import read_topic_id
from tests.cluster import Cluster

WAIT_S = 60.0


def log_path(cluster: Cluster, broker_id: int, topic: str) -> str:
    return str(cluster.data_directory(broker_id) / f"{topic}-0")


def checkpoint(cluster: Cluster, broker_id: int, topic: str) -> Checkpoint:
    """The checkpoint of a broker's copy. One of an empty log, if the broker has not made the copy yet."""
    found = read_checkpoint(OsFileSystem(), log_path(cluster, broker_id, topic))
    return found or Checkpoint(0, 0, 0, flush_on_append=True)


def points(cluster: Cluster, topic: str) -> set[CompactionPoint]:
    """The different points that the copies have carried out."""
    return {checkpoint(cluster, broker_id, topic).compaction.done for broker_id in cluster.ports}


def settle(cluster: Cluster, topic: str, *, above: int) -> CompactionPoint:
    """Wait until all copies have carried out one point, and nothing more is due. Gives that point."""

    def is_settled() -> bool:
        (point, *others) = points(cluster, topic)
        return not others and above < point.clean_to == point.deletes_before

    until(is_settled, f"the copies of {topic} did not come to one point above {above}")
    return points(cluster, topic).pop()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def stored(cluster: Cluster, broker_id: int, topic: str) -> list[dict[str, Any]]:
    """The records of a stopped broker's copy, straight from its disk."""
    path, files = log_path(cluster, broker_id, topic), OsFileSystem()
    topic_id = read_topic_id(files, path)
    assert topic_id is not None
    key = PartitionKey(bytes.fromhex(topic_id.topic_id), 0)
    log = Log.open(files, path, key, topic, LogSettings(), unclean=False, create=False)
    rows, offset = list[dict[str, Any]](), log.log_start_offset
    while offset < log.log_end_offset:
        run = log.read(offset, 1 << 20)
        for batch in iterate_records(run, *key):
            rows += [] if batch.rows is None else batch.rows.to_pylist()
        offset = max(header.next_offset for _, header in iterate_headers(run))
    log.close(clean=False)
    return rows
