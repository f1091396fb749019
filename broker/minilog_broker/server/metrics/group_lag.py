"""The lag of groups whose coordinator is this broker.

    records    high watermark less committed offset, of all partitions together
    bytes      the same by the average record of each log, so an estimate
    seconds    of the partition with the longest lag: the time since its log ended at the committed offset. That is an
               estimate from the ends that this broker has seen (a few dozen points, older ones sparser), so it is never
               more than the time of watching

The broker asks leaders with ListOffsets, at most every LOOK_EVERY_S and only in a scrape. Groups and partitions are
bounded. A metric has the number of groups that are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from minilog.errors import MinilogError
from minilog.limits import MAX_OFFSETS_ENTRIES, parts_of
from minilog.partition_key import PartitionKey
from minilog.v1 import metadata_pb2
from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples
from minilog_broker.server.metrics.broker_parts import BrokerParts
from minilog_broker.server.metrics.end_history import EndHistory
from minilog_broker.server.runtime.timer import now_ms

logger = structlog.get_logger()

LOOK_EVERY_S = 5.0
ANSWER_WITHIN_S = 2.0  # a leader that is gone must not hold up a scrape
MAX_PARTITIONS = 2_000  # of all shown groups


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The bounds of a log, as its leader reports them."""

    log_start: int
    high_watermark: int
    size_bytes: int


def lag_of(
    offsets: Mapping[PartitionKey, int],
    ends: Mapping[PartitionKey, LogEnd],
    histories: Mapping[PartitionKey, EndHistory],
    now_s: float,
) -> tuple[int, float, float]:
    """(records, bytes, seconds) of one group, over the partitions with known ends."""
    records, size_bytes, seconds = 0, 0.0, 0.0
    for key, offset in offsets.items():
        end = ends.get(key)
        if end is None:
            continue
        behind = max(0, end.high_watermark - max(offset, end.log_start))
        records += behind
        size_bytes += behind * end.size_bytes / max(1, end.high_watermark - end.log_start)
        seconds = max(seconds, histories[key].seconds_since(offset, now_s) if behind else 0.0)
    return records, size_bytes, seconds


class GroupLag:
    """The lag of groups in records, bytes and seconds, with the points for the estimate of seconds."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")
        self._samples: Samples = []
        self._looking: asyncio.Task[None] | None = None
        self._histories: dict[PartitionKey, EndHistory] = {}

    async def look(self, parts: BrokerParts) -> Samples:
        """The samples, at most some seconds old."""
        now_s = now_ms() / 1000.0
        if self._looking is None and now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._looking = asyncio.create_task(self._look(parts))
            self._looking.add_done_callback(_retrieved)
        if self._looking is not None:
            done, _ = await asyncio.wait([self._looking], timeout=ANSWER_WITHIN_S)
            if done:
                looking, self._looking = self._looking, None
                looking.result()
        return self._samples

    async def _look(self, parts: BrokerParts) -> None:
        committed = {
            group: offsets
            for shell in parts.coordinators.groups_here()
            for group, offsets in shell.core.committed_offsets().items()
        }
        shown: dict[str, dict[PartitionKey, int]] = {}
        keys: set[PartitionKey] = set()
        for group in sorted(committed)[: names.MAX_GROUPS]:
            if len(keys | committed[group].keys()) > MAX_PARTITIONS:
                break
            shown[group] = committed[group]
            keys |= committed[group].keys()
        ends = await _ends(parts, keys)
        now_s = now_ms() / 1000.0
        self._histories = {key: self._histories.get(key) or EndHistory() for key in keys}
        for key, end in ends.items():
            self._histories[key].note(now_s, end.high_watermark)
        members = [shell.core.member_counts() for shell in parts.coordinators.groups_here()]
        self._samples = [
            (names.GROUPS, (), float(len(committed))),
            (names.GROUP_MEMBERS, (), float(sum(sum(counts.values()) for counts in members))),
            (names.GROUPS_NOT_SHOWN, (), float(len(committed) - len(shown))),
        ]
        for group, offsets in shown.items():
            records, size_bytes, seconds = lag_of(offsets, ends, self._histories, now_s)
            self._samples += [
                (names.GROUP_LAG_RECORDS, (group,), float(records)),
                (names.GROUP_LAG_BYTES, (group,), size_bytes),
                (names.GROUP_LAG_SECONDS, (group,), seconds),
            ]


def _retrieved(looking: asyncio.Task[None]) -> None:
    """Log a failure, which belongs to the scrape that meets it. Without this the loop would end the broker for it."""
    if not looking.cancelled() and (error := looking.exception()) is not None:
        logger.error("the broker could not compute the lag of groups", exc_info=error)


async def _ends(parts: BrokerParts, keys: set[PartitionKey]) -> dict[PartitionKey, LogEnd]:
    """The ends of logs whose leaders answer."""
    by_leader: dict[int, list[metadata_pb2.ListOffsetsEntry]] = {}
    for key in sorted(keys):
        state = parts.quorum.image.partitions.get(key)
        if state is not None and state.leader_id >= 0:
            entry = metadata_pb2.ListOffsetsEntry(partition_id=key.to_wire(), leader_epoch=-1, with_replicas=True)
            by_leader.setdefault(state.leader_id, []).append(entry)
    ends: dict[PartitionKey, LogEnd] = {}
    for leader_id, entries in by_leader.items():
        for part in parts_of(entries, MAX_OFFSETS_ENTRIES):
            for result in await _ask(parts, leader_id, part):
                if not result.error.code:
                    end = LogEnd(result.log_start_offset, result.high_watermark, result.size_bytes)
                    ends[PartitionKey.of(result.partition_id)] = end
    return ends


async def _ask(
    parts: BrokerParts, leader_id: int, entries: Sequence[metadata_pb2.ListOffsetsEntry]
) -> list[metadata_pb2.ListOffsetsResult]:
    if leader_id == parts.broker_id:
        piece, results = parts.turns.piece(), []
        for entry in entries:
            piece = await piece.next() if piece.is_over() else piece
            results.append(parts.replicas.manager.list_offsets(entry, now_ms()))
        return results
    try:
        return list((await parts.calls.list_offsets(leader_id, entries)).results)
    except MinilogError as error:
        logger.debug("a leader did not send its ends for the lag of groups", broker=leader_id, error=str(error))
        return []
