"""Replication of partitions as state machines that do no I/O: events and the time in, effects out."""
