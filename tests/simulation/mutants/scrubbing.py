"""Wrong rules of the scrub."""

from __future__ import annotations

from collections.abc import Mapping

from minilog_broker.replication import replica
from minilog_broker.replication.replica_effects import RecoverLog
from minilog_broker.replication.rules.scrub import Comparison
from minilog_broker.server.shells import scrub
from minilog_broker.storage import range_digest
from tests.rules import Patches


def checksums_are_not_looked_at() -> Patches:
    """The digest of a range does not check the checksums that it is made of."""
    return [(range_digest, "check_crc", lambda *_: None)]


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


def the_end_moves_on() -> Patches:
    """A round goes to the end that the partition has by now: it never ends where records come as fast as it reads."""
    return [(scrub, "_end_of_round", lambda at_begin, now: now.end_offset)]
