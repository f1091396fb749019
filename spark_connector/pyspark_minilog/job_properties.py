"""The local properties that Spark sets for the jobs of a micro-batch. A task reads them in its TaskContext."""

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
CONNECT_OPERATION = "spark.connect.operation_id"  # of each job of Spark Connect
