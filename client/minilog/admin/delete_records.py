"""The calls that delete records. They ask the leader of each partition until it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from minilog.admin.records_deletion import RecordsDeletion
from minilog.errors import BrokerNotAvailable, TimedOut
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import OffsetsQuery
from minilog.net.runtime import now_s
from minilog.types import TopicPartition
from minilog.v1 import data_pb2, data_pb2_grpc

END = -1
_ATTEMPT_S = 3.0  # one leader's time for one question: it waits for the other replicas
_ANSWER_S = 0.5  # of that, for the way of the answer
_PAUSE_S = 0.05
_TOPIC_GRACE_S = 2.0  # a topic just created may not have reached the broker that is asked


async def delete_records(
    cluster: NetworkClient, before: Mapping[TopicPartition, int], ends: OffsetsQuery
) -> dict[TopicPartition, int]:
    """minilog.aio.admin describes it. `ends` has the ends of the partitions to empty."""
    wanted = {
        partition: ends.results[partition].last_stable_offset if offset == END else offset
        for partition, offset in before.items()
    }
    deletion = RecordsDeletion(cluster.cache, wanted)
    deadline_s = cluster.deadline()
    unknown_until_s = now_s() + _TOPIC_GRACE_S
    topics = {partition.topic for partition in wanted}
    if not topics <= cluster.cache.topics.keys():
        await cluster.refresh(topics, deadline_s)
    while True:
        await _ask_leaders(cluster, deletion, deadline_s)
        if now_s() >= unknown_until_s:
            deletion.give_up_unknown()
        if deletion.failures or not deletion.missing() or now_s() >= deadline_s:
            break
        await asyncio.sleep(_PAUSE_S)
        with contextlib.suppress(BrokerNotAvailable, TimedOut):
            await cluster.refresh(topics, deadline_s)
    if (error := deletion.error()) is not None:
        raise error
    return {partition: deletion.low_watermarks[partition] for partition in before}


async def _ask_leaders(cluster: NetworkClient, deletion: RecordsDeletion, deadline_s: float) -> None:
    """Ask all these leaders once, at the same time."""
    seconds = min(_ATTEMPT_S, max(0.0, deadline_s - now_s()))
    timeout_ms = int(max(seconds - _ANSWER_S, seconds / 2) * 1000)
    requests = deletion.requests(cluster.identity, timeout_ms)
    await asyncio.gather(*(_ask(cluster, deletion, seconds, *leader_request) for leader_request in requests))


async def _ask(
    cluster: NetworkClient,
    deletion: RecordsDeletion,
    seconds: float,
    broker_id: int,
    request: data_pb2.DeleteRecordsRequest,
) -> None:
    address = cluster.address(broker_id)
    if address is None:
        return
    answer = await cluster.call(
        address, lambda channel: data_pb2_grpc.DataServiceStub(channel).DeleteRecords(request, timeout=seconds)
    )
    if answer is not None:
        deletion.answered(answer)
