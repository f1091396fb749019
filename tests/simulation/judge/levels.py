"""What came with a level stands nowhere below it, for an older broker could not read it: not in the committed metadata
log, and on no disk whose `broker.json`, which alone tells such a broker to leave it be, has a lower one.
Rule "level" (docs/spec/levels.md). What which level brought is said here again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog.v1 import records_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation
from tests.simulation.machines.host import DATA_PATH
from tests.world.stored import durable_json

if TYPE_CHECKING:
    from tests.simulation.judge.copies import Copy
    from tests.simulation.judge.truth import Truth

FIRST = 1
BROUGHT_BY = {
    "topic_schema": 2,
    "user_scram_credential": 3,
    "access_rule": 3,
    "quota": 3,
    "delegation_token": 3,
    "producer_id_block.proof_key": 4,
    "broker_setting": 5,
    "broker_cordon": 5,
    "unregister_broker": 5,
}
"""Records, and fields of records, by the level that brought them."""
BROUGHT_COMPACTION = 6
COMPACTION = {
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
}
"""Settings of topics. What a topic is made with has `cleanup.policy` from the same level on."""
BROUGHT_TOPICS = {"__queues": 7}
"""Internal topics. An earlier broker does not know what to do with them."""
BROUGHT_TYPED_BATCHES = 2
BROUGHT_DELETIONS = 6


class Levels:
    """The level as the committed log has it."""

    def __init__(self) -> None:
        self.level = FIRST

    def committed(self, batch: CommittedBatch) -> None:
        for offset, record in enumerate(batch.records, batch.base_offset):
            which = record.WhichOneof("record")
            if which == "cluster_level":
                if record.cluster_level.level < self.level:
                    text = f"the level goes down from {self.level} to {record.cluster_level.level} at {offset}"
                    raise Violation("level", text)
                self.level = record.cluster_level.level
            for what in _written(record, which or ""):
                if (needed := _brought_by(what)) > self.level:
                    text = f"{what} is committed at {offset}, which level {needed} brought, and the cluster is at "
                    raise Violation("level", f"{text}{self.level}")


def _brought_by(what: str) -> int:
    if what in COMPACTION | {"cleanup.policy"}:
        return BROUGHT_COMPACTION
    return BROUGHT_TOPICS.get(what) or BROUGHT_BY.get(what, FIRST)


def _written(record: records_pb2.MetadataRecord, which: str) -> list[str]:
    """The record and its fields, as BROUGHT_BY names them, settings of compaction, and the name of a topic."""
    if not which:
        return []
    names = [default.name for default in record.topic.defaults]
    settings = (COMPACTION | {"cleanup.policy"}).intersection(names) | COMPACTION & {record.topic_config.name}
    return [
        which,
        record.topic.name,
        *settings,
        *(f"{which}.{field.name}" for field, _ in getattr(record, which).ListFields()),
    ]


def look(truth: Truth) -> None:
    """At all copies: the level that their batches need, as they say it themselves, and the level that the disk has."""
    for copy, _, _ in truth.all_copies():
        if _needed(copy) > FIRST and (recorded := _recorded(copy)) is not None and recorded < _needed(copy):
            text = f"{copy.path} of b{copy.host.number} has batches of level {_needed(copy)}, and its broker.json says "
            raise Violation("level", f"{text}{recorded}")


def _needed(copy: Copy) -> int:
    """All batches of a topic are typed, or none. Each one with deletions was the last one once."""
    batches = copy.live.batches
    if batches and batches[-1].has_deletions:
        return BROUGHT_DELETIONS
    return BROUGHT_TYPED_BATCHES if batches and batches[-1].is_typed else FIRST


def _recorded(copy: Copy) -> int | None:
    """None where it is not there, or has rotted."""
    path = f"{DATA_PATH}/broker.json"
    found = durable_json(copy.host.disk, path)
    if found is None or any(rotten == path for rotten, _, _ in copy.host.disk.flips):
        return None
    return int(found.get("level", FIRST))
