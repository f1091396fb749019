"""Which proofs of a rule fail under which of its wrong forms: a proof that fails under none may say less than it seems.

    python -m tools.bites            # all rules with wrong forms: some minutes of CPU time
    python -m tools.bites Q1 CO.3    # these rules

Only unit tests and scenarios are run. A wrong form is a patch of the product, so it works in a unit test, too, where
that test goes through the patched code. A wrong form that no unit proof notices is not a fault by itself: the search
that looks for it finds it (docs/spec/wrong-rules.md). A proof that notices no form at all is worth a look.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.rules import Mutant, Patches, Rule, mutated
from tests.rules.table import RULES
from tools.rules import Proof, proofs

MOST_S = 120.0


def forms_of(mutant: Mutant) -> Callable[[], Patches] | None:
    """The patches of a wrong rule, of the first world that looks for it."""
    return mutant.small_model or mutant.histories or mutant.quorum or mutant.simulation


def node_of(proof: Proof) -> str:
    """The proof as pytest selects it. A scenario is selected with its file."""
    is_test = proof.test and proof.module.endswith(".py")
    return f"{proof.module}::{proof.test}" if is_test else proof.module


class _Failed:
    """A plugin of pytest that notes the failed tests."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.nodes.add(report.nodeid)


def _failed(nodes: Sequence[str], make: Callable[[], Patches] | None) -> set[str]:
    plugin = _Failed()
    arguments = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=60", *nodes]
    with contextlib.redirect_stdout(io.StringIO()), mutated(make):
        pytest.main(arguments, plugins=[plugin])
    return plugin.nodes


def failed_under(nodes: Sequence[str], make: Callable[[], Patches] | None) -> set[str] | None:
    """The tests of `nodes` that fail under the wrong form, by their ids, in a process of its own. None: it took too
    long."""
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        try:
            return pool.apply_async(_failed, (nodes, make)).get(MOST_S)
        except multiprocessing.TimeoutError:
            return None


def is_of(node: str, proof: Proof) -> bool:
    """Whether a test is part of a proof."""
    return node.startswith(proof.module) and (not proof.test or proof.test in node)


def look_at(rule: Rule) -> None:
    """Print what the unit proofs of a rule notice."""
    units = [proof for proof in proofs().get(rule.id, []) if proof.layer == "unit" and not proof.is_long]
    if not units:
        return
    nodes = sorted({node_of(proof) for proof in units})
    if before := failed_under(nodes, None):
        print(f"{rule.id}: fails without a wrong form: {', '.join(sorted(before))}")
        return
    noticed: dict[Proof, list[str]] = {proof: [] for proof in units}
    for mutant in rule.wrong:
        failed = failed_under(nodes, forms_of(mutant))
        for proof in units:
            if failed is None or any(is_of(node, proof) for node in failed):
                noticed[proof].append(mutant.name)
    for proof, names in noticed.items():
        verdict = f"{len(names)} of {len(rule.wrong)} wrong forms" if names else "NO WRONG FORM"
        print(f"{rule.id:8} {verdict:22} {proof}", flush=True)


def main() -> int:
    """Print a line for each unit proof of each rule that has wrong forms."""
    os.environ.setdefault("PYTHONHASHSEED", "0")
    names = sys.argv[1:] or list(RULES)
    for name in names:
        if RULES[name].wrong:
            look_at(RULES[name])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
