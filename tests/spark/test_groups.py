"""How far a query has got is stored under its group, and another one begins there."""

from __future__ import annotations

import pathlib
import socket

from minilog.errors import GroupIdNotFound
from minilog.groups.spark_note import spark_driver
from tests.rules import proves
from tests.spark.kit import Collected, Kit, run_available, start, values, wait_until

pytestmark = proves("SPO.13")


def offsets_of(kit: Kit, group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Offset and records behind, by topic and partition."""
    try:
        found = kit.admin.describe_group(group)
    except GroupIdNotFound:
        return {}
    return {(each.topic, each.partition): (each.offset, each.lag_records) for each in found.offsets}


@proves("SPF.16", "SPK.1")
def test_a_stream_tells_its_group_how_far_it_has_got(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic, group = kit.topic(2), f"{kit.name}-told"
    kit.send(topic, ["a", "b", "c"], partition=0)
    kit.send(topic, ["d"], partition=1)
    stream = kit.read_stream(subscribe=topic, startingOffsets="earliest", minilog__group__id=group)
    query = start(stream, Collected(), tmp_path / "checkpoint")
    try:
        query.processAllAvailable()
        wait_until(lambda: offsets_of(kit, group) == {(topic, 0): (3, 0), (topic, 1): (1, 0)})
        kit.send(topic, ["e"], partition=1)
        wait_until(lambda: offsets_of(kit, group).get((topic, 1)) == (2, 0))
        notes = {spark_driver(offset.metadata) for offset in kit.admin.describe_group(group).offsets}
        assert notes == {socket.gethostname()}
    finally:
        query.stop()
    kit.send(topic, ["f"], partition=0)
    assert offsets_of(kit, group)[topic, 0] == (3, 1)
    assert values(kit.read(subscribe=topic, startingOffsets="group", minilog__group__id=group)) == ["f"]


@proves("SPK.1")
def test_a_query_without_a_commit_of_its_group_begins_at_the_start(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    found = Collected()
    stream = kit.read_stream(subscribe=topic, startingOffsets="group", groupIdPrefix="new")
    run_available(stream, found, tmp_path / "checkpoint")
    assert found.values == ["a", "b"]
