"""The checkpoint of a running query, by Spark's own JVM: Spark has the file systems and the logins of the user's job.

Only the user's process can ask the JVM, and not with Spark Connect. So this is for transaction blocks
(docs/spec/connector.md § 6.7). Spark has no public call for the folder, and another version may lack this one. Then
it is not known.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark_minilog.writing.checkpoint import read_offsets

logger = logging.getLogger(__name__)


def checkpoint_of(spark: Any, query_id: str) -> str | None:
    """The folder of the checkpoint of a running query, or None."""
    try:
        named = spark.sparkContext._jvm.java.util.UUID.fromString(query_id)
        running = spark._jsparkSession.sharedState().activeStreamingQueries().get(named)
        return str(running.resolvedCheckpointRoot())
    except Exception as error:  # whatever it is, the block does not depend on it
        logger.debug("the checkpoint of query %s is not known: %s", query_id, error)
        return None


def jvm_offsets_digest(spark: Any, checkpoint: str, batch_id: str) -> bytes:
    """As `offsets_digest`, from any file system that Spark has. Empty if they cannot be read."""
    try:
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{batch_id}")
        stream = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).open(path)
        try:
            written = bytes(stream.readAllBytes())
        finally:
            stream.close()
        return read_offsets(written).digest
    except Exception as error:  # as above
        logger.debug("the offsets of micro-batch %s are not compared: %s", batch_id, error)
        return b""
