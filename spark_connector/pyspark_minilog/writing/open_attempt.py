"""Finds the attempt at a micro-batch when no task has reported anything. The driver asks the coordinator for it.

`query.stop()` kills all tasks, and Spark aborts without a message of any task. The open transaction of the tasks would
hold up the readers of their topics until its time-out. The coordinator knows run and attempt of each open transaction.
The id of an attempt begins with the driver's mark (sink_protocol.py). So the driver never aborts an attempt of another
driver, which may have taken over meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_minilog.options.table import SinkOptions
from pyspark_minilog.writing.checkpoint import query_id
from pyspark_minilog.writing.sink_protocol import STREAM_PREFIX, Abort, attempt_mark

if TYPE_CHECKING:
    from minilog import Admin

# The folders of this driver alone, made with its SparkContext. Each Python process of the driver has this variable.
_DRIVER = "SPARK_LOCAL_DIRS"


def mark_of(options: Mapping[str, str]) -> bytes:
    """The mark of all attempts that the query with these options makes in this driver. Empty if it has no mark."""
    return attempt_mark(os.environ.get(_DRIVER), options)


def open_attempt(options: SinkOptions, batch_id: int, mark: bytes) -> Abort | None:
    """The open attempt at this micro-batch with this mark, or None. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import TransactionalIdNotFound
    from minilog.transactions import Attempt
    from pyspark_minilog.login.clients import lend

    with lend(Admin, options.client) as admin:
        for name in _candidates(admin, options, batch_id):
            try:
                description = admin.describe_transaction(name)
            except TransactionalIdNotFound:  # no task had enlisted
                continue
            attempt_id = bytes.fromhex(description.attempt_id)
            if description.listing.generation == batch_id and attempt_id.startswith(mark):
                return Abort(Attempt(name, batch_id, attempt_id, description.run_id.encode()), 0)
    return None


def _candidates(admin: Admin, options: SinkOptions, batch_id: int) -> list[str]:
    """The transactional id from the checkpoint, if the driver can read it, or else of all streams at this batch."""
    known_id = query_id(options.checkpoint)
    if known_id is not None:
        return [STREAM_PREFIX + known_id]
    return [
        listing.transactional_id
        for listing in admin.list_transactions()
        if listing.transactional_id.startswith(STREAM_PREFIX)
        and listing.generation == batch_id
        and listing.state == "open"
    ]
