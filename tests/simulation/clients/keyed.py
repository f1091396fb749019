"""The records that programs write to a compacted topic: keys of a small set, and deletions.

The history knows each record by a value of its own. A deletion has none: it carries that value in a header.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.judges.keyed_records import IDENTITY, value_in

if TYPE_CHECKING:
    from minilog.types import Record

KEYS = 12
DELETED_SHARE = 0.2


def keyed(value: bytes, chance: random.Random) -> dict[str, Any]:
    """What `send` is given for a record."""
    key = b"k%d" % chance.randrange(KEYS)
    if chance.random() < DELETED_SHARE:
        return {"value": None, "key": key, "headers": [(IDENTITY, value)]}
    return {"value": value, "key": key}


def identity_of(record: Record) -> bytes:
    """The value that a record is known by."""
    return value_in(record.headers) if record.value is None else record.value
