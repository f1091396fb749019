"""Offsets that nobody sees (markers, aborted records) are gaps: a query goes over them, as far as they go."""

from __future__ import annotations

import contextlib
import pathlib

from minilog import Producer
from tests.rules import proves
from tests.spark.kit import Collected, Kit, run_available, values

pytestmark = proves("TX.20", "SPO.14", "SPL.7")


class _ProgramError(Exception):
    """What a program raises in its block."""


def send(kit: Kit, topic: str, values: list[str], *, commit: bool) -> None:
    settings = {"bootstrap.servers": kit.servers, "transactional.id": f"program-{topic}"}
    with Producer(settings) as producer, contextlib.suppress(_ProgramError), producer.transaction():
        for value in values:
            producer.send(topic, value.encode(), partition=0).result(timeout=30)
        if not commit:
            raise _ProgramError


def test_available_now_over_what_was_aborted_ends_behind_its_marker(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    send(kit, topic, [f"never {number}" for number in range(5)], commit=False)
    run_available(frame, collected, tmp_path)
    run_available(frame, collected, tmp_path)
    assert collected.values == []
    send(kit, topic, ["a", "b"], commit=True)
    send(kit, topic, ["never again"], commit=False)
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b"]


def test_a_batch_read_may_begin_and_end_at_markers_and_inside_of_what_was_aborted(kit: Kit) -> None:
    topic = kit.topic()
    send(kit, topic, ["never", "never"], commit=False)  # 0, 1, and the marker at 2
    send(kit, topic, ["a"], commit=True)  # 3, and the marker at 4
    for start, end, expected in ((0, 3, []), (1, 2, []), (2, 4, ["a"]), (4, 5, []), (2, 3, []), (0, 5, ["a"])):
        found = kit.read(
            subscribe=topic,
            startingOffsets=f'{{"{topic}":{{"0":{start}}}}}',
            endingOffsets=f'{{"{topic}":{{"0":{end}}}}}',
        )
        assert values(found) == expected, (start, end)
