"""Which wrong forms of a rule its unit proofs find: a proof that finds none may prove nothing.

    python -m tools.wrong_forms HW.4      # each unit proof of the rule, with the wrong forms under which it fails
    python -m tools.wrong_forms           # the proofs of all rules that fail under no wrong form of theirs

The tests run in this process, under each wrong form in turn (tests/rules). A form may be of another part than the test:
of a client, or of a shell. So the list is to be read, and no test holds it.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.rules import Rule, mutated
from tests.rules.table import RULES
from tools.rules import ROOT, Proof, proofs, worlds_of

SEARCHES = ("histories", "small_model", "state_machine")
"""Modules that look for wrong rules themselves, or for long: they are left out."""
TIMEOUT_S = 20


class Failures:
    """A plugin of pytest: the tests that failed, without their parameters."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note it."""
        if report.failed:
            self.ids.add(report.nodeid.partition("[")[0])


def node_of(proof: Proof) -> str:
    """As pytest is asked for it."""
    return f"{proof.module}::{proof.test}" if proof.test else proof.module


def is_among(proof: Proof, failed: set[str]) -> bool:
    """Whether the proof, or a test in it, has failed."""
    return any(each == node_of(proof) or each.startswith(f"{node_of(proof)}::") for each in failed)


def unit_proofs(rule: Rule) -> list[Proof]:
    """Those that are functions, scenarios, or whole modules: a method of a class goes with its module."""
    found = [proof for proof in proofs().get(rule.id, []) if proof.layer == "unit" and not proof.is_long]
    found = [proof for proof in found if not any(word in proof.module for word in SEARCHES)]
    return [proof for proof in found if not proof.test or _is_on_top(proof)]


def _is_on_top(proof: Proof) -> bool:
    line = (ROOT / proof.module).read_text().splitlines()[proof.line - 1]
    return not line.startswith(" ")


def found_by(rule: Rule) -> dict[str, list[str]]:
    """The wrong forms under which each unit proof of a rule fails, by the proof's node."""
    tests, found = unit_proofs(rule), defaultdict[str, list[str]](list)
    for form in rule.wrong if tests else ():
        failed: set[str] = set()
        for world in worlds_of(form):
            failures = Failures()
            with contextlib.redirect_stdout(io.StringIO()), mutated(getattr(form, world)):
                options = ["-q", "--tb=no", "-p", "no:cacheprovider", f"--timeout={TIMEOUT_S}"]
                pytest.main([*options, *map(node_of, tests)], plugins=[failures])
            failed |= failures.ids
        for proof in tests:
            if is_among(proof, failed):
                found[node_of(proof)].append(form.name)
    return {node_of(proof): found[node_of(proof)] for proof in tests}


def lines(rules: list[Rule], *, silent_only: bool) -> Iterator[str]:
    """What the command prints."""
    for rule in rules:
        for node, forms in found_by(rule).items() if rule.wrong else ():
            if not (silent_only and forms):
                yield f"{rule.id}  {node}: {'; '.join(forms) or 'fails under no wrong form'}"


def main() -> int:
    wanted = [rule for rule in RULES.values() if rule.id in sys.argv[1:]] or list(RULES.values())
    for line in lines(wanted, silent_only=len(sys.argv) == 1):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
