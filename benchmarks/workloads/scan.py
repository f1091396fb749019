"""T20: `minilog.scan` of 2 of 20 columns into Arrow, against pyarrow's read of the same rows from a Parquet file.

Both lie on the same disk, and both are read from the page cache after the first turn. A Parquet file is compressed by
default (snappy), so a topic that is compressed (lz4) is measured, too. The sum of a column is compared each time.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import minilog
from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.workloads import Detail, Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS

ASKED = ("i3", "d2")
_CHUNK = 200_000
_PARQUET = "pyarrow, Parquet"


def _chunk(number: int, rows: int) -> pa.Table:
    """Columns as rows of facts have them: ids, measures, names of few kinds, small numbers."""
    random = np.random.default_rng(number)
    columns: dict[str, object] = {f"i{each}": random.integers(0, 1_000_000, rows) for each in range(8)}
    columns |= {f"d{each}": random.integers(0, 100_000, rows) / 1_000 for each in range(6)}
    columns |= {f"s{each}": pa.array(_names(random.integers(0, 500, rows))) for each in range(3)}
    columns |= {f"n{each}": random.integers(0, 1_000, rows).astype("int32") for each in range(3)}
    return pa.table(columns)


def _names(numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> pa.Array:
    return pa.array([f"name-{number}" for number in range(500)]).take(pa.array(numbers))


@dataclass(frozen=True, eq=False)
class Rows:
    """So many rows, made chunk by chunk, always the same; written when they are first asked for."""

    count: int
    _written: dict[str, str] = field(default_factory=dict)

    def chunks(self) -> Iterator[pa.Table]:
        for start in range(0, self.count, _CHUNK):
            yield _chunk(start, min(_CHUNK, self.count - start))

    def file(self, arena: Arena) -> pathlib.Path:
        path = arena.directory / f"wide-{self.count}.parquet"
        if not path.exists():
            with pq.ParquetWriter(path, _chunk(0, 1).schema) as writer:
                for each in self.chunks():
                    writer.write_table(each)
        return path

    def topic(self, arena: Arena, compression: str) -> str:
        if compression not in self._written:
            name = self._written[compression] = arena.name("wide")
            arena.minilog.create(name, PARTITIONS, is_synced=False, schema=_chunk(0, 1).schema)
            settings = {"bootstrap.servers": arena.minilog.servers, "compression.type": compression}
            with minilog.Producer(settings) as producer:
                for each in self.chunks():
                    producer.send_batch(name, each)
        return self._written[compression]

    def checksum(self, table: pa.Table, where: str) -> None:
        """Raises WrongRecords where it is not all rows."""
        check_records(table.num_rows, self.count, where)
        if ASKED[0] not in self._written:
            self._written[ASKED[0]] = str(sum(pc.sum(each.column(ASKED[0])).as_py() for each in self.chunks()))
        check_records(
            pc.sum(table.column(ASKED[0])).as_py(), int(self._written[ASKED[0]]), f"column {ASKED[0]} of {where}"
        )


def _measured(arena: Arena, rows: Rows, read: Callable[[], pa.Table], where: str, *, is_ours: bool) -> Run:
    tables: list[pa.Table] = []
    cost = arena.measure(arena.minilog if is_ours else None, lambda: tables.append(read()))
    rows.checksum(tables.pop(), where)
    return Run(
        rows.count / cost.wall_s, cost, details={"cpu_s_per_million_rows": cost.total_cpu_s / (rows.count / 1e6)}
    )


def _minilog(rows: Rows, compression: str) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        topic, settings = rows.topic(arena, compression), {"bootstrap.servers": arena.minilog.servers}

        def read() -> pa.Table:
            return minilog.scan(topic, list(ASKED), config=settings).to_arrow()

        return lambda _: _measured(arena, rows, read, topic, is_ours=True)

    return prepare


def _parquet(rows: Rows) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        path = rows.file(arena)
        return lambda _: _measured(
            arena, rows, lambda: pq.read_table(path, columns=list(ASKED)), path.name, is_ours=False
        )

    return prepare


def scan_columns(count: int) -> Workload:
    """T20 of the reader of rows."""
    rows = Rows(count)
    return Workload(
        Target("T20-scan", "scan of 2 of 20 columns into Arrow, against Parquet", "rows/s", Better.HIGHER, 0.7),
        "minilog.scan",
        _PARQUET,
        {
            "minilog.scan": _minilog(rows, "none"),
            "minilog.scan, lz4": _minilog(rows, "lz4"),
            _PARQUET: _parquet(rows),
        },
        details=(
            Detail(
                Target("T20-scan-cpu", "the same, CPU of a million rows", "s", Better.LOWER, None),
                "cpu_s_per_million_rows",
            ),
        ),
    )
