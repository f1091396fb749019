"""`minilog topic schema` shows and evolves the schema of a typed topic. The options that give a schema are here, too.

topic_schema.py does the work. It loads Arrow and the parsers, so the verbs import it only when they need it.
"""

from __future__ import annotations

import pathlib
from typing import Annotated, Any

import typer

from minilog_tools.cli.verb import Cluster, Output, verb

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
SchemaFile = Annotated[
    pathlib.Path | None,
    typer.Option("--schema", metavar="FILE.json", help="A typed topic with the columns of df.schema.json()."),
]
LikeFile = Annotated[
    pathlib.Path | None,
    typer.Option("--like", metavar="FILE.parquet", help="A typed topic with the columns of this file."),
]
Ddl = Annotated[
    str | None, typer.Option("--ddl", metavar="COLUMNS", help="A typed topic with these columns, as Spark writes them.")
]
KeyColumns = Annotated[
    str | None, typer.Option("--key-columns", metavar="COLUMN,...", help="The columns that the key is made of.")
]
TimestampColumn = Annotated[
    str | None, typer.Option("--timestamp-column", metavar="COLUMN", help="The column with the record's timestamp.")
]


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


@verb(
    app,
    "minilog topic schema evolve flights --add 'gate string' --rename delay=late",
    "minilog topic schema evolve flights --drop tailnum --dry-run",
)
def evolve(
    cluster: Cluster,
    name: Name,
    add: Annotated[
        list[str] | None,
        _repeatable("--add", metavar="'COLUMN TYPE'", help="Add a column, or a field as STRUCT.FIELD."),
    ] = None,
    drop: Annotated[list[str] | None, _repeatable("--drop", metavar="COLUMN", help="Drop a column.")] = None,
    rename: Annotated[list[str] | None, _repeatable("--rename", metavar="OLD=NEW", help="Rename a column.")] = None,
    widen: Annotated[
        list[str] | None,
        _repeatable(
            "--widen", metavar="'COLUMN TYPE'", help="Give a column a wider type, which also holds all former values."
        ),
    ] = None,
    nullable: Annotated[
        list[str] | None, _repeatable("--nullable", metavar="COLUMN", help="Allow nulls in a column.")
    ] = None,
    move: Annotated[
        list[str] | None,
        _repeatable("--move", metavar="'COLUMN after OTHER'", help="Move a column. Or 'COLUMN first', 'COLUMN last'."),
    ] = None,
    file: Annotated[
        pathlib.Path | None,
        typer.Option("--schema", metavar="FILE.json", help="Add the new columns and wider types of a file."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the next version, and make none.")] = False,
) -> Output:
    """Make the next version of a topic's schema. First rename, then drop, nullable, widen, add, schema, move."""
    from minilog_tools.cli import topic_schema

    change = topic_schema.given_evolution(
        add=add or (),
        drop=drop or (),
        rename=rename or (),
        widen=widen or (),
        nullable=nullable or (),
        move=move or (),
        file=file,
    )
    return topic_schema.evolve(cluster.admin, name, change, dry_run=dry_run)
