"""`minilog transaction` lists, describes and aborts transactions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minilog.types import TransactionDescription, TransactionListing
from minilog_tools.cli.common import attributes
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]


@verb(app, "minilog transaction list", "minilog transaction list --json", name="list")
def list_(cluster: Cluster) -> Output:
    """List the transactional ids that are known."""
    documents = [listing_document(listing) for listing in cluster.admin.list_transactions()]
    columns = ("transactional id", "state", "generation", "last committed", "producers")
    return Output(documents, TextTable(columns, (document.values() for document in documents)))


@verb(app, "minilog transaction describe spark-6f1c", "minilog transaction describe spark-6f1c --json")
def describe(cluster: Cluster, name: Id) -> Output:
    """Show the open transaction of an id: its producers, their partitions, and how long they have been silent."""
    description = cluster.admin.describe_transaction(name)
    rows = (
        (
            producer.producer_id,
            producer.generation,
            producer.task,
            producer.fate,
            ", ".join(f"{at.topic}-{at.partition}" for at in producer.partitions) or "none",
        )
        for producer in description.producers
    )
    columns = ("producer id", "generation", "task", "fate", "partitions")
    return Output(transaction_document(description), TextTable(columns, rows, title=_title(name, description)))


def _title(name: str, description: TransactionDescription) -> str:
    listing, silent_ms = description.listing, description.silent_ms
    committed = "-" if listing.last_committed_generation is None else listing.last_committed_generation
    silent = "" if silent_ms is None else f"; silent for {silent_ms} ms of {description.timeout_ms}"
    return (
        f"{name}: {listing.state}; generation {listing.generation}, last committed {committed}; "
        f"run {description.run_id}{silent}"
    )


@verb(
    app,
    "minilog transaction abort spark-6f1c",
    "minilog transaction abort spark-6f1c --command-config client.properties",
)
def abort(cluster: Cluster, name: Id) -> Output:
    """Abort the open transaction of an id, and fence its producers. Committed records stay."""
    count = cluster.admin.abort_transaction(name)
    return Output(
        {"transactional_id": name, "aborted_producers": count}, f"transaction {name}: {count} producers aborted"
    )


def listing_document(listing: TransactionListing) -> dict[str, Any]:
    """One transaction of a list, for JSON."""
    return attributes(listing, "transactional_id", "state", "generation", "last_committed_generation", "producer_count")


def transaction_document(description: TransactionDescription) -> dict[str, Any]:
    """A described transaction, for JSON."""
    return {
        **listing_document(description.listing),
        **attributes(description, "attempt_id", "run_id", "timeout_ms", "expires"),
        "updated_at": description.updated_ms,
        "silent_ms": description.silent_ms,
        "producers": [
            {
                **attributes(producer, "producer_id", "generation", "task", "fate"),
                "partitions": [attributes(at, "topic", "partition") for at in producer.partitions],
            }
            for producer in description.producers
        ],
    }
