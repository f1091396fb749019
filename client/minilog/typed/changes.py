"""What became of one version of a schema in another, in words for people: by field id, nested fields too. Pure."""

from __future__ import annotations

from minilog.typed.fields import Field, Struct, children, walk
from minilog.typed.topic_schema import TopicSchema


def changes_between(old: TopicSchema, new: TopicSchema) -> list[str]:
    """One phrase for each change; none where all is the same."""
    before = {field.id: (path, field) for path, field in walk(old.fields)}
    after = {field.id: (path, field) for path, field in walk(new.fields)}
    found = [
        *(f"dropped {path}" for number, (path, _) in before.items() if number not in after),
        *(f"added {path} {field.type}" for number, (path, field) in after.items() if number not in before),
    ]
    for number, (path, field) in after.items():
        if number in before:
            found += _of_field(before[number][1], field, before[number][0], path)
    if new.timestamp_column is not None and old.timestamp_column is None:
        found.append(f"{new.timestamp_column} is the time stamp")
    return [*found, *_moved(old.fields, new.fields, "")]


def _of_field(old: Field, new: Field, former: str, path: str) -> list[str]:
    found = []
    if old.name != new.name:
        found.append(f"renamed {former} to {new.name}")
    if not children(new.type) and old.type != new.type:
        found.append(f"widened {path} from {old.type} to {new.type}")
    if new.nullable and not old.nullable:
        found.append(f"{path} may be null")
    return found


def _moved(old: tuple[Field, ...], new: tuple[Field, ...], path: str) -> list[str]:
    """Of columns, or of the fields of a struct: those that stayed stand in another order."""
    before, after = {each.id: each for each in old}, {each.id for each in new}
    stayed = [each for each in new if each.id in before]
    found = []
    if [each.id for each in stayed] != [each.id for each in old if each.id in after]:
        found.append(f"the order{f' in {path}' if path else ''} is {', '.join(each.name for each in new)}")
    for each in stayed:
        here = f"{path}.{each.name}" if path else each.name
        kinds = before[each.id].type, each.type
        if isinstance(kinds[0], Struct) and isinstance(kinds[1], Struct):
            found += _moved(kinds[0].fields, kinds[1].fields, here)
    return found
