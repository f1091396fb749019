"""The part of the broker's configuration that the replication cores use, and the bounds that are their own."""

from __future__ import annotations

from dataclasses import dataclass

from minilog.limits import MAX_KEEPALIVE_MS

LEAST_KEEPALIVE_MS = 100.0  # the shortest interval of signs of life for which the other side may ask


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """The settings of replication. The first block is configurable (settings.md). The second block is not (limits.md).
    There a comment has the reason of each value."""

    replica_lag_time_max_ms: float = 10_000.0
    replica_lag_max_records: int | None = None
    replica_fetch_max_bytes: int = 16 << 20  # a session's credit
    session_keepalive_ms: float = 1_000.0
    follower_replication_throttled_rate_bytes: int | None = None  # a second, for added replicas. None: no limit

    message_bytes: int = 4 << 20  # waiting runs go together, because a message of any size costs 0.3 ms of CPU
    scanning_work: int = 500  # of one message, for conditions and columns: some milliseconds (sessions/scanner.py)
    short_scanning_work: int = 50  # after a message with more work the next one waits for its turn of the loop
    news_interval_ms: float = 5.0  # the least time between two wake-ups of a waiting session for news without records
    consumer_silence_ms: float = 30_000.0  # a consumer is a user's program, which may pause longer than a broker
    retry_pause_ms: float = 50.0  # after an answer that asks to retry: an election is a few of these
    corrupt_pause_ms: float = 200.0  # before a follower asks for a corrupt batch again
    no_space_pause_ms: float = 1_000.0  # before a full disk is tried again
    reopen_min_ms: float = 20.0  # the pause before a broken session is opened again; it doubles each time ...
    reopen_max_ms: float = 500.0  # ... up to this (gRPC's own back-off is bounded to the same)
    proposal_retry_ms: float = 100.0  # the leader sends a proposal without an answer again after this time
    markers_timeout_ms: float = 10_000.0  # the coordinator asks again, and waiting calls must not pile up
    refused_joiner_pause_ms: float = 1_000.0  # before a refused joiner is proposed again

    def client_keepalive_ms(self, asked_ms: int) -> float:
        """The interval of signs of life to a client: the one that the client asks for, within bounds. For 0 it is the
        brokers' own. With a longer interval than it asked for, a client would drop every idle stream."""
        if not asked_ms:
            return self.session_keepalive_ms
        return min(max(float(asked_ms), min(self.session_keepalive_ms, LEAST_KEEPALIVE_MS)), MAX_KEEPALIVE_MS)

    def peer_keepalive_ms(self, asked_ms: int) -> float:
        """The interval of signs of life to a follower: the follower's own, and at most this broker's. A follower of an
        older version does not name one, and may drop a stream that is silent for half a second."""
        return min(self.session_keepalive_ms, max(float(asked_ms), LEAST_KEEPALIVE_MS))

    @property
    def silence_ms(self) -> float:
        """The silence after which a broker drops a stream from another broker."""
        return 5 * self.session_keepalive_ms

    @property
    def shortest_timeout_ms(self) -> float:
        """The shortest time-out by which this broker judges others."""
        return min(self.silence_ms, self.replica_lag_time_max_ms)
