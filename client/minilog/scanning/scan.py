"""What the user sees of a bounded read: `minilog.scan`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minilog.config import parse_config
from minilog.errors import InvalidArgument
from minilog.scanning.explain import Explanation, explain
from minilog.scanning.latest import LatestRead
from minilog.scanning.places import Places
from minilog.scanning.plan import checked_partitions
from minilog.scanning.planned import ScanPlan, ScanRequest, Travelled
from minilog.scanning.reading import Reader
from minilog.scanning.shape import ScanShape
from minilog.typed.conditions.expressions import Condition

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from minilog.client_config import ClientConfig


class Scan:
    """A bounded, lazy and repeatable read of one topic; `minilog.scan` makes one.

    Nothing is read before a method asks for rows. The first one that does, or `schema`, or `explain`, fixes what is
    read: the topic by its id, the version of its schema, and offsets. From then on each read gives the same rows.
    Where the log does not hold them any more, it raises OffsetOutOfRange. Rows of a partition come in the order of
    their offsets, unless the keys of view="latest" do not fit into `latest.memory.bytes`. Partitions are read at the
    same time. Whatever takes Arrow by `__arrow_c_stream__` (pyarrow.table,
    polars, DuckDB, pandas) takes a scan as it is. Threads may share one.

    Each method raises MinilogError: InvalidArgument for columns, a condition or a place that the topic does not have,
    UnknownTopicOrPartition, TimedOut, and what `Consumer.poll_arrow` raises.
    """

    def __init__(self, wanted: ScanRequest, config: ClientConfig, fixed: _Fixed | None = None) -> None:
        """For `minilog.scan`."""
        self._wanted = wanted
        self._config = config
        self._fixed = _Fixed() if fixed is None else fixed

    @property
    def schema(self) -> pa.Schema:
        """Of the rows. Fixes what is read."""
        return self._planned()[1].schema

    def to_arrow(self) -> pa.Table:
        """All rows, partition by partition."""
        shape, parts = self._planned()[1], dict[int, list[pa.RecordBatch]]()
        for partition, rows in self._read():
            parts.setdefault(partition, []).append(rows)
        batches = [rows for partition in sorted(parts) for rows in parts[partition]]
        return pa.Table.from_batches(batches, schema=shape.schema)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rows as they come, in bounded memory: partitions mixed. Close the reader, or read it to its end."""
        return pa.RecordBatchReader.from_batches(self.schema, (rows for _, rows in self._read()))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A new read, as the Arrow C stream interface has it."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows; `options` are those of pyarrow.Table.to_pandas."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows. Needs polars. A lazy frame that reads what its query needs: minilog.polars.scan_minilog."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A relation of `connection`, or of DuckDB's default one, that reads the rows anew for each query, in bounded
        memory. Needs DuckDB. A query in SQL may name a scan as it is: duckdb.sql("select ... from a_scan")."""
        import duckdb

        return (duckdb.connect(":default:") if connection is None else connection).from_arrow(self)

    def count(self) -> int:
        """How many rows there are. Only the columns of the condition travel, and without a condition the headers of
        batches alone. Of a topic without a schema whole batches travel for a condition on keys, values or time
        stamps. Rows that delete their key count with `deletes` alone. Of the newest rows of keys, the key columns
        travel, too."""
        plan, _ = self._planned()
        if self._wanted.is_latest and self._wanted.where is None:
            return self._count_keys(plan)
        narrow = replace(self._wanted, columns=(), metadata=False)
        shape = narrow.shape(plan.schema)
        return sum(rows.num_rows for _, rows in Scan(narrow, self._config, self._fixed)._read_as(shape))

    def explain(self, *, analyze: bool = False) -> Explanation:
        """What is read, what travels, and what replicas leave out by which statistics; print it. Fixes what is read.
        With `analyze` the scan is run for it, and what came is counted."""
        plan, shape = self._planned()
        travelled = Travelled() if analyze else None
        if travelled is not None:
            for _ in self._read_as(shape, travelled):
                pass
        return explain(self._wanted, plan, shape, travelled)

    def __repr__(self) -> str:
        where = "" if self._wanted.where is None else f" where {self._wanted.where}"
        return f"<Scan of {self._wanted.topic!r}{where}>"

    # -- inside

    def narrowed(self, columns: Sequence[str], conditions: Sequence[Condition]) -> Scan:
        """Some columns of the same rows, of those for which the conditions are true, too: for engines that push down
        what they need."""
        given = [] if self._wanted.where is None else [f"({self._wanted.where})"]
        where = " and ".join([*given, *map(str, conditions)]) or None
        wanted = replace(self._wanted, columns=tuple(columns), where=where, metadata=False)
        return Scan(wanted, self._config, self._fixed)

    def accepts(self, condition: Condition) -> bool:
        """Whether the condition can be one of this scan: the topic has its columns, and they may be compared so."""
        plan, _ = self._planned()
        if plan.schema is None:
            return False
        try:
            replace(self._wanted, where=str(condition), columns=None).shape(plan.schema)
        except InvalidArgument:
            return False
        return True

    def _planned(self) -> tuple[ScanPlan, ScanShape]:
        with self._fixed.lock:
            if self._fixed.plan is None:
                reader = Reader(self._config)
                try:
                    self._fixed.plan = reader.plan(self._wanted)
                finally:
                    reader.close()
            plan = self._fixed.plan
        return plan, self._wanted.shape(plan.schema)

    def _read(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._read_as(self._planned()[1])

    def _read_as(self, shape: ScanShape, travelled: Travelled | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        plan, reader = self._planned()[0], Reader(self._config)
        try:
            if self._wanted.is_latest:
                found = LatestRead(
                    reader.decoded, reader.clean_to, plan, self._config.latest_memory_bytes, travelled
                ).rows(shape)
            else:
                found = reader.rows(plan, shape, travelled)
            for partition, rows in found:
                yield partition.partition, rows
        finally:
            reader.close()

    def _latest(self, reader: Reader, plan: ScanPlan, travelled: Travelled | None = None) -> LatestRead:
        return LatestRead(reader.decoded, reader.clean_to, plan, self._config.latest_memory_bytes, travelled)

    def _count_keys(self, plan: ScanPlan) -> int:
        reader = Reader(self._config)
        try:
            return self._latest(reader, plan).count()
        finally:
            reader.close()


class _Fixed:
    """What scans of the same rows share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.plan: ScanPlan | None = None


def scan(
    topic: str,
    columns: Sequence[str] | None = None,
    where: str | Condition | None = None,
    *,
    start: Places = None,
    end: Places = None,
    partitions: Iterable[int] | None = None,
    metadata: bool = False,
    deletes: bool = False,
    view: str | None = None,
    config: Mapping[str, object] | None = None,
) -> Scan:
    """A bounded read of a topic, as Arrow, pandas, polars or DuckDB have it.

        late = minilog.scan("flights", ["carrier", "delay"], minilog.col("delay") > 60, config=settings)
        print(late.count(), late.to_pandas())

    `columns` are those of the topic's schema, in this order; None: all. A topic without a schema has `key` and `value`.
    Each topic also has _topic, _partition, _offset, _timestamp, _key and _headers: name them among the columns, or
    get the first five with `metadata`. `where`: the condition on a row, as SQL (see Consumer.poll_arrow) or made of
    `minilog.col`. It compares the columns of the topic's schema, and of a topic without a schema key, value and the
    first five. Only the columns that the scan needs travel, and no batch whose statistics rule the condition out. A
    topic without a schema has no statistics: its records travel, and this program compares them.

    `start` (inclusive) and `end` (exclusive): an offset, "earliest", "latest", "@" and milliseconds since 1970, or a
    datetime with its zone, which means the first record at least that young; or a dict of them by partition. Without
    them all that may be read: below the last stable offset, or, under isolation.level=read_uncommitted, below the high
    watermark. `partitions`: by number; None: all. `config`: the settings of a client; None: those of the environment.

    `deletes`: also the rows that delete their key, of a topic with a schema, whatever `where` says. They have null in
    all columns but those of the key. Then there is a last column `_deleted`. Without `deletes` such rows are left out.

    `view="latest"`: the newest row of each key alone, as a table. A key whose newest row deletes it has no row, and a
    row without a key is not in the table: a warning in the log counts them. `columns` and `where` are for the rows of
    the table. With `end` it is the table as of that place. Each partition has a table of its own: so all rows of a key
    must be in one, as producers write them. `latest.memory.bytes` bounds the keys in memory.

    Reads nothing yet. Raises InvalidArgument for what cannot be meant, InvalidConfig.
    """
    if isinstance(columns, str):
        raise InvalidArgument(f"columns takes a list of names: give [{columns!r}]")
    if not isinstance(where, str | Condition | None):
        raise InvalidArgument(f"{where!r} is no condition: give text, or compare minilog.col(...)")
    if view not in (None, "latest"):
        raise InvalidArgument(f"there is no view {view!r}: give 'latest' for the newest row of each key, or none")
    if view is not None and deletes:
        raise InvalidArgument("view='latest' leaves deletions and deleted keys out: give it without deletes")
    wanted = ScanRequest(
        topic,
        None if columns is None else tuple(columns),
        None if where is None else str(where),
        start,
        end,
        checked_partitions(partitions),
        metadata,
        deletes,
        view == "latest",
    )
    return Scan(wanted, parse_config(config or {}))
