"""The changes of a schema, by the path that programs import (Admin.evolve_schema). Pure."""

from __future__ import annotations

from minilog.typed.schema.evolution import (
    FIRST,
    LAST,
    add_column,
    as_next_version,
    check_evolution,
    drop_column,
    is_widened,
    loosen_column,
    merged,
    move_column,
    proposal,
    rejoined,
    rename_column,
    widen_column,
    widened,
)

__all__ = [
    "FIRST",
    "LAST",
    "add_column",
    "as_next_version",
    "check_evolution",
    "drop_column",
    "is_widened",
    "loosen_column",
    "merged",
    "move_column",
    "proposal",
    "rejoined",
    "rename_column",
    "widen_column",
    "widened",
]
