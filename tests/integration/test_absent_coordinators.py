"""A poll beside a coordinator that is away: the log says so, once a state, and when it is over."""

from __future__ import annotations

import logging
import pathlib
import time

import pytest

from minilog import Consumer, NewTopic, Producer, QueueConsumer
from minilog.sync.admin import Admin
from tests.cluster import running_cluster

READER = {"group.id": "readers", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
AWAY_S = 5.0
SERVES_WITHIN_S = 60.0


@pytest.mark.long
@pytest.mark.dear("it kills brokers, and others take over")
def test_a_poll_of_a_queue_and_of_a_group_tells_that_its_coordinator_is_away(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(what: str) -> list[str]:
        return [text for record in caplog.records if what in (text := record.getMessage())]

    with running_cluster(tmp_path, brokers=1) as cluster, caplog.at_level(logging.WARNING, "minilog"):
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic("jobs", 1, 1)])
        with Producer(cluster.client) as producer:
            producer.send("jobs", value=b"1").result(timeout=30)
        with (
            QueueConsumer({**cluster.client, "queue": "workers"}) as worker,
            Consumer({**cluster.client, **READER}) as reader,
        ):
            worker.subscribe(["jobs"])
            reader.subscribe(["jobs"])
            assert [message.accept() for message in worker.poll(30)] == [None]
            while not reader.poll(1.0):
                pass
            cluster.kill(1)
            until_s = time.monotonic() + AWAY_S
            while time.monotonic() < until_s:
                assert worker.poll(0.2) == []
                assert list(reader.poll(0.2)) == []
            cluster.start(1)
            cluster.wait_running()
            until_s = time.monotonic() + SERVES_WITHIN_S
            while len(said("serves again")) < 2 and time.monotonic() < until_s:
                worker.poll(0.2)
                reader.poll(0.2)
            for who in ("'workers'", "'readers'"):
                about = [text for text in said("the coordinator of") if who in text]
                assert any("does not serve" in text for text in about), about
                assert "serves again" in about[-1]
                assert len(about) <= 6, about  # one for each state
