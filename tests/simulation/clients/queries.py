"""The streaming queries of a run, and who reads what they commit: V15 of Spark's sink, from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from minilog.types import Record
from tests.judges.violation import Violation
from tests.simulation.clients.committed_reading import read_committed
from tests.simulation.clients.spark_sink import TOPIC, SparkSink
from tests.simulation.clients.transaction_history import Copy, Generation, TransactionHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster


class Queries:
    """Each of the plan's. `is_marked`: whether the end of a producer is in the log of a partition."""

    def __init__(
        self, cluster: SimulatedCluster, workload: Workload, is_marked: Callable[[PartitionKey, int], bool]
    ) -> None:
        self._cluster = cluster
        self._workload = workload
        self._readers = 0
        self._keys = workload.keys_of_special(TOPIC) if cluster.plan.queries else {}
        self.history = TransactionHistory()
        self._is_marked = is_marked
        self._sinks: list[SparkSink] = []
        for name in cluster.plan.queries:
            self._begin(name)

    def _begin(self, name: str) -> None:
        """A query that is forsaken has a successor: a query of another name."""
        sink = SparkSink(
            self._cluster, self._workload, self.history, self._is_marked, lambda: self._begin(f"{name}n"), name
        )
        self._sinks.append(sink)

    def add_reader(self) -> None:
        """From the beginning, for ever."""
        self._readers += 1
        name = f"q{self._readers}"
        process, machine = self._cluster.client(name)

        def saw(record: Record) -> None:
            transactional_id, number, row, producer_id = (record.value or b"").decode().rsplit("/", 3)
            copy = Copy(Generation(transactional_id, int(number)), int(row), int(producer_id))
            self.history.read(name, copy, self._keys[record.partition], record.offset)

        positions = dict.fromkeys(self._keys, 0)
        work = read_committed(self._workload.settings(), machine, TOPIC, positions, saw)
        self._cluster.run_client(process, work)

    @property
    def busy(self) -> list[str]:
        """Which have begun a micro-batch and not ended it."""
        return [sink.name for sink in self._sinks if not sink.idle]

    def missing(self) -> str | None:
        """What is committed, or was seen in part, and not seen as a whole; None where there is nothing like that."""
        try:
            self.history.check_end()
        except Violation as violation:
            return str(violation)
        return None
