"""`minilog broker list|cordon|uncordon|decommission|forget`: brokers leave the cluster.

The controller keeps each decision and carries it out. The end or interrupt of a command changes nothing of it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import Throttle, say
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

if TYPE_CHECKING:
    from minilog import Admin
    from minilog.types import BrokerLoad

app = typer.Typer()
LOOK_AGAIN_S = 1.0
BrokerId = Annotated[int, typer.Argument(metavar="ID", min=0, help="The broker's number.")]


@verb(app, "minilog broker list", "minilog broker list --json", name="list")
def list_brokers(cluster: Cluster) -> Output:
    """List the registered brokers: their states, whether they take new replicas, and their replicas and leaders."""
    loads = cluster.admin.list_brokers()
    rows = (
        (load.broker.id, load.broker.state, placement(load), load.replicas, load.leaders, load.broker.rack or "-")
        for load in loads
    )
    columns = ("broker", "state", "new replicas", "replicas", "leads", "rack")
    return Output([load_document(load) for load in loads], TextTable(columns, rows))


def placement(load: BrokerLoad) -> str:
    """Whether the broker takes new replicas, or why not."""
    if load.broker.decommissioning:
        return "decommissioning"
    return "cordoned" if load.broker.cordoned else "yes"


def load_document(load: BrokerLoad) -> dict[str, Any]:
    """One broker, for JSON."""
    return {
        "id": load.broker.id,
        "state": load.broker.state,
        "cordoned": load.broker.cordoned,
        "decommissioning": load.broker.decommissioning,
        "replicas": load.replicas,
        "leaders": load.leaders,
        "rack": load.broker.rack,
    }


@verb(app, "minilog broker cordon 4", "minilog broker cordon 4 --json")
def cordon(cluster: Cluster, broker_id: BrokerId) -> Output:
    """Place no new replica on a broker. Those that it has stay, and it leads on."""
    cluster.admin.cordon_broker(broker_id)
    return Output({"id": broker_id, "cordoned": True}, f"broker {broker_id} gets no new replica from now on")


@verb(app, "minilog broker uncordon 4", "minilog broker uncordon 4 --json")
def uncordon(cluster: Cluster, broker_id: BrokerId) -> Output:
    """Place new replicas on a broker again. A decommission ends with it, but moves that have begun go on."""
    cluster.admin.uncordon_broker(broker_id)
    return Output({"id": broker_id, "uncordoned": True}, f"broker {broker_id} gets new replicas again")


@verb(app, "minilog broker decommission 4", "minilog broker decommission 4 --throttle 20000000 --wait")
def decommission(
    cluster: Cluster,
    broker_id: BrokerId,
    throttle: Throttle = None,
    wait: Annotated[bool, typer.Option("--wait", help="End when the broker has no replica left.")] = False,
) -> Output:
    """Move all replicas of a broker to others, at most 20 partitions at once.

    The controller goes on by itself, also when this command ends. It forgets the broker when the broker stops after
    that. `minilog broker uncordon` ends the decommission.
    """
    cluster.admin.decommission_broker(broker_id, throttle_bytes_per_second=throttle)
    outcome = _wait_until_empty(cluster.admin, broker_id) if wait else "is being decommissioned"
    return Output({"id": broker_id, "empty" if wait else "decommissioning": True}, f"broker {broker_id} {outcome}")


@verb(app, "minilog broker forget 4", "minilog broker forget 4 --json")
def forget(cluster: Cluster, broker_id: BrokerId) -> Output:
    """Unregister a broker that is gone and has no replica. A broker that starts again joins as a new one."""
    cluster.admin.forget_broker(broker_id)
    return Output({"id": broker_id, "forgotten": True}, f"broker {broker_id} is registered no more")


def _wait_until_empty(admin: Admin, broker_id: int) -> str:
    """Wait until the broker has no replica. Returns a sentence with what is left to do. Raises CommandFailed where the
    decommission ends before."""
    with _progress(broker_id) as show_left:
        while True:
            load = next((load for load in admin.list_brokers() if load.broker.id == broker_id), None)
            show_left(0 if load is None else load.replicas)
            if load is None:
                return "has no replica left, and the controller has forgotten it"
            if not load.replicas and load.broker.state == "fenced":
                return "has no replica left, and does not run: the controller forgets it by itself"
            if not load.replicas:
                return "has no replica left. Stop its process: the controller then forgets it"
            if not load.broker.decommissioning:
                raise CommandFailed(
                    f"the decommission of broker {broker_id} has ended: the broker was uncordoned, and it has "
                    f"{load.replicas} replicas"
                )
            time.sleep(LOOK_AGAIN_S)


@contextlib.contextmanager
def _progress(broker_id: int) -> Iterator[Callable[[int], None]]:
    """A function that shows how many replicas are left: as a bar on a terminal, elsewhere as a line on stderr."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(f"replicas moved away from broker {broker_id}", total=None)

            def draw(left: int) -> None:
                total = bar.tasks[0].total
                whole = left if total is None else max(int(total), left)
                bar.update(task, total=whole, completed=whole - left)

            yield draw
        return
    last_shown: int | None = None

    def write(left: int) -> None:
        nonlocal last_shown
        if last_shown != left:
            say(f"broker {broker_id} has {left} replicas left", error=True)
        last_shown = left

    yield write
