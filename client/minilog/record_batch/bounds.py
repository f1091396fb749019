"""The bounds of a batch. The configuration of topics uses this module, so it loads no Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog import compute as pc
from minilog.errors import InvalidTimestamp

if TYPE_CHECKING:
    import pyarrow as pa

    from minilog.record_batch.header import BatchHeader

# What one batch may have, on the wire and when its buffers are decompressed, whatever max.message.bytes says: no honest
# batch comes near, and Arrow's int32 offsets hold it.
MAX_BATCH_BYTES = 2**28
# The highest max.message.bytes of any topic, and so what readers take, who do not know the topic's: what is larger does
# not fit a frame of gRPC, and is not sent.
MAX_MESSAGE_BYTES = 2**26
# So the bitmap of deletions and the statistics of 256 columns fit into an extension of 65,535 bytes.
MAX_ROWS_WITH_DELETIONS = 2**18


@dataclass(frozen=True, slots=True)
class TimestampBounds:
    """The bounds of the time stamps that a topic takes now, in microseconds since 1970, both included (Kafka's
    KIP-937). None means no bound. `now_us` is the leader's clock."""

    now_us: int
    oldest_us: int | None = None
    newest_us: int | None = None

    def check(self, header: BatchHeader, timestamps: pa.Array) -> None:
        """Raises InvalidTimestamp where a time stamp of a batch, whose header was checked, is out of bounds."""
        highest_us = header.max_timestamp_us
        if self.newest_us is not None and highest_us > self.newest_us:
            raise InvalidTimestamp(
                f"a record has the time stamp {highest_us // 1000} (ms since 1970), which is "
                f"{(highest_us - self.now_us) // 1000} ms ahead of the leader's clock, and the topic allows "
                f"message.timestamp.after.max.ms={(self.newest_us - self.now_us) // 1000}: give time stamps in "
                "milliseconds, or raise that setting"
            )
        if self.oldest_us is not None and (lowest_us := pc.min(timestamps).value) < self.oldest_us:
            raise InvalidTimestamp(
                f"a record has the time stamp {lowest_us // 1000} (ms since 1970), which is "
                f"{(self.now_us - lowest_us) // 1000} ms behind the leader's clock, and the topic allows "
                f"message.timestamp.before.max.ms={(self.now_us - self.oldest_us) // 1000}: leave the time stamp out, "
                "or raise that setting"
            )
