"""The core of log compaction: which records stay, and the batches without the others. Pure.

A cleaning takes one or more passes. A pass has three steps, each over batches in the order of offsets:

    newest_offsets.py   the batches from `dirty_from` on: a table of the newest offset of each key, until it is full
    removals.py         the batches from the log start to the end of that table: the records that go
    rewrite.py          the same batches again: the batches that take their place

The next pass begins where the table of this one has ended. Several passes leave the same records as one pass would.

An earlier cleaning has cleaned the log below `dirty_from`, so no key has two records there. All offsets are below the
last stable offset, so each transaction among them has ended. docs/spec/formats.md § Compaction has the rules.
"""
