"""The options of the command line that give a schema, or change one."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Annotated, Any

import typer


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
