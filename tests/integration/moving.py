"""What the tests of moving leaders and replicas share: a writer that must see no error, and what they ask."""

from __future__ import annotations

import time
from collections.abc import Callable

from minilog import Admin, NewTopic
from tests.cluster import Cluster
from tests.integration.clients import Writer, read_all

PARTITIONS = 4


class Writing:
    """A writer in a thread of its own; on leaving, its history must be without any error."""

    def __init__(
        self, cluster: Cluster, topic: str, value_bytes: int = 200, settings: dict[str, object] | None = None
    ) -> None:
        self._cluster, self._topic, self._value_bytes, self._settings = cluster, topic, value_bytes, settings

    def __enter__(self) -> Writer:
        self._writer = Writer(
            self._cluster.bootstrap_servers, self._topic, value_bytes=self._value_bytes, settings=self._settings
        )
        self._writer.wait_for_more(200)
        return self._writer

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self._writer.wait_for_more(200)
        history = self._writer.stop()
        if error is None:
            assert history.failed == {}
            assert history.unknown == set()
            assert history.judge(read_all(self._cluster.bootstrap_servers, self._topic)) == []


def admin(cluster: Cluster) -> Admin:
    return Admin({"bootstrap.servers": cluster.bootstrap_servers})


def create(cluster: Cluster, topic: str, replication_factor: int = 3) -> None:
    with admin(cluster) as client:
        client.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=replication_factor)])


def leaders(cluster: Cluster, topic: str) -> list[int | None]:
    with admin(cluster) as client:
        return [each.leader for each in client.describe_topics([topic])[0].partitions]


def preferred(cluster: Cluster, topic: str) -> list[int]:
    with admin(cluster) as client:
        return [each.replicas[0] for each in client.describe_topics([topic])[0].partitions]


def wait_in_sync(cluster: Cluster, topic: str) -> None:
    def in_sync() -> bool:
        with admin(cluster) as client:
            (found,) = client.describe_topics([topic])
        return all(each.leader is not None and set(each.isr) == set(each.replicas) for each in found.partitions)

    wait_until(in_sync)


def wait_until(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.05)
