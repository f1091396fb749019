"""`minilog cluster rebalance` moves replicas and leaders between brokers, to about equal bytes and numbers of leaders.

The command plans (rebalance_plan.py) and asks for reassignments, a few partitions at a time. It keeps no state: after
an interrupt the moves so far stay, and another run goes on from there.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog.types import PartitionDescription, SizesFrom, TopicPartition
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import Throttle, attributes, say
from minilog_tools.cli.rebalance_plan import Move, Placed, loads, plan_moves
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

if TYPE_CHECKING:
    from minilog import Admin
    from minilog.types import BrokerDescription

app = typer.Typer()
AT_ONCE = 20  # partitions that move together, as in a decommission: more would keep the brokers' disks from clients
LOOK_AGAIN_S = 1.0
_ALL_BYTES = 1 << 62
_Loads = Mapping[int, tuple[int, int]]  # by broker: bytes, and partitions whose preferred leader it is


@verb(app, "minilog cluster rebalance --dry-run", "minilog cluster rebalance --apply --throttle 20000000")
def rebalance(
    cluster: Cluster,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves, and do nothing. The default.")] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move replicas and leaders, and end when they have moved.")
    ] = False,
    throttle: Throttle = None,
) -> Iterator[Output]:
    """Spread replicas by bytes, and preferred leaders by number, over the brokers that run and are not cordoned.

    At most 20 partitions move at once. A partition keeps as many racks as it has. You can interrupt it at any time.
    """
    if dry_run and apply:
        raise typer.BadParameter("give --dry-run or --apply, and not both")
    if throttle is not None and not apply:
        raise typer.BadParameter("--throttle slows moves down, and a dry run has none: give --apply, too")
    brokers = cluster.admin.describe_cluster().brokers
    placed = placed_partitions(cluster.admin)
    moves = plan_moves(placed, brokers)
    yield _plan_output(placed, moves, brokers, is_applied=apply)
    if apply and moves:
        _carry_out(cluster.admin, moves, throttle)
        if not cluster.as_json:
            say(f"{len(moves)} partitions have moved. Run the command again to see whether the brokers are even now")


def placed_partitions(admin: Admin) -> list[Placed]:
    """All partitions that the user may see. Raises CommandFailed where it cannot learn the size of one."""
    placed = []
    for topic in admin.describe_topics(sizes=lambda _: SizesFrom(0, [_ALL_BYTES])):
        for partition in topic.partitions:
            named = TopicPartition(topic.name, partition.partition)
            if not partition.sizes:
                reason = partition.why_no_offsets or "its leader does not answer"
                raise CommandFailed(
                    f"the size of partition {named.partition} of {named.topic} is not known: {reason}. See `minilog "
                    f"cluster health`, and try again when every partition has a leader"
                )
            placed.append(Placed(named, _becomes(partition), partition.sizes[0].size_bytes, _is_moving(partition)))
    return placed


def _is_moving(partition: PartitionDescription) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _becomes(partition: PartitionDescription) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in partition.replicas if broker_id not in partition.removing_replicas)


def _plan_output(
    placed: Sequence[Placed], moves: Sequence[Move], brokers: Sequence[BrokerDescription], *, is_applied: bool
) -> Output:
    before, after = loads(placed, [], brokers), loads(placed, moves, brokers)
    of_each = [_load_document(broker.id, before, after) for broker in brokers]
    document = {"applied": is_applied, "brokers": of_each, "moves": [_move_document(move) for move in moves]}
    columns = ("broker", "bytes", "bytes after", "leads", "leads after")
    of_brokers = TextTable(columns, (load.values() for load in of_each))
    if not moves:
        return Output(document, of_brokers, "bytes and leaders are even: nothing moves")
    rows = (
        (move.partition.topic, move.partition.partition, _numbers(move.before), _numbers(move.after), move.copied_bytes)
        for move in moves
    )
    of_moves = TextTable(("topic", "partition", "replicas", "replicas after", "bytes to copy"), rows)
    hint = f"nothing was changed: `minilog cluster rebalance --apply` moves these {len(moves)} partitions"
    return Output(document, of_brokers, of_moves, *([] if is_applied else [hint]))


def _numbers(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _load_document(broker_id: int, before: _Loads, after: _Loads) -> dict[str, Any]:
    (size_bytes, leaders), (bytes_after, leaders_after) = before[broker_id], after[broker_id]
    return {
        "id": broker_id,
        "size_bytes": size_bytes,
        "size_bytes_after": bytes_after,
        "leaders": leaders,
        "leaders_after": leaders_after,
    }


def _move_document(move: Move) -> dict[str, Any]:
    return {
        **attributes(move.partition, "topic", "partition"),
        "replicas": list(move.before),
        "replicas_after": list(move.after),
        "copied_bytes": move.copied_bytes,
    }


def _carry_out(admin: Admin, moves: Sequence[Move], throttle: int | None) -> None:
    """Ask for the moves, a few at a time, and wait for them. Raises CommandFailed where the controller refuses a
    reassignment. Earlier moves stay."""
    done = 0
    for part in _parts(moves):
        wanted = {move.partition: list(move.after) for move in part}
        results = admin.alter_partition_reassignments(wanted, throttle_bytes_per_second=throttle)
        refused = {partition: error for partition, error in results.items() if error is not None}
        while admin.list_partition_reassignments().keys() & wanted.keys():
            time.sleep(LOOK_AGAIN_S)
        admin.elect_leaders(wanted)
        if refused:
            partition, error = next(iter(refused.items()))
            raise CommandFailed(
                f"the controller refused {len(refused)} reassignments, such as that of partition "
                f"{partition.partition} of {partition.topic}: {error}. "
                f"{done + len(part) - len(refused)} of {len(moves)} partitions have moved"
            )
        done += len(part)
        say(f"{done} of {len(moves)} partitions have moved", error=True)


def _parts(moves: Sequence[Move]) -> Iterator[tuple[Move, ...]]:
    remaining = iter(moves)
    while part := tuple(itertools.islice(remaining, AT_ONCE)):
        yield part
