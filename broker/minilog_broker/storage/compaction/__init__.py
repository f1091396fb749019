"""The core of log compaction: which records stay, and the batches without the others. Pure.

A cleaning takes one or more passes. A pass has three steps, each over batches in the order of offsets:

    newest_offsets.py   the batches from `dirty_from` on: the newest offset of each key, as far as the buffer holds them
    removals.py         the batches from the log start to where that table ends: which records go
    rewrite.py          the same batches again: what is written in their place

The next pass begins where the table of this one has ended. Several passes leave the same records as one pass would.

The caller has cleaned the log below `dirty_from` before, so no key has two records there. All offsets are below the
last stable offset, so each transaction among them has ended. docs/spec/formats.md § Compaction has the rules.
"""
