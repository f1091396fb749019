"""The Spark source and sink of minilog: `spark.readStream.format("minilog")`, `df.writeStream.format("minilog")`.

Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`; one such import that fails
disables that for all of them. So this module, and what it imports, stays light: no grpc, no pyarrow, no client.
"""

from pyspark_minilog.helpers import read, read_stream
from pyspark_minilog.observation import Observation, observe
from pyspark_minilog.source import DefaultSource
from pyspark_minilog.transaction_block import TransactionBlock, transaction

__all__ = ["DefaultSource", "Observation", "TransactionBlock", "observe", "read", "read_stream", "transaction"]
