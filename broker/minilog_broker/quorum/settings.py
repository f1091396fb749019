"""What the quorum's core is told of the configuration, and the periods that are its own."""

from __future__ import annotations

from dataclasses import dataclass

SNAPSHOT_BYTES = 16 << 20  # a replay of so much takes a second or two; a cluster of 10,000 partitions is 1 MiB


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """The first block is configurable (settings.md). The second is not: a comment has the reason of each value."""

    election_timeout_ms: float = 300.0
    fetch_timeout_ms: float = 2_000.0

    jitter_ms: float = 50.0  # voters that lose the same leader at once stand one after another, a few round trips apart
    leader_word_ms: float = 50.0  # a lost leader that lives has so long to say so: a few round trips, or a busy moment
    begin_epoch_retry_ms: float = 100.0  # a voter that does not fetch yet is told again who leads
    disk_pause_ms: float = 10.0  # who would stand looks again whether the disk has done its work: a sync or two
    snapshot_pause_ms: float = 200.0  # a snapshot that could not be fetched is not asked for again in a spin
