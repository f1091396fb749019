"""on_delivery, send_many, and the warning of a process that drops what it took, against a real broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from minilog import Admin, Consumer, InvalidRecord, NewTopic, Producer, RecordMetadata, aio, schema_from_ddl
from tests.cluster import Cluster
from tests.pool import THREE, shared_cluster

ROWS: list[dict[str, object]] = [{"carrier": "UA", "delay": 1}, {"carrier": None, "delay": -3}, {"delay": 7}]


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    schema = schema_from_ddl("carrier string, delay int")
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic("plain", 2), NewTopic("rows", 1, schema=schema), NewTopic("many", 2)])
    return shared


def test_each_delivery_is_told_to_a_function(cluster: Cluster) -> None:
    told: list[tuple[BaseException | None, RecordMetadata | None]] = []
    done = threading.Event()

    def on_delivery(error: BaseException | None, metadata: RecordMetadata | None) -> None:
        told.append((error, metadata))
        done.set()

    with Producer({**cluster.client, "max.block.ms": 5_000}) as producer:
        future = producer.send("plain", b"x", partition=1, on_delivery=on_delivery)
        assert done.wait(10.0)
        assert told == [(None, future.result(0))]
        with Admin(cluster.client) as admin:
            admin.alter_topic("plain", set_configs={"max.message.bytes": "1024"})
        producer.send("plain", b"x" * 5_000, on_delivery=on_delivery)
        producer.flush(20.0)
        error, metadata = told[1]
        assert error is not None
        assert error.code == "MESSAGE_TOO_LARGE"  # type: ignore[attr-defined]
        assert metadata is None


def test_a_list_goes_as_one_batch_and_comes_back(cluster: Cluster) -> None:
    with Producer(cluster.client) as producer:
        written = producer.send_many("many", [b"a", None, b"c"], keys=[b"k", b"k", None]).result(10)
        assert sum(each.last_offset - each.first_offset + 1 for each in written) == 3
        assert producer.send_many("many", []).result(10) == []
        assert producer.send_many("rows", ROWS).result(10)[0].last_offset == 2
    with Consumer({**cluster.client, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["many", "rows"])
        found = [record for _, record in zip(range(6), consumer, strict=False)]
    many = [(record.key, record.value) for record in found if record.topic == "many"]
    assert len(many) == 3
    assert {(b"k", b"a"), (b"k", None), (None, b"c")} == set(many)
    assert [record.value for record in found if record.topic == "rows"] == [
        b'{"carrier":"UA","delay":1}',
        b'{"carrier":null,"delay":-3}',
        b'{"carrier":null,"delay":7}',
    ]


def test_nothing_of_a_list_is_taken_where_one_value_does_not_fit(cluster: Cluster) -> None:
    with Producer(cluster.client) as producer:
        with pytest.raises(InvalidRecord, match=r"row 1: .*column 'delay' is int"):
            producer.send_many("rows", [{"delay": 1}, {"delay": "late"}])
        with pytest.raises(InvalidRecord, match=r"value 1: the value of a record .* is str"):
            producer.send_many("many", [b"a", "b"])  # type: ignore[list-item]
        with pytest.raises(InvalidRecord, match="3 values and 1 keys"):
            producer.send_many("many", [b"a", b"b", b"c"], keys=[b"k"])
        with pytest.raises(InvalidRecord, match="got bytes: give a list"):
            producer.send_many("many", b"abc")  # type: ignore[arg-type]
        with pytest.raises(InvalidRecord, match="the key of a row"):
            producer.send_many("rows", [{"delay": 1}], keys=[b"k"])


def test_the_producer_for_asyncio_has_the_same(cluster: Cluster) -> None:
    async def work() -> None:
        told: list[tuple[BaseException | None, RecordMetadata | None]] = []
        async with aio.Producer(cluster.client) as producer:
            future = await producer.send("many", b"x", on_delivery=lambda error, place: told.append((error, place)))
            place = await future
            await asyncio.sleep(0)
            assert told == [(None, place)]
            assert len(await (await producer.send_many("rows", ROWS, partition=0))) == 1

    asyncio.run(work())


_DROPS = """
import asyncio
from minilog import aio

async def main():
    settings = {{"bootstrap.servers": {servers!r}, "linger.ms": 60000}}
    for name in ("p1", "p2"):
        await aio.Producer({{**settings, "client.id": name}}).send("many", b"x")
    async with aio.Producer(settings) as closed:
        await closed.send("many", b"x")

for _ in range(2):  # the producers of a loop that has ended are counted, and let go
    asyncio.run(main())
"""


def test_a_process_that_drops_what_its_producers_took_says_so_once(cluster: Cluster) -> None:
    code = _DROPS.format(servers=cluster.bootstrap_servers)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.count("the process ends with producers open") == 1
    assert "4 records of 'p1', 'p2' are not written" in ended.stderr
