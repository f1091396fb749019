"""`minilog check` on what real brokers leave."""

from __future__ import annotations

import json
import pathlib

import pytest

from minilog import Admin, NewTopic, Producer, schema_from_ddl
from minilog_tools.cli.app import run
from tests.cluster import running_cluster


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_the_directory_of_a_broker_is_sound_when_it_has_ended_and_in_use_before(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The schema of its rows is in the metadata log of the same directory."""
    with running_cluster(tmp_path, brokers=1) as cluster:
        directory = str(cluster.data_directory(1))
        schema = schema_from_ddl("id long NOT NULL, name string", key_columns=["id"])
        with Admin(cluster.client) as admin, Producer(cluster.client) as producer:
            admin.create_topics([NewTopic("flights", 2, 1, {"segment.bytes": "16384"})])
            admin.create_topics([NewTopic("people", 1, 1, schema=schema)])
            producer.send("people", {"id": 1, "name": "Ada"}).result(timeout=30.0)
            producer.delete("people", {"id": 1}).result(timeout=30.0)
        for end in (cluster.kill, cluster.stop):
            with Producer(cluster.client) as producer:
                for number in range(300):
                    producer.send("flights", value=bytes(500), key=str(number).encode())
                    if number % 20 == 0:
                        producer.flush()
            process = cluster.processes[1].pid
            assert run(["check", directory]) == 2
            assert f"is in use by process {process}" in capsys.readouterr().err
            end(1)
            assert run(["check", directory]) == 0
            told = capsys.readouterr().out
            assert "segments" in told
            assert "damaged" not in told
            if end == cluster.kill:
                cluster.start(1)
                cluster.wait_running()
        assert told.endswith(": all is sound\n")
        assert run(["check", directory, "--print", "people", "0"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["offset"], row["value"]) for row in rows] == [(0, '{"id":1,"name":"Ada"}'), (1, None)]
