"""Wrong rules of the scrub."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.record_batch.header import iterate_headers
from minilog_broker.replication import replica
from minilog_broker.replication.replica_effects import RecoverLog
from minilog_broker.replication.rules.scrub import Comparison
from minilog_broker.server.shells import scrub
from minilog_broker.storage import range_digest
from minilog_broker.storage.log import Log
from tests.simulation.mutants.replication import Patches


def checksums_are_not_looked_at() -> Patches:
    """The digest of a range does not check its checksums, and a copy that differs from most is not set aside either."""

    def check_run(log: Log, run: bytes, offset: int) -> int:
        headers = list(iterate_headers(run))
        return headers[-1][1].next_offset

    return [(range_digest, "_check_run", check_run), *copies_are_not_compared()]


def copies_are_not_compared() -> Patches:
    """Copies never differ, whatever their digests."""
    return [(scrub, "compare_copies", lambda digests, replicas: Comparison())]


def the_leader_is_right() -> Patches:
    """A copy that differs from the leader's is set aside, whatever the others have."""

    def mutant(digests: Mapping[int, bytes], replicas: int) -> Comparison:
        others = list(digests.items())[1:]  # the leader's is the first
        own = next(iter(digests.values()), b"")
        return Comparison(tuple(broker_id for broker_id, digest in others if digest != own))

    return [(scrub, "compare_copies", mutant)]


def what_differs_is_not_cut() -> Patches:
    """A copy that was set aside because it differs is read again: its checksums are right."""
    return [(replica, "RecoverLog", lambda key, config, *_: RecoverLog(key, config))]
