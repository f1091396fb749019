"""`minilog transaction`: which there are, what is open and since when, and aborting one by command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minilog.types import TransactionDescription, TransactionListing
from minilog_broker.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    say,
)
from minilog_broker.cli.examples import examples

app = typer.Typer(no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


@app.callback()
def transaction() -> None:
    """List, describe and abort transactions."""


@app.command("list", epilog=examples("minilog transaction list", "minilog transaction list --json"))
def list_(
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids that are known."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        found = admin.list_transactions()
    if as_json:
        print_json([listing_document(each) for each in found])
        return
    print_table(
        ("transactional id", "state", "generation", "last committed", "producers"),
        (
            (
                each.transactional_id,
                each.state,
                each.generation,
                _shown(each.last_committed_generation),
                each.producer_count,
            )
            for each in found
        ),
    )


@app.command(
    epilog=examples("minilog transaction describe spark-6f1c", "minilog transaction describe spark-6f1c --json")
)
def describe(
    name: Id,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show what is open under an id: its producers, where they write, and how long nothing was heard of them."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        found = admin.describe_transaction(name)
    if as_json:
        print_json(transaction_document(found))
        return
    listing = found.listing
    silent = "" if found.silent_ms is None else f"; silent for {found.silent_ms} ms of {found.timeout_ms}"
    print_table(
        ("producer id", "generation", "task", "fate", "partitions"),
        (
            (
                each.producer_id,
                each.generation,
                _shown(each.task),
                each.fate,
                ", ".join(f"{where.topic}-{where.partition}" for where in each.partitions) or "none",
            )
            for each in found.producers
        ),
        title=f"{name}: {listing.state}; generation {listing.generation}, last committed "
        f"{_shown(listing.last_committed_generation)}; run {found.run_id}{silent}",
    )


@app.command(
    epilog=examples(
        "minilog transaction abort spark-6f1c",
        "minilog transaction abort spark-6f1c --command-config client.properties",
    )
)
def abort(
    name: Id,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Abort what is open under an id, and fence its writers; what was committed stays."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        count = admin.abort_transaction(name)
    if as_json:
        print_json({"transactional_id": name, "aborted_producers": count})
    else:
        say(f"transaction {name}: {count} producers aborted")


def listing_document(listing: TransactionListing) -> dict[str, Any]:
    """What machines get to read."""
    return {
        "transactional_id": listing.transactional_id,
        "state": listing.state,
        "generation": listing.generation,
        "last_committed_generation": listing.last_committed_generation,
        "producer_count": listing.producer_count,
    }


def transaction_document(found: TransactionDescription) -> dict[str, Any]:
    """What machines get to read."""
    return {
        **listing_document(found.listing),
        "attempt_id": found.attempt_id,
        "run_id": found.run_id,
        "timeout_ms": found.timeout_ms,
        "expires": found.expires,
        "updated_at": found.updated_ms,
        "silent_ms": found.silent_ms,
        "producers": [
            {
                "producer_id": each.producer_id,
                "generation": each.generation,
                "task": each.task,
                "fate": each.fate,
                "partitions": [{"topic": where.topic, "partition": where.partition} for where in each.partitions],
            }
            for each in found.producers
        ],
    }


def _shown(number: int | None) -> object:
    return "-" if number is None else number
