"""`minilog cluster`: the brokers and who controls them."""

from __future__ import annotations

import typer

from minilog_broker.cli.common import (
    DEFAULT_BOOTSTRAP_SERVERS,
    AsJson,
    BootstrapServers,
    admin_client,
    print_json,
    print_table,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """The brokers and who controls them."""


@app.command(epilog="Example: minilog cluster describe --json")
def describe(bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, as_json: AsJson = False) -> None:
    """Show the brokers, their states and the controller."""
    with admin_client(bootstrap_servers) as admin:
        found = admin.describe_cluster()
    if as_json:
        brokers = [
            {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack, "state": each.state}
            for each in found.brokers
        ]
        print_json(
            {
                "cluster_id": found.cluster_id,
                "controller": found.controller,
                "controller_epoch": found.controller_epoch,
                "brokers": brokers,
            }
        )
        return
    rows = (
        (
            each.id,
            "controller" if each.id == found.controller else "",
            each.host,
            each.port,
            each.rack or "-",
            each.state,
        )
        for each in found.brokers
    )
    print_table(("broker", "role", "host", "port", "rack", "state"), rows, title=f"cluster {found.cluster_id}")
