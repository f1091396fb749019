"""`minilog topic schema` shows and evolves the schema of a typed topic.

topic_schema.py does the work. It loads Arrow and the parsers, so the verbs import it only when they need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from minilog_tools.cli.schema_options import ColumnOptions, EvolutionOptions
from minilog_tools.cli.verb import Cluster, Output, verb

if TYPE_CHECKING:
    from minilog import TopicSchema

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


def schema_of(options: ColumnOptions) -> TopicSchema | None:
    """The schema of a new topic, None for one without columns. Raises BadParameter, InvalidArgument, InvalidSchema."""
    if options == ColumnOptions():
        return None
    from minilog_tools.cli.topic_schema import given_schema

    return given_schema(options)


@verb(app, "minilog topic schema show flights", "minilog topic schema show flights --version 1")
def show(
    cluster: Cluster,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=1, help="The latest by default.")] = None,
) -> Output:
    """Show the columns of a typed topic, and what each version changed."""
    from minilog_tools.cli import topic_schema

    return topic_schema.show(cluster.admin, name, version)


@verb(
    app,
    "minilog topic schema evolve flights --add 'gate string' --rename delay=late",
    "minilog topic schema evolve flights --drop tailnum --dry-run",
)
def evolve(
    cluster: Cluster,
    name: Name,
    options: EvolutionOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the next version, and make none.")] = False,
) -> Output:
    """Make the next version of a topic's schema. First rename, then drop, nullable, widen, add, schema, move."""
    from minilog_tools.cli import topic_schema

    change = topic_schema.given_evolution(options)
    return topic_schema.evolve(cluster.admin, name, change, dry_run=dry_run)
