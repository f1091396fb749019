"""The options of a stream that reads a queue, and of a sink that settles it. table.py has the table of all."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_minilog.errors import refused
from pyspark_minilog.options.client_options import GROUP

SETTLE_QUEUE = "settleQueue"
_MAX_CHARACTERS = 255  # of the name of a queue
_OWN_PLACE = "a queue has a place of its own"
# What has no meaning with a queue, and why.
_NOT_OF_QUEUES = {
    "assign": "a queue leases records of whole topics. Name them with subscribe",
    "startingOffsets": f"{_OWN_PLACE}, and its setting share.auto.offset.reset says where it begins",
    "startingTimestamp": _OWN_PLACE,
    "startingOffsetsByTimestamp": _OWN_PLACE,
    "minOffsetsPerTrigger": "a leased message waits for no others, since its lock would end",
    "maxBytesPerTrigger": "a queue is leased by the record. Give maxOffsetsPerTrigger",
    "failOnDataLoss": "a queue passes over messages that retention has taken, and counts them",
    "groupIdPrefix": "a queue keeps its own progress",
    GROUP: "a queue keeps its own progress",
}


def queue_name(named: Mapping[str, str], isolation_level: str) -> str | None:
    """The queue of a source. Raises InvalidOption."""
    if "queue" not in named:
        return None
    queue = _checked("queue", named["queue"])
    for option, why in _NOT_OF_QUEUES.items():
        if option in named:
            raise refused(option, named[option], f"{why}. Leave this option out, or the option 'queue'")
    if isolation_level != "read_committed":
        raise refused("minilog.isolation.level", isolation_level, "a queue leases committed records. Leave it out")
    return queue


def check_settled(queue: str, checkpoint: str | None, *, exactly_once: bool) -> str:
    """The queue that a sink settles. Raises InvalidOption."""
    if not exactly_once:
        remedy = "a queue is settled in the transaction of a micro-batch, and exactlyOnce=false has none"
        raise refused(SETTLE_QUEUE, queue, f"{remedy}. Leave one of the two out")
    if checkpoint is None:
        remedy = (
            "the sink reads from the checkpoint which messages a micro-batch has, and Spark passes it the folder only "
            "as an option of the writer. Give .option('checkpointLocation', ...), too"
        )
        raise refused(SETTLE_QUEUE, queue, remedy)
    return _checked(SETTLE_QUEUE, queue)


def _checked(option: str, queue: str) -> str:
    if not 1 <= len(queue.strip()) <= _MAX_CHARACTERS:
        raise refused(option, queue, f"give the name of a queue, of 1 to {_MAX_CHARACTERS} characters")
    return queue.strip()
