"""What the quorum's core needs of the configuration, and the periods that are its own."""

from __future__ import annotations

from dataclasses import dataclass

SNAPSHOT_BYTES = 16 << 20  # a replay of so much takes a second or two; a cluster of 10,000 partitions is 1 MiB


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """The first block is configurable (settings.md). The second is not (limits.md). Comments have reasons."""

    election_timeout_ms: float = 300.0
    fetch_timeout_ms: float = 2_000.0

    jitter_ms: float = 50.0  # voters that lose the same leader at once stand one after another, a few round trips apart
    leader_word_ms: float = 50.0  # so long a lost leader has to say that it lives: a few round trips
    begin_epoch_retry_ms: float = 100.0  # after it the leader tells a voter again that does not fetch yet
    disk_pause_ms: float = (
        10.0  # a node that wants to stand looks again after it whether its disk is done: a sync or two
    )
    snapshot_pause_ms: float = 200.0  # between two attempts to fetch a snapshot
