"""An invariant that does not hold: which, where, and what was seen."""

from __future__ import annotations

from minilog.partition_key import PartitionKey


class Violation(AssertionError):
    """`rule` is a number of docs/spec/invariants.md ("V5"); `nodes`, `key` and `epoch` are what it is about."""

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        nodes: tuple[int, ...] = (),
        key: PartitionKey | None = None,
        epoch: int | None = None,
    ) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.nodes = nodes
        self.key = key
        self.epoch = epoch


def hold(condition: bool, rule: str, what: str) -> None:
    if not condition:
        raise Violation(rule, what)
