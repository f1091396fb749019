"""When a broker counts as alive and as ready, and what it says where it does not."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from minilog_broker.server.disk.disk_stall import DiskAnswer
from minilog_broker.server.health import BrokerCondition, not_alive, not_ready
from minilog_broker.server.services.health_service import MAX_WATCHES, HealthService

WELL = BrokerCondition(
    stopping=False,
    registered=True,
    fenced=False,
    controller_silent_ms=300.0,
    session_timeout_ms=3_000.0,
    disk=DiskAnswer.IN_TIME,
    no_space=False,
)
SILENT = {"controller_silent_ms": 3_100.0}


def test_a_broker_that_is_well_is_alive_and_ready() -> None:
    assert not_alive(WELL) == not_ready(WELL) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"registered": False}, ["starting: not registered yet"]),
        ({"fenced": True}, ["fenced: "]),
        (SILENT, ["no controller has answered for 3.1 s: "]),
        ({**SILENT, "fenced": True}, ["no controller has answered"]),
        ({"disk": DiskAnswer.STALLED}, ["a disk does not answer: "]),
        ({"disk": DiskAnswer.STALLED, "fenced": True}, ["fenced: ", "a disk does not answer: "]),
        ({"disk": DiskAnswer.SLOW}, []),
        ({"no_space": True}, ["a disk is full: "]),
        ({"stopping": True}, ["stopping: "]),
    ],
)
def test_why_it_is_not_ready_is_a_line_each(change: dict[str, Any], said: list[str]) -> None:
    reasons = not_ready(dataclasses.replace(WELL, **change))
    assert len(reasons) == len(said)
    assert all(reason.startswith(beginning) for reason, beginning in zip(reasons, said, strict=True))
    assert not any("\n" in reason for reason in reasons)


@pytest.mark.parametrize("change", [{"registered": False}, {"fenced": True}, SILENT, {"disk": DiskAnswer.STALLED}])
def test_only_a_broker_that_ends_is_not_alive(change: dict[str, Any]) -> None:
    assert not_alive(dataclasses.replace(WELL, **change)) == []
    assert len(not_alive(dataclasses.replace(WELL, stopping=True))) == 1


class Watching:
    """The stream of a caller who watches."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.changed = asyncio.Event()

    async def write(self, message: health_pb2.HealthCheckResponse) -> None:
        self.statuses.append(message.status)
        if len(self.statuses) > 1:
            self.changed.set()


def test_watches_tell_changes_and_are_bounded() -> None:
    condition = WELL

    async def scenario() -> None:
        nonlocal condition
        service = HealthService(lambda: condition)
        streams = [Watching() for _ in range(MAX_WATCHES)]
        request = health_pb2.HealthCheckRequest(service="minilog")
        tasks = [asyncio.ensure_future(service.Watch(request, each)) for each in streams]
        await asyncio.sleep(0)
        one_more = Watching()
        await asyncio.wait_for(service.Watch(request, one_more), 1.0)
        assert one_more.statuses == []
        condition = dataclasses.replace(WELL, fenced=True)
        async with asyncio.timeout(5.0):
            await streams[0].changed.wait()
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        assert streams[0].statuses == [serving, not_serving]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        again = asyncio.ensure_future(service.Watch(request, one_more))
        await asyncio.sleep(0)
        again.cancel()
        assert one_more.statuses == [not_serving]

    asyncio.run(scenario())
