"""A small program as a user types it: mypy --strict finds nothing in it, and it runs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from minilog.testing import running_cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = '''
"""Writes rows, follows them, and counts the late ones."""

import asyncio
import re
import sys

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]

import minilog
from minilog import TopicPartition, aio, col
from minilog.polars import scan_minilog


def write(settings: dict[str, str]) -> None:
    schema = minilog.schema_from_ddl("carrier string, delay int")
    with minilog.Admin(settings) as admin:
        admin.create_topics([minilog.NewTopic("flights", 2, schema=schema)])

    def told(error: BaseException | None, place: minilog.RecordMetadata | None) -> None:
        print("written" if error is None and place is not None else error)

    with minilog.Producer(settings) as producer:
        producer.send("flights", {"carrier": "UA", "delay": 90}, partition=0, on_delivery=told)
        rows = [{"carrier": "AA", "delay": number} for number in range(9)]
        producer.send_many("flights", rows, partition=1).result(20)


def follow(settings: dict[str, str]) -> list[minilog.Record]:
    def noted(partitions: list[TopicPartition]) -> None:
        print("has", len(partitions))

    group = {"group.id": "report", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    with minilog.Consumer({**settings, **group}) as consumer:
        consumer.subscribe(re.compile("fl.*"), on_assigned=noted, on_revoked=noted, on_lost=noted)
        found: list[minilog.Record] = []
        for record in consumer:
            found.append(record)
            if len(found) == 4:
                consumer.pause(consumer.assignment())
                consumer.commit()
                consumer.resume()
            if len(found) == 10:
                break
        lags: dict[TopicPartition, int | None] = consumer.lag()
        ends: dict[TopicPartition, int] = consumer.end_offsets(consumer.partitions_for("flights"))
        print(sum(lag or 0 for lag in lags.values()), sum(ends.values()))
        return found


async def follow_too(settings: dict[str, str]) -> int:
    async with aio.Consumer(settings) as consumer:
        await consumer.assign([TopicPartition("flights", number, 0, end) for number, end in enumerate((1, 9))])
        return len([record.offset async for record in consumer])


def count(settings: dict[str, str]) -> tuple[int, int]:
    where = (col("delay") > 5) & ~col("carrier").is_null()
    late: minilog.Scan = minilog.scan("flights", ["delay"], where, config=settings)
    table: pa.Table = late.to_arrow()
    frame: pl.DataFrame = scan_minilog("flights", config=settings).filter(pl.col("delay") > 5).collect()
    print(late.explain())
    return table.num_rows, frame.height


if __name__ == "__main__":
    servers = {"bootstrap.servers": sys.argv[1]}
    write(servers)
    print(len(follow(servers)), asyncio.run(follow_too(servers)), count(servers))
'''


@pytest.mark.dear("it builds and installs packages")
def test_a_program_is_typed_and_runs(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    types = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    found = subprocess.run(
        types, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(ROOT / "client")}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout
    with running_cluster() as cluster:
        command = [sys.executable, str(program), cluster.bootstrap_servers]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:3] == ["written", "has 2", "0 10"]
    assert lines[-1] == "10 10 (4, 4)"
