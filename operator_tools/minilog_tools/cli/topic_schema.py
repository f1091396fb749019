"""The work of `minilog topic schema`, and the schema that the options of `topic create` give. This module loads Arrow
and the parsers, so schema_verbs.py and topic.py import it only for commands about columns."""

from __future__ import annotations

import itertools
import json
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import typer

from minilog import Admin, TopicSchema, schema_from_arrow, schema_from_ddl, schema_from_json
from minilog.errors import InvalidSchema
from minilog.typed.schema import evolution
from minilog.typed.schema.changes import changes_between
from minilog.typed.schema.column_names import parse_names
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field, walk
from minilog.typed.schema.schema_json import MAX_JSON_CHARACTERS, schema_to_json
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.typed.schema.wire import first_version_of
from minilog_tools.cli.schema_options import ColumnOptions, EvolutionOptions
from minilog_tools.cli.verb import Output, TextTable

_MAX_FILE_BYTES = 4 * MAX_JSON_CHARACTERS
_NAME = r"`(?:[^`]|``)+`|[^\s=`]+"
_TYPED = re.compile(rf"\s*({_NAME})\s+(.+)", re.DOTALL)
_RENAMED = re.compile(rf"\s*({_NAME})\s*=\s*({_NAME})\s*")
_MOVED = re.compile(rf"\s*({_NAME})\s+(?:(first|last)|after\s+({_NAME}))\s*")


# -- where a schema comes from


def given_schema(options: ColumnOptions) -> TopicSchema | None:
    """The schema that the options of `topic create` give, or None. Raises BadParameter, InvalidArgument,
    InvalidSchema."""
    ddl, file, like, timestamp_column = options.ddl, options.file, options.like, options.timestamp_column
    keys = list(parse_names(options.key_columns)) if options.key_columns else []
    if sum(option is not None for option in (ddl, file, like)) > 1:
        raise typer.BadParameter("--ddl, --schema and --like all give the columns: give one of them")
    if ddl is not None:
        return schema_from_ddl(ddl, keys, timestamp_column)
    if like is not None:
        return schema_from_arrow(_parquet_schema(like), keys, timestamp_column)
    if file is not None:
        read = _from_file(file)
        keys, timestamp = keys or list(read.key_columns), timestamp_column or read.timestamp_column
        return first_version_of(replace(read, key_columns=tuple(keys), timestamp_column=timestamp))
    if keys or timestamp_column:
        raise typer.BadParameter("--key-columns and --timestamp-column need columns: --ddl, --schema or --like")
    return None


def _from_file(path: pathlib.Path) -> TopicSchema:
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    try:
        return schema_from_json(content.decode())
    except UnicodeDecodeError:
        raise InvalidSchema(f"{path} is no text in UTF-8: give the output of df.schema.json()") from None


def _parquet_schema(path: pathlib.Path) -> pa.Schema:
    """The schema in the footer of a Parquet file. Nothing else of the file is read."""
    import pyarrow.parquet as pq  # a tenth of a second that no other verb needs

    try:
        with path.open("rb") as file:
            return pq.read_schema(file)
    except pa.ArrowInvalid as error:
        raise InvalidSchema(f"{path} is no Parquet file ({error}): --like takes one") from None


# -- show


def show(admin: Admin, name: str, version: int | None) -> Output:
    """The columns of a typed topic, and what each version changed."""
    versions, withdrawn = _versions(admin, name)
    if version is not None and version > len(versions):
        raise InvalidSchema(f"the schema of topic {name} has no version {version}: the latest is {len(versions)}")
    shown = versions[-1 if version is None else version - 1]
    chosen = versions if version is None else [shown]
    changes = itertools.pairwise(each for each in versions if each.version not in withdrawn)
    return Output(
        {"name": name, "versions": [schema_document(schema) for schema in chosen]},
        schema_table(shown, f"{name}, version {shown.version} of {len(versions)}"),
        *(
            f"version {number}: withdrawn, because its write failed or another change came first"
            for number in sorted(withdrawn)
        ),
        *(f"version {later.version}: {_change_text(changes_between(former, later))}" for former, later in changes),
    )


def _versions(admin: Admin, name: str) -> tuple[list[TopicSchema], frozenset[int]]:
    """The versions up to the latest, and the numbers of those that were withdrawn."""
    (description,) = admin.describe_topics([name])
    versions, schemas = description.schema_versions, description.schemas
    if not isinstance(schemas, TopicSchemas):
        raise InvalidSchema(f"topic {name} has no schema: its records are keys and values")
    return versions, schemas.withdrawn


def schema_document(schema: TopicSchema) -> dict[str, Any]:
    """One version in the form of docs/reference/commands.md § JSON."""
    document: dict[str, Any] = json.loads(schema_to_json(schema))
    return document


def schema_table(schema: TopicSchema, title: str) -> TextTable:
    """The columns for people. Fields of structs, lists and maps are named by their path."""
    roles = {name: f"key {place}" for place, name in enumerate(schema.key_columns, 1)}
    if schema.timestamp_column is not None:
        stamp = schema.timestamp_column
        roles[stamp] = ", ".join(filter(None, (roles.get(stamp), "time stamp")))
    columns = list(walk(schema.fields))
    has_comments = any(column.comment for _, column in columns)
    rows = (
        (column.id, path, column.type, "yes" if column.nullable else "no", roles.get(path, ""))
        + ((" ".join(column.comment.split()),) if has_comments else ())
        for path, column in columns
    )
    titles = ("id", "name", "type", "nullable", "role", "comment")
    return TextTable(titles if has_comments else titles[:-1], rows, title=title)


def _change_text(changes: list[str]) -> str:
    return "; ".join(changes) or "nothing is changed"


# -- evolve


@dataclass(frozen=True, slots=True)
class Evolution:
    """The changes of a schema, in the order of these fields. So a new column may have the name of a column that the
    same command renames or drops. Later steps use the new names."""

    renamed: list[tuple[str, str]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    loosened: list[str] = field(default_factory=list)
    widened: list[tuple[str, Field]] = field(default_factory=list)
    added: list[tuple[str, Field]] = field(default_factory=list)
    wanted: TopicSchema | None = None
    moved: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, schema: TopicSchema) -> TopicSchema:
        """The schema after the changes. Raises InvalidSchema, which names the broken rule."""
        for path, name in self.renamed:
            schema = evolution.rename_column(schema, path, name)
        for path in self.dropped:
            schema = evolution.drop_column(schema, path)
        for path in self.loosened:
            schema = evolution.loosen_column(schema, path)
        for path, column in self.widened:
            schema = evolution.widen_column(schema, path, column.type)
        for path, column in self.added:
            parent, _, name = path.rpartition(".")
            schema = evolution.add_column(schema, replace(column, name=name), parent)
        if self.wanted is not None:
            schema = evolution.merged(schema, self.wanted.fields)
        for name, after in self.moved:
            schema = evolution.move_column(schema, name, after=after)
        return schema


def given_evolution(options: EvolutionOptions) -> Evolution:
    """The changes that the options of `topic schema evolve` give. Raises BadParameter where they give none."""
    change = Evolution(
        renamed=[_renamed(text) for text in options.rename or ()],
        dropped=[_plain(text) for text in options.drop or ()],
        loosened=[_plain(text) for text in options.nullable or ()],
        widened=[_typed("--widen", text) for text in options.widen or ()],
        added=[_typed("--add", text) for text in options.add or ()],
        wanted=None if options.file is None else _from_file(options.file),
        moved=[_moved(text) for text in options.move or ()],
    )
    if change == Evolution():
        raise typer.BadParameter(
            "give at least one change: --add, --drop, --rename, --widen, --nullable, --move, --schema"
        )
    return change


def evolve(admin: Admin, name: str, change: Evolution, *, dry_run: bool) -> Output:
    """Make the next version of a topic's schema."""
    former, new = _evolve(admin, name, change, dry_run=dry_run)
    changes = changes_between(former, new)
    document = {"name": name, "former_version": former.version, "changes": changes, "dry_run": dry_run}
    document["schema"] = schema_document(new)
    if former.version == new.version:
        return Output(document, f"the schema of topic {name} stays at version {new.version}: nothing is changed")
    made = f"{'would be ' if dry_run else ''}version {new.version} of the schema of topic {name}"
    return Output(document, schema_table(new, f"{name}, version {new.version}"), f"{made}: {_change_text(changes)}")


def _evolve(
    admin: Admin, name: str, change: Callable[[TopicSchema], TopicSchema], *, dry_run: bool
) -> tuple[TopicSchema, TopicSchema]:
    """The former version and the new one."""
    former = _versions(admin, name)[0][-1]
    if dry_run:
        return former, evolution.as_next_version(former, change(former))
    seen = [former]

    def changed(latest: TopicSchema) -> TopicSchema:
        seen.append(latest)
        return change(latest)

    new = admin.evolve_schema(name, changed)
    return seen[-1], new


def _plain(text: str) -> str:
    """A name without the backquotes of DDL, or a path of names."""
    text = text.strip()
    return text[1:-1].replace("``", "`") if len(text) > 2 and text[0] == text[-1] == "`" else text


def _typed(option: str, text: str) -> tuple[str, Field]:
    match = _TYPED.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{option} {text!r}: expected a column and its type, such as 'gate string'")
    columns = parse_ddl(f"{option.strip('-')} {match[2]}")
    if len(columns) != 1:
        raise typer.BadParameter(f"{option} {text!r}: expected one column. Give the option once for each column")
    return _plain(match[1]), columns[0]


def _renamed(text: str) -> tuple[str, str]:
    match = _RENAMED.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--rename {text!r}: expected OLD=NEW, such as delay=delay_minutes")
    return _plain(match[1]), _plain(match[2])


def _moved(text: str) -> tuple[str, str]:
    match = _MOVED.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"--move {text!r}: expected 'COLUMN after OTHER', 'COLUMN first' or 'COLUMN last'")
    return _plain(match[1]), match[2] or _plain(match[3])
