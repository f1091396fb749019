"""Nothing is committed that the level of the cluster does not allow where it stands: an older broker could not read it.
Rule "level" (docs/spec/levels.md). What which level brought is said here again."""

from __future__ import annotations

from minilog.v1 import records_pb2
from minilog_broker.quorum.records import CommittedBatch
from tests.simulation.violation import Violation

FIRST = 1
BROUGHT_BY = {
    "topic_schema": 2,
    "user_scram_credential": 3,
    "access_rule": 3,
    "quota": 3,
    "delegation_token": 3,
    "producer_id_block.proof_key": 4,
}
"""Records, and fields of records, by the level that brought them."""


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
                if (needed := BROUGHT_BY.get(what, FIRST)) > self.level:
                    text = f"{what} is committed at {offset}, which level {needed} brought, and the cluster is at "
                    raise Violation("level", f"{text}{self.level}")


def _written(record: records_pb2.MetadataRecord, which: str) -> list[str]:
    """The record and its fields, as BROUGHT_BY names them."""
    if not which:
        return []
    return [which, *(f"{which}.{field.name}" for field, _ in getattr(record, which).ListFields())]
