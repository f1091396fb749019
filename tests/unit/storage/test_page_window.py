"""What leaves the page cache, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minilog_broker.storage.page_window import UNIT_BYTES, PageWindow


class Forgotten:
    """A file that remembers what it was told to let go."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def forget(self, begin: int, end: int) -> None:
        self.ranges.append((begin // UNIT_BYTES, end // UNIT_BYTES))


def test_the_oldest_goes_when_there_is_more_than_the_window_holds() -> None:
    one, other, window = Forgotten(), Forgotten(), PageWindow(3 * UNIT_BYTES)
    window.wrote(one, 0, 2 * UNIT_BYTES)
    window.wrote(other, 0, UNIT_BYTES)
    assert (one.ranges, other.ranges) == ([], [])
    window.wrote(other, UNIT_BYTES, UNIT_BYTES)
    assert (one.ranges, other.ranges) == ([(0, 2)], [])
    window.wrote(other, 2 * UNIT_BYTES, 3 * UNIT_BYTES)
    assert other.ranges == [(0, 1), (1, 2)], "in the order in which they were written; one write goes whole"


def test_small_writes_count_when_a_unit_is_full_and_its_last_part_stays() -> None:
    file, window = Forgotten(), PageWindow(UNIT_BYTES)
    for number in range(30):
        window.wrote(file, number * UNIT_BYTES // 8, UNIT_BYTES // 8)
    assert file.ranges == [(0, 1), (1, 2)]
    assert window.kept_bytes == UNIT_BYTES


def test_without_a_bound_the_kernel_decides() -> None:
    file, window = Forgotten(), PageWindow(None)
    window.wrote(file, 0, 100 * UNIT_BYTES)
    assert file.ranges == []
    assert window.kept_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3 * UNIT_BYTES)), max_size=60), st.integers(1, 8))
def test_forgotten_pages_were_written_once_and_the_rest_is_bounded(
    writes: list[tuple[int, int]], window_units: int
) -> None:
    files, ends, window = [Forgotten() for _ in range(3)], [0, 0, 0], PageWindow(window_units * UNIT_BYTES)
    for number, size in writes:
        window.wrote(files[number], ends[number], size)
        ends[number] += size
    assert window.kept_bytes <= window_units * UNIT_BYTES
    for file, end in zip(files, ends, strict=True):
        units = [unit for begin, stop in file.ranges for unit in range(begin, stop)]
        assert units == list(range(len(units))), "from the beginning, each once"
        assert len(units) * UNIT_BYTES <= end
    whole = sum(end // UNIT_BYTES for end in ends)
    assert window.kept_bytes // UNIT_BYTES + sum(stop - begin for file in files for begin, stop in file.ranges) <= whole
