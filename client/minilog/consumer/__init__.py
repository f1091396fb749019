"""What a consumer decides, without I/O: positions, sessions, credit; and how runs become rows.

partition   the state of one assigned partition, and the check that a run continues it
starting    the first offset of a partition: the group's offset, or auto.offset.reset
core        all partitions: sessions to leaders, answers, resets
decode      makes Arrow batches and records of runs
"""
