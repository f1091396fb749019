"""An invariant that does not hold: which, and what was seen."""

from __future__ import annotations


class Violation(AssertionError):
    """`rule` is a number of docs/spec/invariants.md ("V5")."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def hold(condition: bool, rule: str, what: str) -> None:
    if not condition:
        raise Violation(rule, what)
