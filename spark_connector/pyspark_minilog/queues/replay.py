"""A task's question about a batch of a queue that Spark replays: has this query committed the batch before?

Spark replays a batch that the sink has committed, if the driver died before Spark noted that. The replay must give the
same rows, for the state of the query. The sink may also have committed the batch without its messages, because the
locks had ended. Its facts show that (settlement.py).

    committed              locks held       locks ended
    no                     read             nothing
    with its messages      read             read
    without its messages   nothing          nothing
"""

from __future__ import annotations

import enum
import logging
import os
from typing import TYPE_CHECKING

from pyspark_minilog.job_properties import BATCH_ID, QUERY_ID
from pyspark_minilog.writing.replay_facts import read_facts
from pyspark_minilog.writing.sink_protocol import STREAM_PREFIX

if TYPE_CHECKING:
    from pyspark_minilog.options.table import SourceOptions

logger = logging.getLogger(__name__)


class Commitment(enum.Enum):
    """How a batch was committed before."""

    NONE = enum.auto()
    SETTLED = enum.auto()
    UNSETTLED = enum.auto()


def is_read_again(commitment: Commitment, *, is_held: bool) -> bool:
    """Whether a replay reads the batch. `is_held`: whether its locks hold."""
    return commitment is Commitment.SETTLED or (commitment is Commitment.NONE and is_held)


def commitment(options: SourceOptions) -> Commitment:
    """How this query has committed this micro-batch. Runs in a task. Raises MinilogError."""
    from pyspark import TaskContext

    from minilog import Admin
    from minilog.errors import AuthorizationFailed, TransactionalIdNotFound
    from minilog.sync.transaction import Transactions
    from minilog.transactions import AlreadyCommitted, Attempt
    from pyspark_minilog.login.clients import lend

    context = TaskContext.get()
    query_id, batch = (context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
    if not query_id or not batch:
        return Commitment.NONE
    name, generation = STREAM_PREFIX + query_id, int(batch)
    try:
        with lend(Admin, options.client) as admin:
            last = admin.describe_transaction(name).listing.last_committed_generation
        if last != generation:
            return Commitment.NONE
        # Of another run in a committed generation, this enlists nothing (docs/spec/transactions.md § Enlist).
        with lend(Transactions, options.client) as transactions:
            answer = transactions.enlist(Attempt(name, generation, os.urandom(16), os.urandom(16)))
    except TransactionalIdNotFound:
        return Commitment.NONE  # another sink, or the first batch of this one
    except AuthorizationFailed as error:
        logger.warning("the replay of a batch does not know whether this query has committed it: %s", error)
        return Commitment.NONE
    if not isinstance(answer, AlreadyCommitted):
        return Commitment.NONE
    facts = answer.contents and read_facts(answer.contents.offsets_digest, is_stream=True)
    return Commitment.UNSETTLED if facts and not facts.settles else Commitment.SETTLED
