"""The sink: a write is one transaction (docs/spec/connector.md § 6).

write_task                     the writers, as Spark calls them
sink_protocol, replay_facts    decisions: who wins, and whether a replay is one
sink, typed_sink, typed_plan   from a DataFrame's columns to the client's; row_sums: the sum of its rows
task_part, open_attempt        a task's part in a transaction, and an attempt that no task has reported
block_writer, block_protocol,
block_folder                   a write inside of a transaction block
checkpoint, jvm_checkpoint     the query and the offsets of a micro-batch, from its checkpoint
old_rows                       rows that are older than their topic keeps rows
"""
