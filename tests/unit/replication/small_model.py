"""A small model of replication, searched breadth first: every state within the bounds is reached and judged.

python -m tests.unit.replication.small_model --epochs 4 --records 3 --restarts 2
python -m tests.unit.replication.small_model --mutant "6 HW moves below min"      within the mutant's own bounds
"""

from __future__ import annotations

import argparse
import time

from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.in_sync import Proposal
from tests.judges.partition import Known, Led, check_copy, check_led, judge
from tests.judges.states import check_state
from tests.rules import mutated
from tests.rules.table import SMALL_MODEL
from tests.unit.replication.small_model_mutants import BOUNDS
from tests.unit.replication.small_model_rules import Rules, Step
from tests.unit.replication.small_model_state import (
    BROKERS,
    ModelReplica,
    Partitions,
    ReplicationBounds,
    ReplicationModelState,
    first_state,
)
from tests.world.search import Search
from tests.world.search import search as breadth_first

_NAMES = {
    "append": "leader {0} appends a record",
    "flush": "broker {0} syncs its log",
    "learn": "broker {0} sees the committed metadata",
    "power": "broker {0} loses power, and what it had not synced",
    "restart": "broker {0} starts as a new life",
    "damaged": "broker {0} starts as a new life with one synced record less: damaged",
    "again": "leader {0} sends its proposal again",
    "drop": "leader {0} proposes the ISR without {1}",
    "join": "leader {0} proposes {1} for the ISR",
    "fetch": "broker {0} fetches from leader {1}",
    "fence": "the controller fences broker {0}",
    "unfence": "the controller unfences broker {0}",
    "judge": "the controller judges the proposal of broker {0}",
}


class SmallModelJudges:
    """`judged` checks a step and gives the state back with what the judges remember brought up to date."""

    def __init__(self, partitions: Partitions, min_in_sync: int) -> None:
        self._partitions = partitions
        self._min_in_sync = min_in_sync

    def judged(self, before: ReplicationModelState, after: ReplicationModelState) -> ReplicationModelState:
        leads = [self._led(number, each) for number, each in enumerate(after.replicas) if each.lead is not None]
        for number in BROKERS:
            if after.replicas[number] is not before.replicas[number]:
                check_copy(number, after.replicas[number])
        for led in leads:
            former = before.replicas[led.broker_id]
            if former is not after.replicas[led.broker_id]:
                check_led(None if former.lead is None else self._led(led.broker_id, former), led)
        state = self._partitions[after.partition]
        if before.partition != after.partition:
            check_state("the partition", state, self._partitions[before.partition])
        known = Known(after.committed, after.answered)
        found = judge(dict(enumerate(after.replicas)), leads, state, known)
        return after if found is known else after._replace(**found._asdict())

    def _led(self, number: int, replica: ModelReplica) -> Led:
        state, lead = self._partitions[replica.image], replica.lead
        assert lead is not None
        proposal = None if lead.proposal is None else Proposal(*lead.proposal)
        return Led(
            number,
            replica.life,
            state,
            replica.high_watermark,
            self._min_in_sync,
            in_sync.maximal_in_sync(frozenset(state.in_sync_replicas), proposal),
            None if proposal is None else proposal.broker_ids,
            replica.high_watermark >= lead.epoch_start,
        )


def search(bounds: ReplicationBounds, *, max_states: int | None = None) -> Search:
    """Visit all states within `bounds`, at most `max_states`."""
    partitions = Partitions()
    rules, judges = Rules(bounds, partitions), SmallModelJudges(partitions, bounds.min_in_sync)
    return breadth_first(first_state(partitions), rules.next_states, judges.judged, _told, max_states)


def _told(step: Step) -> str:
    return _NAMES[step[0]].format(*step[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the small model of replication.")
    defaults = ReplicationBounds()
    parser.add_argument("--epochs", type=int, default=defaults.leader_epochs)
    parser.add_argument("--partition-epochs", type=int, default=defaults.partition_epochs)
    parser.add_argument("--records", type=int, default=defaults.records)
    parser.add_argument("--restarts", type=int, default=defaults.restarts)
    parser.add_argument("--damages", type=int, default=defaults.damages)
    parser.add_argument("--min-in-sync", type=int, default=defaults.min_in_sync)
    parser.add_argument("--synced", action="store_true", help="every write is synced at once: far fewer states")
    parser.add_argument("--at-once", action="store_true", help="a proposal is judged when it is made: the same")
    parser.add_argument("--max-states", type=int, default=None)
    parser.add_argument("--mutant", choices=sorted(BOUNDS), default=None)
    given = parser.parse_args()
    bounds = ReplicationBounds(
        leader_epochs=given.epochs,
        partition_epochs=given.partition_epochs,
        records=given.records,
        restarts=given.restarts,
        damages=given.damages,
        min_in_sync=given.min_in_sync,
        unsynced=not given.synced,
        delayed=not given.at_once,
    )
    if given.mutant:
        bounds = BOUNDS[given.mutant]
    started = time.monotonic()
    with mutated(SMALL_MODEL[given.mutant] if given.mutant else None):
        found = search(bounds, max_states=given.max_states)
    seconds = time.monotonic() - started
    print(f"{bounds}\n{found.states:,} states, {found.steps:,} steps, {found.depth} deep, {seconds:.1f} s")
    if found.broken:
        print(f"broken: {found.broken}")
        print("\n".join(f"  {number:2} {told}" for number, told in enumerate(found.history, 1)))
        raise SystemExit(1)
    print("all states within the bounds hold" if found.complete else "cut short: the states visited hold")


if __name__ == "__main__":
    main()
