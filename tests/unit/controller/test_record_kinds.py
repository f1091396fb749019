"""The table of record kinds: it has each kind of the wire, and what came with a level is not written below it."""

from __future__ import annotations

import pytest

from minilog.errors import LevelNotReached
from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.record_kinds import KINDS, RecordKind
from minilog_broker.levels import FIRST_LEVEL


def test_each_kind_of_the_wire_has_a_row() -> None:
    fields = records_pb2.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields
    assert {field.name for field in fields} == set(KINDS)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.level > FIRST_LEVEL], ids=lambda kind: kind.field
)
def test_records_of_a_level_are_not_written_below_it(kind: RecordKind) -> None:
    """A rule asks the level first. One that forgets it writes nothing that an older broker cannot read."""
    ledger = Ledger(MetadataImage(), 0, lambda records: 0, [], lambda broker_id: True)
    ledger.image.level = kind.level - 1
    record = records_pb2.MetadataRecord()
    getattr(record, kind.field).SetInParent()
    with pytest.raises(LevelNotReached, match=f"the record {kind.field} cannot be written: it came with level"):
        ledger.write(record)
    assert ledger.next_offset == 0
    assert (ledger.image.users, ledger.image.schemas, ledger.image.tokens) == ({}, {}, {})
