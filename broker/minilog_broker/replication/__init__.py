"""Replication of partitions as state machines without I/O: events and the time go in, effects come out."""
