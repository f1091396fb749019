"""The rule of the scrub: it finds the copies whose records differ from most (docs/spec/replication.md § Scrub).

    the digests of the copies that answered                           the rule
    all are the same                                                  nothing to do
    more than half of all replicas have one, others another           the others differ: each of them is set aside
    they differ, and no digest is that of more than half              undecided

Replicas that did not answer count among all replicas. So a copy is set aside only if a majority with the same records
is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. `differing` are the brokers whose copies are to be set aside. `is_undecided`: copies
    differ, and no majority of them agrees."""

    differing: tuple[int, ...] = ()
    is_undecided: bool = False


def compare_copies(digests: Mapping[int, bytes], replicas: int) -> Comparison:
    """Compare the digests of the copies that answered, by broker. `replicas` is the number of all replicas."""
    if len(set(digests.values())) <= 1:
        return Comparison()
    ((digest, copies),) = Counter(digests.values()).most_common(1)
    if 2 * copies <= replicas:
        return Comparison(is_undecided=True)
    return Comparison(tuple(sorted(broker_id for broker_id, other in digests.items() if other != digest)))
