"""At which offsets there are so many bytes: from the index alone, right to about an index interval or one batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minilog.record_batch.header import decode_header
from minilog_broker.storage.log import Log
from tests.unit.storage.logs import SETTINGS, batch, fill, open_log, run_of
from tests.world.disk import MemoryDisk

EVERYTHING = 2**63 - 1


def log_of(sizes: list[tuple[int, int]]) -> tuple[Log, list[bytes]]:
    """A log of batches of (records, payload bytes), in many segments, each with several index entries."""
    log = open_log(MemoryDisk())
    batches: list[bytes] = []
    for records, payload_bytes in sizes:
        batches.append(batch(log.log_end_offset, records=records, payload=bytes(payload_bytes)))
        log.append(run_of(batches[-1:]))
    log.flush()
    return log, batches


def bytes_between(batches: list[bytes], from_offset: int, to_offset: int) -> int:
    """Of all batches that have a record in [from, to)."""
    headers = map(decode_header, batches)
    return sum(each.length for each in headers if each.next_offset > from_offset and each.base_offset < to_offset)


def test_a_batch_boundary_behind_each_size() -> None:
    log, batches = log_of([(10, 200)] * 12)  # each has an index entry
    one = len(batches[0])
    assert log.offsets_at_sizes(20, [1, one, one + 1, 5 * one], log.log_end_offset) == [
        (30, one),
        (30, one),
        (40, 2 * one),
        (70, 5 * one),
    ]


def test_where_there_are_fewer_bytes_it_is_the_end() -> None:
    log, batches = log_of([(10, 200)] * 12)
    one = len(batches[0])
    assert log.offsets_at_sizes(20, [EVERYTHING], 120) == [(120, 10 * one)]
    assert log.offsets_at_sizes(20, [5 * one, EVERYTHING], 40) == [(40, 2 * one)] * 2, (
        "what is not committed is not told"
    )


def test_of_a_batch_that_is_begun_what_is_left_counts_in_proportion() -> None:
    log, batches = log_of([(10, 200)] * 12)
    one = len(batches[0])
    assert log.offsets_at_sizes(25, [1, EVERYTHING], 120) == [(30, one - one // 2), (120, 10 * one - one // 2)]


def test_nothing_is_nothing() -> None:
    log, _ = log_of([(10, 200)] * 2)
    assert log.offsets_at_sizes(20, [1, EVERYTHING], 20) == [(20, 0)] * 2
    assert log.offsets_at_sizes(77, [1], 20) == [(20, 0)]
    assert open_log(MemoryDisk()).offsets_at_sizes(0, [1], 0) == [(0, 0)]


def test_expired_segments_are_not_counted() -> None:
    log, batches = log_of([(10, 200)] * 12)
    log.set_high_watermark(120)
    log.advance_log_start(60)
    assert log.offsets_at_sizes(0, [EVERYTHING], 120) == [(120, 6 * len(batches[0]))]


def test_a_log_opened_again_tells_the_same() -> None:
    files = MemoryDisk()
    log = open_log(files)
    fill(log, 40, records=3, payload=bytes(70))
    asked = (7, [100, 1000, 3000, EVERYTHING], log.log_end_offset)
    told = log.offsets_at_sizes(*asked)
    log.close(clean=True)
    assert open_log(files, unclean=False, create=False).offsets_at_sizes(*asked) == told


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 600)), min_size=1, max_size=60),
    st.data(),
)
def test_sizes_are_right_to_an_index_interval_and_a_batch_at_either_end(
    sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    log, batches = log_of(sizes)
    end = data.draw(st.integers(1, log.log_end_offset))
    start = data.draw(st.integers(0, end - 1))
    asked = data.draw(st.lists(st.one_of(st.integers(1, 10_000), st.just(EVERYTHING)), max_size=5))
    slack = 2 * (SETTINGS.index_interval_bytes + max(map(len, batches)))
    for size, (offset, size_bytes) in zip(asked, log.offsets_at_sizes(start, asked, end), strict=True):
        assert start < offset <= end
        assert size_bytes >= size or offset == end
        assert abs(size_bytes - bytes_between(batches, start, offset)) <= slack  # of the first batch what is left
        assert size_bytes <= size + slack
