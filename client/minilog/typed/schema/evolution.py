"""How the schema of a topic may change: Iceberg's rules, by field id. Pure.

    add       a nullable field, anywhere. It gets an id that no field ever had
    drop      a field. Its id is never used again, so a later field of the same name is another field
    rename    the id stays, and so do the written values
    widen     int to long and so on, float to double, a decimal to more digits before the point
    loosen    NOT NULL to nullable
    move      a column to another place

Any other change is refused with the rule. The controller calls `check_evolution`, which compares two versions. The
functions above it make the next version from a version. A reader may meet every version, in any order. It reads each by
id, and a missing column is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from minilog.errors import InvalidSchema
from minilog.typed.schema.arrow_kinds import is_cast
from minilog.typed.schema.fields import (
    Decimal,
    Field,
    FieldType,
    Map,
    Primitive,
    Struct,
    arrow_type,
    children,
    mapped,
    walk,
    with_children,
)
from minilog.typed.schema.topic_schema import TopicSchema, check_new_names, check_schema, give_ids
from minilog.typed.schema.topic_schemas import TopicSchemas

_WIDER: Mapping[str, tuple[str, ...]] = {
    "byte": ("short", "int", "long"),
    "short": ("int", "long"),
    "int": ("long",),
    "float": ("double",),
}
FIRST, LAST = "first", "last"


def add_column(schema: TopicSchema, field: Field, path: str = "", *, after: str = LAST) -> TopicSchema:
    """Add a column, or with `path` a field of the struct there, behind the field `after`. Raises InvalidSchema."""
    here = f"{path}.{field.name}" if path else field.name
    if not field.nullable:
        raise InvalidSchema(f"a new column has no values in the records written before: {here!r} has to be nullable")
    new = _without_ids(field)
    if not path:
        return _next(schema, _placed(schema.fields, new, after))

    def added(struct: Field) -> Field:
        if not isinstance(struct.type, Struct):
            raise InvalidSchema(f"{path!r} is {struct.type} and no struct: nothing can be added to it")
        return replace(struct, type=Struct(_placed(struct.type.fields, new, after)))

    return _next(schema, _at(schema.fields, path, added))


def drop_column(schema: TopicSchema, path: str) -> TopicSchema:
    """Drop a column, or a field of a struct. Raises InvalidSchema for a key column and the timestamp column."""
    parent, _, name = path.rpartition(".")
    if path in schema.key_columns or path == schema.timestamp_column:
        role = "the key is made" if path in schema.key_columns else "the time stamp is made"
        raise InvalidSchema(f"{role} of column {path!r}: it cannot be dropped. Write to a new topic")

    def dropped(fields: tuple[Field, ...]) -> tuple[Field, ...]:
        _of(fields, name, path)
        return tuple(field for field in fields if field.name != name)

    if not parent:
        return _next(schema, dropped(schema.fields))
    return _next(schema, _at(schema.fields, parent, lambda struct: _changed_struct(struct, parent, dropped)))


def rename_column(schema: TopicSchema, path: str, name: str) -> TopicSchema:
    """Rename a field, which stays the same field. Key and timestamp column follow. Raises InvalidSchema."""
    fields = _at(schema.fields, path, lambda field: replace(field, name=name))
    if "." in path:
        return _next(schema, fields)
    keys = tuple(name if column == path else column for column in schema.key_columns)
    timestamp = name if schema.timestamp_column == path else schema.timestamp_column
    return _next(replace(schema, key_columns=keys, timestamp_column=timestamp), fields, of=schema)


def widen_column(schema: TopicSchema, path: str, kind: FieldType) -> TopicSchema:
    """Give a field a wider type, which also holds all written values. Raises InvalidSchema."""
    return _next(schema, _at(schema.fields, path, lambda field: replace(field, type=kind)))


def loosen_column(schema: TopicSchema, path: str) -> TopicSchema:
    """Let a NOT NULL field be null from now on. Raises InvalidSchema."""
    return _next(schema, _at(schema.fields, path, lambda field: replace(field, nullable=True)))


def move_column(schema: TopicSchema, name: str, *, after: str) -> TopicSchema:
    """Move a top-level column behind another one, or to `first` or `last`. Raises InvalidSchema."""
    moved = schema.column(name)
    return _next(schema, _placed(tuple(field for field in schema.fields if field.name != name), moved, after))


def merged(schema: TopicSchema, wanted: tuple[Field, ...]) -> TopicSchema:
    """The next version that also takes rows of `wanted`, matched by name: new columns are added as nullable ones, wider
    types widen. A type stays where it cannot widen and values are cast to it when they are written. What may not be
    null stays so, since Spark calls each column nullable. The same object where nothing changes. Raises InvalidSchema.
    """
    fields = _merged(schema.fields, wanted, stay=schema.key_columns)
    return schema if fields == schema.fields else _next(schema, fields)


def as_next_version(
    old: TopicSchema, changed: TopicSchema, set_aside: Mapping[int, Field] = MappingProxyType({})
) -> TopicSchema:
    """Several changes of `old`, one after the other, as the one version that follows it. Returns `old` itself if
    nothing is changed. `set_aside`: as for `check_evolution`. Raises InvalidSchema."""
    roles = changed.key_columns, changed.timestamp_column
    if changed.fields == old.fields and roles == (old.key_columns, old.timestamp_column):
        return old
    fields = mapped(changed.fields, lambda field: replace(field, id=field.id if field.id <= old.last_field_id else 0))
    new = give_ids(replace(changed, fields=fields, version=old.version + 1, last_field_id=old.last_field_id))
    check_evolution(old, new, set_aside)
    return new


def proposal(schemas: TopicSchemas, change: Callable[[TopicSchema], TopicSchema]) -> TopicSchema:
    """The version of a schema that has this change: the latest one where nothing changes, a pending one that has just
    this change, else the next one. A write that runs again after a failure so wants the version of its first run.
    A new column that a pending or withdrawn version has, too, gets its id from there: both are one column. Raises
    InvalidSchema."""
    base, pending = schemas.base, schemas.pending
    changed = _with_known_ids(change(base), base, schemas)
    proposed = as_next_version(base, changed, schemas.set_aside)
    if proposed is base:
        return schemas.latest
    return pending if pending is not None and _is_but_for_ids(proposed, pending) else proposed


def rejoined(schemas: TopicSchemas, number: int) -> Callable[[TopicSchema], TopicSchema]:
    """The change that brings in what a withdrawn version has, for a write whose rows are written by it. It raises
    InvalidSchema if a column cannot come back, such as a new field of a struct: the rows would be read without it."""
    version, aside = schemas.version(number), schemas.set_aside

    def change(base: TopicSchema) -> TopicSchema:
        brought = tuple(field for field in version.fields if field.id in aside and field.id not in base.by_id)
        common = (field for field in version.fields if field.id in base.by_id)
        wider = tuple(replace(field, name=base.by_id[field.id].name) for field in common)
        changed = merged(replace(base, fields=(*base.fields, *brought)), wider)
        if lost := [path for path, field in walk(version.fields) if field.id in aside.keys() - changed.by_id.keys()]:
            raise InvalidSchema(
                f"another client has evolved the schema since version {number} was made, and column {lost[0]!r} of it "
                "cannot come back: write again"
            )
        return changed

    return change


def _with_known_ids(changed: TopicSchema, base: TopicSchema, schemas: TopicSchemas) -> TopicSchema:
    """With the ids of columns that were set aside, for new columns of the same name and type."""
    aside = schemas.set_aside
    tops = {
        field.name: field for version in schemas.versions for field in version.fields if field.id in aside
    }  # of the newest version that has the name

    def known(field: Field) -> Field:
        there = tops.get(field.name)
        is_new = field.id not in base.by_id and field.id not in aside
        is_same = there is not None and _without_ids(there) == _without_ids(field)
        return there if there is not None and is_new and is_same else field

    return replace(changed, fields=tuple(known(field) for field in changed.fields))


def _is_but_for_ids(one: TopicSchema, other: TopicSchema) -> bool:
    """Whether both have the same columns in the same roles. The ids of new columns may be others."""
    roles = [(schema.key_columns, schema.timestamp_column) for schema in (one, other)]
    comments = [[field.comment for _, field in walk(schema.fields)] for schema in (one, other)]
    return roles[0] == roles[1] and comments[0] == comments[1] and one.arrow_schema.equals(other.arrow_schema)


def check_evolution(old: TopicSchema, new: TopicSchema, set_aside: Mapping[int, Field] = MappingProxyType({})) -> None:
    """Checks that `new` may follow `old` as the next version of a topic. `set_aside` has the fields of versions that
    were never the latest, which may come back under their ids. Raises InvalidSchema, with the rule."""
    if new.version != old.version + 1:
        raise InvalidSchema(f"version {new.version} does not follow version {old.version}: read the schema again")
    check_schema(new)
    before = {field.id: field.name for field in old.fields}
    check_new_names([field.name for field in new.fields if before.get(field.id) != field.name])
    if new.last_field_id < old.last_field_id:
        raise InvalidSchema(f"ids up to {old.last_field_id} were given: they are not given again")
    if sum(field_id > old.last_field_id for field_id in new.by_id) != new.last_field_id - old.last_field_id:
        raise InvalidSchema(f"new fields get the next ids, from {old.last_field_id + 1} on, and none is left out")
    _check_roles(old, new)
    new_fields = tuple(field for field in new.fields if not _comes_back(field, old, set_aside))
    _check_fields(old.fields, new_fields, "", old.last_field_id)
    homes = {field.id: parent for parent, field in _with_parents(old.fields)}
    for parent, field in _with_parents(new.fields):
        if homes.get(field.id, parent) != parent:
            raise InvalidSchema(
                f"field {field.name!r} was part of something else: drop it there, and add a new one here"
            )


def _comes_back(field: Field, old: TopicSchema, set_aside: Mapping[int, Field]) -> bool:
    """Whether it is a column as a version had it that was set aside."""
    return field.id not in old.by_id and set_aside.get(field.id) == field and field.nullable


def _check_roles(old: TopicSchema, new: TopicSchema) -> None:
    keys = [[schema.column(name).id for name in schema.key_columns] for schema in (old, new)]
    if keys[0] != keys[1]:
        raise InvalidSchema(
            f"the key is made of {', '.join(old.key_columns) or 'nothing'}, and stays so: records of one key would lie "
            "in two partitions. Write to a new topic"
        )
    if new.timestamp_column is None and old.timestamp_column is not None:
        raise InvalidSchema(f"the time stamp is column {old.timestamp_column!r}: it cannot be dropped")
    stamps = [schema.column(schema.timestamp_column).id for schema in (old, new) if schema.timestamp_column]
    if len(stamps) == 2 and stamps[0] != stamps[1]:
        raise InvalidSchema(f"the time stamp is column {old.timestamp_column!r}, and stays so")
    for name in new.key_columns:
        field = new.column(name)
        if old.by_id[field.id].type != field.type:
            raise InvalidSchema(f"key column {name!r} stays {old.by_id[field.id].type}: its keys are hashed as that")


def _check_fields(old: tuple[Field, ...], new: tuple[Field, ...], path: str, last_id: int) -> None:
    before = {field.id: field for field in old}
    for field in new:
        here = f"{path}.{field.name}" if path else field.name
        former = before.get(field.id)
        if former is not None:
            _check_field(former, field, here, last_id)
        elif field.id <= last_id:
            raise InvalidSchema(f"field {here!r} has the id {field.id} of a field that was dropped or is elsewhere")
        elif not field.nullable:
            raise InvalidSchema(
                f"a new column has no values in the records written before: {here!r} has to be nullable"
            )


def _check_field(old: Field, new: Field, path: str, last_id: int) -> None:
    if old.nullable and not new.nullable:
        raise InvalidSchema(f"column {path!r} may be null in what was written: it cannot become NOT NULL")
    if isinstance(old.type, Map) and isinstance(new.type, Map) and old.type.key != new.type.key:
        raise InvalidSchema(f"the keys of map {path!r} stay as they are: {old.type.key.type}")
    parts = children(old.type), children(new.type)
    if type(old.type) is type(new.type) and parts[0]:
        if not isinstance(old.type, Struct) and [part.id for part in parts[0]] != [part.id for part in parts[1]]:
            raise InvalidSchema(
                f"what {path!r} is made of must stay the same field: drop the column, and add a new one"
            )
        _check_fields(*parts, path, last_id)
    elif not is_widened(old.type, new.type):
        raise InvalidSchema(
            f"column {path!r} cannot become {new.type} from {old.type}: only wider integers, double from float, and "
            "decimals with more digits before the point; else drop it, and add a new one"
        )


def widened(schema: TopicSchema, schemas: TopicSchemas) -> TopicSchema:
    """The columns of `schema`, by its names and in its order, so wide that the rows of all versions fit: the types are
    those that each column had last, and null is allowed where any version allows it or does not have the column."""
    last_known: dict[int, Field] = {}
    for version in schemas.versions:
        for field_id, field in version.by_id.items():
            known = last_known.get(field_id, field)  # that of a withdrawn version may be wider than the next one
            last_known[field_id] = replace(field, type=known.type) if is_widened(field.type, known.type) else field
    latest = schemas.latest.by_id
    dropped = {
        field.id for parent, field in _with_parents(schema.fields) if field.id not in latest and parent in {0, *latest}
    }

    def change(field: Field) -> Field:
        last = last_known.get(field.id, field)
        kind = last.type if isinstance(last.type, Primitive | Decimal) else field.type
        return replace(field, type=kind, nullable=field.nullable or last.nullable or field.id in dropped)

    return replace(schema, fields=mapped(schema.fields, change))


def is_widened(old: FieldType, new: FieldType) -> bool:
    """Whether each value of `old` is one of `new`: the same type or a wider one, both without parts."""
    match old, new:
        case Primitive(narrow), Primitive(wide):
            return narrow == wide or wide in _WIDER.get(narrow, ())
        case Decimal(few, scale), Decimal(many, new_scale):
            return new_scale == scale and many >= few
        case _:
            return old == new


def _with_parents(fields: tuple[Field, ...], parent: int = 0) -> list[tuple[int, Field]]:
    fields_with_parents = []
    for field in fields:
        fields_with_parents.append((parent, field))
        fields_with_parents.extend(_with_parents(children(field.type), field.id))
    return fields_with_parents


def _next(schema: TopicSchema, fields: tuple[Field, ...], *, of: TopicSchema | None = None) -> TopicSchema:
    old = of or schema
    new = replace(schema, fields=fields, version=old.version + 1)
    check_schema(new, with_ids=False)
    given = give_ids(new)
    check_evolution(old, given)
    return given


def _without_ids(field: Field) -> Field:
    parts = tuple(_without_ids(child) for child in children(field.type))
    return replace(field, id=0, type=with_children(field.type, parts))


def _placed(fields: tuple[Field, ...], new: Field, after: str) -> tuple[Field, ...]:
    if after == FIRST:
        return (new, *fields)
    if after == LAST:
        return (*fields, new)
    names = [field.name for field in fields]
    if after not in names:
        raise InvalidSchema(f"there is no column {after!r} to be behind: there are {', '.join(names)}")
    place = names.index(after) + 1
    return (*fields[:place], new, *fields[place:])


def _of(fields: tuple[Field, ...], name: str, path: str) -> Field:
    for field in fields:
        if field.name == name:
            return field
    raise InvalidSchema(f"there is no column {path!r}: there are {', '.join(where for where, _ in walk(fields))}")


def _at(fields: tuple[Field, ...], path: str, change: Callable[[Field], Field]) -> tuple[Field, ...]:
    """The same fields with the one at a dotted path changed."""
    name, _, rest = path.partition(".")
    old_field = _of(fields, name, path)
    if rest:
        new = replace(old_field, type=with_children(old_field.type, _at(children(old_field.type), rest, change)))
    else:
        new = change(old_field)
    return tuple(new if field is old_field else field for field in fields)


def _changed_struct(field: Field, path: str, change: Callable[[tuple[Field, ...]], tuple[Field, ...]]) -> Field:
    if not isinstance(field.type, Struct):
        raise InvalidSchema(f"{path!r} is {field.type} and no struct: it stays as it is")
    return replace(field, type=Struct(change(field.type.fields)))


def _merged(old: tuple[Field, ...], wanted: tuple[Field, ...], stay: tuple[str, ...] = ()) -> tuple[Field, ...]:
    """`stay`: the fields whose type never changes, as the key is hashed of it."""
    by_name = {field.name: field for field in wanted}
    kept = tuple(
        _merged_field(field, by_name[field.name], may_widen=field.name not in stay) if field.name in by_name else field
        for field in old
    )
    names = {field.name for field in old}
    return (*kept, *(replace(_without_ids(field), nullable=True) for field in wanted if field.name not in names))


def _merged_field(old: Field, wanted: Field, *, may_widen: bool) -> Field:
    kind = old.type
    if type(old.type) is type(wanted.type) and children(old.type):
        stay = ("key",) if isinstance(old.type, Map) else ()
        kind = with_children(old.type, _merged(children(old.type), children(wanted.type), stay))
    elif (may_widen and is_widened(old.type, wanted.type)) or not is_cast(
        arrow_type(wanted.type), arrow_type(old.type)
    ):
        kind = wanted.type  # of which check_evolution may say that it cannot be
    return replace(old, type=kind)
