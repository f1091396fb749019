"""Members of a group and the partitions that they hold: M1 to M5. Core's own state machine and the simulator ask it.

rule  what must be
M1    no partition is held by two members at one moment: from when its program was told until it has given the
      partition back, or its session is over by its own clock, which has a rate of its own
M2    in calm each partition has a reader
M3    no commit succeeds that begins while another member holds the partition, also where a program commits again what
      it has given back or lost. A reader begins nowhere below what was acknowledged as committed before it was given
      the partition
M4    under `uniform` a member that leaves a calm group moves what it had, and of each other member one at most
M5    a reader is handed the records of a partition in their order, each once. It leaves out none that was acknowledged
      to its writer, and every such record is handed to some member
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from tests.judges.violation import Violation

Partition = TypeVar("Partition", bound=Hashable)
MOST_MOVED = 1  # of each member that stays


def holders_of(held: Iterable[tuple[str, Iterable[Partition]]]) -> dict[Partition, str]:
    """M1: the holder of each partition. `held`: what each member holds."""
    holders: dict[Partition, str] = {}
    for name, partitions in held:
        for partition in partitions:
            if (other := holders.setdefault(partition, name)) != name:
                raise Violation("M1", f"partition {partition} is held by {other} and by {name}")
    return holders


def check_owned(partitions: Iterable[Partition], holders: Mapping[Partition, str], since: str) -> None:
    """M2. `since`: for how long all has been calm."""
    if unowned := [partition for partition in partitions if partition not in holders]:
        raise Violation("M2", f"partitions {unowned} have no reader {since} after the last trouble")


def check_committer(name: str, partition: Partition, offset: int, holders: Mapping[Partition, str]) -> None:
    """M3: a commit has succeeded. `holders`: of when it began."""
    if (holder := holders.get(partition, name)) != name:
        raise Violation("M3", f"{name} commits {offset} of partition {partition}, which {holder} holds")


def check_read(name: str, partition: Partition, offset: int, floor: int) -> None:
    """M3: a record is handed out. `floor`: what was committed before its reader was given the partition."""
    if offset < floor:
        raise Violation("M3", f"{name} reads offset {offset} of {partition}, {floor} was committed before")


def check_next(name: str, partition: Partition, last: int, offset: int, between: Collection[int]) -> None:
    """M5: a record is handed out behind `last`, by the same reader since it was given the partition. `between`: the
    acknowledged offsets between the two."""
    if offset <= last:
        raise Violation("M5", f"{name} reads offset {offset} of {partition} again, behind {last}")
    if between:
        raise Violation("M5", f"{name} reads offset {offset} of {partition} behind {last}, and leaves out {between}")


def check_moved(before: Mapping[int, str], after: Mapping[int, str], leaver: str) -> None:
    """M4: members that stayed lose no more than one partition. Readers by partition."""
    for name in sorted({*before.values()} - {leaver}):
        lost = sorted(partition for partition, reader in before.items() if reader == name != after.get(partition))
        if len(lost) > MOST_MOVED:
            raise Violation("M4", f"{leaver} left, and {name} lost partitions {lost}")


def check_handed(missing: Collection[tuple[int, int]]) -> None:
    """M5. `missing`: the places of acknowledged records that were handed to nobody."""
    if missing:
        raise Violation("M5", f"{len(missing)} records are handed to nobody, such as {min(missing)}")
