"""The last stable offsets of partitions, as their leaders report them. A queue leases only what is below.

A coordinator asks with what it knows (Known). The leader answers when something differs (StableOffset). The rules of
the answer are the leader's: replication/stable_offsets.py.
"""

from __future__ import annotations

from minilog_broker.replication.stable_offsets import Known, Question, StableOffset

__all__ = ["Known", "Question", "StableOffset"]
