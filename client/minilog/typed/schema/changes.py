"""What became of one version of a schema in another, in words for people: by field id, nested fields too. Pure."""

from __future__ import annotations

from minilog.typed.schema.fields import Field, Struct, children, walk
from minilog.typed.schema.topic_schema import TopicSchema


def changes_between(old: TopicSchema, new: TopicSchema) -> list[str]:
    """One phrase for each change; none where all is the same."""
    before = {field.id: (path, field) for path, field in walk(old.fields)}
    after = {field.id: (path, field) for path, field in walk(new.fields)}
    changes = [
        *(f"dropped {path}" for number, (path, _) in before.items() if number not in after),
        *(f"added {path} {field.type}" for number, (path, field) in after.items() if number not in before),
    ]
    for number, (path, field) in after.items():
        if number in before:
            changes += _of_field(before[number][1], field, before[number][0], path)
    if new.timestamp_column is not None and old.timestamp_column is None:
        changes.append(f"{new.timestamp_column} is the time stamp")
    return [*changes, *_moved(old.fields, new.fields, "")]


def _of_field(old: Field, new: Field, former: str, path: str) -> list[str]:
    changes = []
    if old.name != new.name:
        changes.append(f"renamed {former} to {new.name}")
    if not children(new.type) and old.type != new.type:
        changes.append(f"widened {path} from {old.type} to {new.type}")
    if new.nullable and not old.nullable:
        changes.append(f"{path} may be null")
    if new.comment != old.comment:
        changes.append(f"{path} has another comment")
    return changes


def _moved(old: tuple[Field, ...], new: tuple[Field, ...], path: str) -> list[str]:
    """Of columns, or of the fields of a struct: those that stayed stand in another order."""
    before, after = {field.id: field for field in old}, {field.id for field in new}
    stayed = [field for field in new if field.id in before]
    changes = []
    if [field.id for field in stayed] != [field.id for field in old if field.id in after]:
        changes.append(f"the order{f' in {path}' if path else ''} is {', '.join(field.name for field in new)}")
    for field in stayed:
        here = f"{path}.{field.name}" if path else field.name
        kinds = before[field.id].type, field.type
        if isinstance(kinds[0], Struct) and isinstance(kinds[1], Struct):
            changes += _moved(kinds[0].fields, kinds[1].fields, here)
    return changes
