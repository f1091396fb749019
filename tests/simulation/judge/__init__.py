"""What must be, from the outside alone: what clients were told, what was said on wires, and what lies on disks.

It asks the product for nothing that can be seen there. What formats mean it takes from the product (headers of batches,
messages, records of the metadata log); who leads, what is committed and who has it, it finds out by itself.

    copies.py          what lies on the disks            damage.py         which copies a fault has damaged
    truth.py           all that is known together        judge.py          all watchers of one run
    metadata.py        V4 V10 V12 V17                    quorum.py         V11
    partition.py       V5 V6 V7 V8 V9 V14 V18            hearing.py        V20 V21
    replication.py     what is said of partitions        transactions.py   V15 of partitions
    registrations.py   who may join an ISR               fencing.py        V20 of controllers
    sessions.py        by whose word who joins           leader_epochs.py  V3
    recorded_ends.py   V1 on the disks                   backlog.py        what waits for others
    coordinators.py    V15 of coordinators               producers.py      ids are given once
    liveness.py        V19, and the end                  good_minimum.py   who V19 waits for
    lag.py             who lags is out                   exceptions.py     what may be lost
    schemas.py         versions of schemas               rows.py           V14 of who wants some rows
    rights.py          V22                               rules.py          what rules allow
    rights_of_calls.py what calls need                   answers.py        what operators are told
    levels.py          what the level allows             positions.py      what runs begin with
    sharing.py         M2 M4 M5, at the end              dead_letters.py   Q5
    queues.py          Q7, at the end                    queue_records.py  Q1 to Q8 of coordinators
    compaction.py      K1 to K6, of whole brokers

What must be of it is in tests/judges wherever another world asks the same.
"""

from __future__ import annotations

from tests.simulation.judge.judge import Judge
from tests.simulation.judge.liveness import (
    check_forged,
    check_over,
    check_queries,
    check_transactions,
    copies_agree,
    recovery_s,
    watch,
)
from tests.simulation.judge.queues import check_queuing, lives_of
from tests.simulation.judge.rows import check_filtered
from tests.simulation.judge.sharing import check_sharing, coordinator_state

__all__ = [
    "Judge",
    "check_filtered",
    "check_forged",
    "check_over",
    "check_queries",
    "check_queuing",
    "check_sharing",
    "check_transactions",
    "coordinator_state",
    "copies_agree",
    "lives_of",
    "recovery_s",
    "watch",
]
