"""All rules, and the mutants of each world that looks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tests.rules import (
    Mutant,
    Patches,
    Rule,
    invariants,
    metadata,
    producing,
    product,
    replication,
    spark,
    storage,
    transactions,
)

SECTIONS = {
    module.__name__.rpartition(".")[2]: module.SECTIONS
    for module in (invariants, replication, producing, storage, transactions, metadata, spark, product)
}
"""By area."""

RULES: dict[str, Rule] = {
    rule.id: rule for sections in SECTIONS.values() for section in sections for rule in section.rules
}
WRONG: dict[str, Mutant] = {mutant.name: mutant for rule in RULES.values() for mutant in rule.wrong}

Table = dict[str, Callable[[], Patches]]

SIMULATION: Table = {name: each.simulation for name, each in WRONG.items() if each.simulation}
HISTORIES: Table = {name: each.histories for name, each in WRONG.items() if each.histories}
QUORUM: Table = {name: each.quorum for name, each in WRONG.items() if each.quorum}
SMALL_MODEL: Table = {name: each.small_model for name, each in WRONG.items() if each.small_model}


def named(text: str, table: Collection[str] = SIMULATION.keys()) -> list[str]:
    """The mutants of `table` meant by `text`: all, a number, or the beginning of a name. Raises SystemExit for none."""
    found = [name for name in table if text in ("all", name, name.split()[0]) or name.startswith(text)]
    if not found:
        raise SystemExit(f"there is no mutant {text!r}; there are: " + "; ".join(table))
    return found
