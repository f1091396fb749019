"""What is said of records that were deleted in some partitions and not in others."""

from __future__ import annotations

from minilog.admin.records_deletion import RecordsDeletion
from minilog.errors import OffsetOutOfRange, TimedOut
from minilog.net.metadata_cache import MetadataCache
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, Brokers

FIRST, SECOND, THIRD = (TopicPartition(TOPIC, number) for number in range(3))


def deletion() -> RecordsDeletion:
    cache = MetadataCache()
    cache.apply(Brokers(partitions=3).metadata())
    return RecordsDeletion(cache, {FIRST: 5, SECOND: 7, THIRD: 9})


def test_an_error_says_which_were_trimmed_and_which_were_not() -> None:
    """Once: it said that nothing was deleted, of the first that failed, whatever had happened to the others."""
    found = deletion()
    found.low_watermarks[FIRST] = 5
    found.failures[SECOND] = OffsetOutOfRange("the log ends at 3")
    error = found.error()
    assert isinstance(error, OffsetOutOfRange)
    assert f"partition 1 of topic {TOPIC!r}: the log ends at 3" in str(error)
    assert f"partition 2 of topic {TOPIC!r}: nothing was deleted" in str(error)
    assert f"partition 0 of topic {TOPIC!r} starts at 5 now" in str(error)


def test_all_done_is_no_error() -> None:
    found = deletion()
    found.low_watermarks |= {FIRST: 5, SECOND: 7, THIRD: 9}
    assert found.error() is None


def test_none_done_is_said_of_each() -> None:
    error = deletion().error()
    assert isinstance(error, TimedOut)
    assert str(error).count("nothing was deleted") == 3
