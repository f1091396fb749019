"""A task's question about a batch of a queue whose locks have ended: has this query committed the batch before?

Spark replays a batch that the sink has committed, if the driver died before Spark noted that. The replay must give the
same rows, for the state of the query. The sink may also have committed the batch without its messages, because the
locks had ended then, too. Its digest shows that (queue_settlement.py).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from pyspark_minilog.sink_protocol import STREAM_PREFIX

if TYPE_CHECKING:
    from pyspark_minilog.options import SourceOptions

logger = logging.getLogger(__name__)

UNSETTLED = b"/unsettled"  # behind the digest of a generation that is committed without the messages of its batch


def is_settled_by_this_batch(options: SourceOptions) -> bool:
    """Whether this query has committed this micro-batch with its messages. Runs in a task. Raises MinilogError."""
    from pyspark import TaskContext

    from minilog import Admin
    from minilog.errors import AuthorizationFailed, TransactionalIdNotFound
    from minilog.sync.transaction import Transactions
    from minilog.transactions import AlreadyCommitted, Attempt
    from pyspark_minilog.clients import lend
    from pyspark_minilog.write_task import BATCH_ID, QUERY_ID

    context = TaskContext.get()
    query_id, batch = (context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if not query_id or not batch:
        return False
    name, generation = STREAM_PREFIX + query_id, int(batch)
    try:
        with lend(Admin, options.client) as admin:
            last = admin.describe_transaction(name).listing.last_committed_generation
        if last != generation:
            return False
        # Of another run in a committed generation, this enlists nothing (docs/spec/transactions.md § Enlist).
        with lend(Transactions, options.client) as transactions:
            answer = transactions.enlist(Attempt(name, generation, os.urandom(16), os.urandom(16)))
    except TransactionalIdNotFound:
        return False  # another sink, or the first batch of this one
    except AuthorizationFailed as error:
        logger.warning("the batch reads nothing, though this query may have committed it: %s", error)
        return False
    digest = answer.contents.offsets_digest if isinstance(answer, AlreadyCommitted) and answer.contents else b""
    return isinstance(answer, AlreadyCommitted) and not digest.endswith(UNSETTLED)
