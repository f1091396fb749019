"""The attempt at a micro-batch of which no task has reported anything: the driver finds it with the coordinator.

`query.stop()` kills all tasks, and Spark aborts with a message of none. What the tasks had open would hold the readers
of their topics up until its time-out. The coordinator knows run and attempt of each open transaction, and the id of the
attempt carries the driver's mark (sink_protocol.py): so no attempt of another driver, which may have taken over
meanwhile, is ever meant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_minilog.checkpoint import query_id
from pyspark_minilog.options import SinkOptions
from pyspark_minilog.sink_protocol import STREAM_PREFIX, Abort, attempt_mark

if TYPE_CHECKING:
    from minilog import Admin

# Folders of this driver alone, made with its SparkContext: Spark tells them to each Python process of the driver.
_DRIVER = "SPARK_LOCAL_DIRS"


def mark_of(options: Mapping[str, str]) -> bytes:
    """The mark of all attempts that the query of these options makes in this driver; empty: it has none."""
    return attempt_mark(os.environ.get(_DRIVER), options)


def open_attempt(options: SinkOptions, batch_id: int, mark: bytes) -> Abort | None:
    """Of this micro-batch, by this mark; None where none is open. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import TransactionalIdNotFound
    from minilog.transactions import Attempt
    from pyspark_minilog.clients import lend

    with lend(Admin, options.client) as admin:
        for name in _candidates(admin, options, batch_id):
            try:
                found = admin.describe_transaction(name)
            except TransactionalIdNotFound:  # no task had enlisted
                continue
            attempt_id = bytes.fromhex(found.attempt_id)
            if found.listing.generation == batch_id and attempt_id.startswith(mark):
                return Abort(Attempt(name, batch_id, attempt_id, found.run_id.encode()), 0)
    return None


def _candidates(admin: Admin, options: SinkOptions, batch_id: int) -> list[str]:
    """By the checkpoint, where the driver can read it; else all streams that are at this batch."""
    found = query_id(options.checkpoint)
    if found is not None:
        return [STREAM_PREFIX + found]
    return [
        each.transactional_id
        for each in admin.list_transactions()
        if each.transactional_id.startswith(STREAM_PREFIX) and each.generation == batch_id and each.state == "open"
    ]
