"""`minilog transaction` lists, describes and aborts transactions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minilog.types import TransactionDescription, TransactionListing
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    say,
)
from minilog_tools.cli.examples import examples

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
        listings = admin.list_transactions()
    if as_json:
        print_json([listing_document(listing) for listing in listings])
        return
    print_table(
        ("transactional id", "state", "generation", "last committed", "producers"),
        (
            (
                listing.transactional_id,
                listing.state,
                listing.generation,
                _shown(listing.last_committed_generation),
                listing.producer_count,
            )
            for listing in listings
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
    """Show the open transaction of an id: its producers, their partitions, and how long they have been silent."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        description = admin.describe_transaction(name)
    if as_json:
        print_json(transaction_document(description))
        return
    listing = description.listing
    silent = (
        "" if description.silent_ms is None else f"; silent for {description.silent_ms} ms of {description.timeout_ms}"
    )
    print_table(
        ("producer id", "generation", "task", "fate", "partitions"),
        (
            (
                producer.producer_id,
                producer.generation,
                _shown(producer.task),
                producer.fate,
                ", ".join(f"{at.topic}-{at.partition}" for at in producer.partitions) or "none",
            )
            for producer in description.producers
        ),
        title=f"{name}: {listing.state}; generation {listing.generation}, last committed "
        f"{_shown(listing.last_committed_generation)}; run {description.run_id}{silent}",
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
    """Abort the open transaction of an id, and fence its producers. Committed records stay."""
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        count = admin.abort_transaction(name)
    if as_json:
        print_json({"transactional_id": name, "aborted_producers": count})
    else:
        say(f"transaction {name}: {count} producers aborted")


def listing_document(listing: TransactionListing) -> dict[str, Any]:
    """One transaction of a list, for JSON."""
    return {
        "transactional_id": listing.transactional_id,
        "state": listing.state,
        "generation": listing.generation,
        "last_committed_generation": listing.last_committed_generation,
        "producer_count": listing.producer_count,
    }


def transaction_document(description: TransactionDescription) -> dict[str, Any]:
    """A described transaction, for JSON."""
    return {
        **listing_document(description.listing),
        "attempt_id": description.attempt_id,
        "run_id": description.run_id,
        "timeout_ms": description.timeout_ms,
        "expires": description.expires,
        "updated_at": description.updated_ms,
        "silent_ms": description.silent_ms,
        "producers": [
            {
                "producer_id": producer.producer_id,
                "generation": producer.generation,
                "task": producer.task,
                "fate": producer.fate,
                "partitions": [{"topic": at.topic, "partition": at.partition} for at in producer.partitions],
            }
            for producer in description.producers
        ],
    }


def _shown(number: int | None) -> object:
    return "-" if number is None else number
