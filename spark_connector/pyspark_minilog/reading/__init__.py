"""The source: from options to offsets, ranges and tasks on the driver, and from a range to Arrow in a task.

stream_reader, batch_reader   the readers, as Spark drives them
cluster, timestamps, tail     the driver's questions to the brokers; group: the group of a query
resolving, planning           offsets, ranges and tasks: cores; batch_plan: both for a batch
read_task                     reads ranges in a Python worker
latest_task, newest_task      the newest row of each key, in a batch and beside a stream
schema, typed_rows, task_rows columns: of keys and values, and of topics with a schema
loss                          what lost data does to a query
"""
