"""Transactions with many writers: the two levels, an attempt and its writers (docs/guides/transactions.md)."""

from __future__ import annotations

from minilog.transactions.messages import (
    AlreadyCommitted,
    Attempt,
    Contents,
    Enlistment,
    Run,
    TransactionOutcome,
    Winner,
    WrittenPartition,
)

__all__ = [
    "AlreadyCommitted",
    "Attempt",
    "Contents",
    "Enlistment",
    "Run",
    "TransactionOutcome",
    "Winner",
    "WrittenPartition",
]
