"""Scenarios: texts of commands, each with the trace that the real cores gave, as etcd's raft has them.

A file of `tests/unit/*/scenarios` is read by `text.py`. Its world (`worlds.py`) has a verb for each command
(`world.py`), and `collecting.py` makes each scenario a test of pytest. `pytest --rewrite` writes the traces anew:
a changed rule is a changed text in the review.
"""
