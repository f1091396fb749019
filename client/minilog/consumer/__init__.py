"""What a consumer decides, without I/O: positions, sessions, credit; and how runs become rows.

partition   what is known of one assigned partition, and the check that a run continues it
starting    where it begins: the group's offset, or auto.offset.reset
core        all of them: sessions to leaders, answers, resets
decode      runs into Arrow batches and records
"""
