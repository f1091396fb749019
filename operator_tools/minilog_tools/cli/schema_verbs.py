"""`minilog topic schema` shows and evolves the schema of a typed topic. The options that give a schema are here, too.

topic_schema.py does the work. It loads Arrow and the parsers, so the verbs import it only when they need it.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minilog_tools.cli.verb import Cluster, Output, verb

if TYPE_CHECKING:
    from minilog import TopicSchema

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The options that make a typed topic."""

    ddl: Annotated[
        str | None,
        typer.Option("--ddl", metavar="COLUMNS", help="A typed topic with these columns, as Spark writes them."),
    ] = None
    file: Annotated[
        pathlib.Path | None,
        typer.Option("--schema", metavar="FILE.json", help="A typed topic with the columns of df.schema.json()."),
    ] = None
    like: Annotated[
        pathlib.Path | None,
        typer.Option("--like", metavar="FILE.parquet", help="A typed topic with the columns of this file."),
    ] = None
    key_columns: Annotated[
        str | None,
        typer.Option("--key-columns", metavar="COLUMN,...", help="The columns that the key is made of."),
    ] = None
    timestamp_column: Annotated[
        str | None,
        typer.Option("--timestamp-column", metavar="COLUMN", help="The column with the record's timestamp."),
    ] = None

    def schema(self) -> TopicSchema | None:
        """The schema of the new topic. Raises BadParameter, InvalidArgument, InvalidSchema."""
        if self == ColumnOptions():
            return None
        from minilog_tools.cli.topic_schema import given_schema

        return given_schema(self)


@verb(app, "minilog topic schema show flights", "minilog topic schema show flights --version 1")
def show(
    cluster: Cluster,
    name: Name,
    version: Annotated[int | None, typer.Option("--version", min=1, help="The latest by default.")] = None,
) -> Output:
    """Show the columns of a typed topic, and what each version changed."""
    from minilog_tools.cli import topic_schema

    return topic_schema.show(cluster.admin, name, version)


def _repeatable(*names: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=f"{help} Repeatable.")


@dataclass(frozen=True, slots=True)
class EvolutionOptions:
    """The options that change a schema."""

    add: Annotated[
        list[str] | None,
        _repeatable("--add", metavar="'COLUMN TYPE'", help="Add a column, or a field as STRUCT.FIELD."),
    ] = None
    drop: Annotated[list[str] | None, _repeatable("--drop", metavar="COLUMN", help="Drop a column.")] = None
    rename: Annotated[list[str] | None, _repeatable("--rename", metavar="OLD=NEW", help="Rename a column.")] = None
    widen: Annotated[
        list[str] | None,
        _repeatable(
            "--widen", metavar="'COLUMN TYPE'", help="Give a column a wider type, which also holds all former values."
        ),
    ] = None
    nullable: Annotated[
        list[str] | None, _repeatable("--nullable", metavar="COLUMN", help="Allow nulls in a column.")
    ] = None
    move: Annotated[
        list[str] | None,
        _repeatable("--move", metavar="'COLUMN after OTHER'", help="Move a column. Or 'COLUMN first', 'COLUMN last'."),
    ] = None
    file: Annotated[
        pathlib.Path | None,
        typer.Option("--schema", metavar="FILE.json", help="Add the new columns and wider types of a file."),
    ] = None


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
