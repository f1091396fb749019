"""What a query of topics with a schema asks the cluster: as much as one of keys and values, on the driver and in tasks.

The source is driven as Spark drives it, in this process, so that its questions can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from minilog import schema_from_ddl
from minilog.net.network_client import NetworkClient as KnownCluster
from pyspark_minilog import DefaultSource
from pyspark_minilog.login import clients
from pyspark_minilog.reading.stream_reader import StreamReader
from tests.spark.kit import Kit
from tests.spark.typed_kit import send_rows, typed_topic


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each kind of question was put."""
    found: Counter[str] = Counter()

    def counted(name: str) -> None:
        original: Callable[..., Any] = getattr(KnownCluster, name)

        async def count(self: KnownCluster, *arguments: Any, **named: Any) -> Any:
            found[name] += 1
            return await original(self, *arguments, **named)

        monkeypatch.setattr(KnownCluster, name, count)

    for name in ("refresh", "refresh_and_ask", "complete", "query_offsets", "ask_any"):
        counted(name)
    yield found
    forget_clients()


def forget_clients() -> None:
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


def questions(kit: Kit, asked: Counter[str], topic: str) -> tuple[list[Counter[str]], int]:
    """What load(), a look, the plan and a task of new processes ask; and how many rows the task has."""
    forget_clients()
    found: list[Counter[str]] = []

    def note(is_new_process: bool = False) -> None:
        found.append(Counter(asked))
        if is_new_process:
            forget_clients()
        asked.clear()

    asked.clear()
    source = DefaultSource({"bootstrap.servers": kit.servers, "subscribe": topic, "startingOffsets": "earliest"})
    schema = kit.spark.createDataFrame([], source.schema()).schema
    note(is_new_process=True)
    reader = source.streamReader(schema)
    assert isinstance(reader, StreamReader)
    note()
    start = reader.initialOffset()
    asked.clear()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    note()
    (task,) = reader.partitions(start, end)
    note(is_new_process=True)
    rows = sum(batch.num_rows for batch in reader.read(task))
    note()
    return found, rows


def test_as_often_as_of_keys_and_values(kit: Kit, asked: Counter[str]) -> None:
    typed, plain = typed_topic(kit, schema_from_ddl("a int, b string"), partitions=1), kit.topic()
    send_rows(kit, typed, pa.table({"a": [1, 2], "b": ["x", "y"]}))
    kit.send(plain, ["x", "y"])
    for topic in (typed, plain):  # a broker that does not know a new topic yet is asked again
        questions(kit, asked, topic)
    of_rows, rows = questions(kit, asked, typed)
    of_values, values = questions(kit, asked, plain)
    assert rows == values == 2
    assert of_rows == of_values
    load, made, look, plan, task = of_rows
    assert load["refresh_and_ask"] == 1
    assert not made, "load() has asked already"
    assert (look["refresh_and_ask"], look["complete"]) == (1, 0)
    assert not plan
    assert task["refresh_and_ask"] + task["query_offsets"] == 0, "a task describes nothing"
    assert task["refresh"] == 1
