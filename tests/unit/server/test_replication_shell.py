"""The shell of the replicas: a session ends with its stream, and nothing happens behind a stop."""

from __future__ import annotations

import asyncio
import pathlib

import pytest

from minilog.partition_key import PartitionKey
from minilog.v1 import data_pb2
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState
from minilog_broker.server.runtime.timer import now_ms
from tests.unit.server.coordinating import BROKER, BROKER_EPOCH, CONFIG, ORDERS, CoordinatingBroker

LATER_MS = 1_000.0  # a sign of life is due by then


def test_nothing_is_said_on_a_session_whose_stream_is_gone(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        broker = CoordinatingBroker(tmp_path)
        try:
            replicas = broker.replicas
            gone, stays = replicas.sessions.open(), replicas.sessions.open()
            for session_id in (gone, stays):
                replicas.manager.open_consumer_session(session_id, data_pb2.FetchRequest(), now_ms())
            replicas.close_session(gone)
            assert replicas.manager.next_message(gone, now_ms() + LATER_MS) is None
            assert replicas.manager.next_message(stays, now_ms() + LATER_MS) is not None
        finally:
            await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(("stops", "leaders"), [(False, [2]), (True, [])])
def test_a_log_that_opens_behind_a_stop_opens_no_link(tmp_path: pathlib.Path, stops: bool, leaders: list[int]) -> None:
    """Seed 70000145 of the theme members: records of the new link came for a log that the stop had closed."""

    async def scenario() -> None:
        broker = CoordinatingBroker(tmp_path)
        try:
            key = PartitionKey(ORDERS, 0)
            followed = PartitionState(key, "orders", (BROKER, 2), (2,), (), (), 2, 0, 0, BROKER_EPOCH)
            lives = {each: BrokerIncarnation(each, BROKER_EPOCH, "here", 1, False, False) for each in (BROKER, 2)}
            apply = broker.replicas.manager.apply_image
            apply([followed], (), {ORDERS: CONFIG}, {ORDERS: "orders"}, lives, now_ms())
            broker.replicas.run()
            if stops:
                broker.replicas.stop()
            await broker.disk.call(lambda: None)  # the log is open, and the shell knows it
            await asyncio.sleep(0)
            assert key in broker.logs.logs
            assert [each.leader_id for each in broker.linked] == leaders
        finally:
            await broker.stop()

    asyncio.run(scenario())
