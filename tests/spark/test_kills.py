"""Exactly once under SIGKILL: short versions of `python -m tests.spark.kills`, and what its judgement is worth."""

from __future__ import annotations

import pathlib

import pytest

from tests.integration.forms import ROWS
from tests.integration.history import Stored
from tests.rules import proves
from tests.spark.kills.judging import copy_of, judge, judge_reading
from tests.spark.kills.run import STANDALONE, run

pytestmark = proves("SPF.26", "SPF.36", "SPL.8")

SOURCE: Stored = {0: [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")], 1: [(0, b"e"), (1, b"f")]}


def whole_sink() -> Stored:
    """As an undisturbed copy leaves it."""
    sink: Stored = {0: [], 1: []}
    for partition, records in SOURCE.items():
        for offset, value in records:
            target = sink[(partition + offset) % 2]
            target.append((len(target), copy_of(partition, offset, value)))
    return sink


@pytest.mark.long
@proves("SPS.6", "SPC.3")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "victims",
    [
        ["driver", "coordinator"],  # a driver takes its workers along
        ["both", "zombie", "leader", "controller"],
    ],
)
def test_a_copy_is_exactly_once_whoever_is_killed(victims: list[str], tmp_path: pathlib.Path) -> None:
    outcome = run(victims, seed=7, directory=tmp_path)
    assert outcome.verdict.wrong == []
    assert outcome.verdict.copies == outcome.verdict.input == outcome.acknowledged == outcome.read > 0


@proves("SPQ.2")
@pytest.mark.long  # test_queue_batches.py ends the driver at each of its steps, without a JVM
@pytest.mark.timeout(600)
def test_a_copy_from_a_queue_is_exactly_once_whoever_is_killed(tmp_path: pathlib.Path) -> None:
    outcome = run(["coordinator", "driver", "leader", "worker"], seed=7, directory=tmp_path, queue="copies")
    assert outcome.verdict.wrong == []
    assert outcome.verdict.copies == outcome.verdict.input == outcome.acknowledged == outcome.read > 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_copy_of_typed_topics_is_exactly_once_while_their_schemas_evolve(tmp_path: pathlib.Path) -> None:
    outcome = run(["driver", "worker", "leader"], seed=7, directory=tmp_path, form=ROWS)
    assert outcome.verdict.wrong == []
    assert outcome.verdict.copies == outcome.verdict.input == outcome.acknowledged == outcome.read > 0


@proves("SPS.6", "SPC.3")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_costs_nothing_but_time(tmp_path: pathlib.Path) -> None:
    outcome = run(["executor"], seed=7, directory=tmp_path, master=STANDALONE)
    assert outcome.verdict.wrong == []
    assert outcome.verdict.copies == outcome.verdict.input == outcome.acknowledged == outcome.read > 0


class TestTheJudgement:
    def test_has_nothing_against_a_whole_copy(self) -> None:
        verdict = judge(SOURCE, whole_sink())
        assert (verdict.input, verdict.copies, verdict.duplicates, verdict.lost, verdict.wrong) == (6, 6, 0, 0, [])

    def test_finds_what_is_lost(self) -> None:
        sink = whole_sink()
        del sink[0][1]
        verdict = judge(SOURCE, sink)
        assert (verdict.lost, verdict.wrong) == (1, ["b'0:2|c' is lost"])

    def test_finds_what_stands_twice(self) -> None:
        sink = whole_sink()
        sink[1].append(sink[1][-1])
        verdict = judge(SOURCE, sink)
        assert verdict.duplicates == 1
        assert verdict.wrong[0] == "b'1:0|e' stands 2 times"

    def test_finds_what_stands_in_the_wrong_order(self) -> None:
        sink = whole_sink()
        sink[1][0], sink[1][1] = sink[1][1], sink[1][0]
        assert judge(SOURCE, sink).wrong == [
            "partition 1: b'0:1|b' stands behind offset 3 of its source",
        ]

    def test_finds_what_nobody_should_have_written(self) -> None:
        sink = whole_sink()
        sink[0].append((9, b"1:7|x"))
        assert judge(SOURCE, sink).wrong == [
            "b'1:7|x' stands in partition 0, where nobody should have written it",
        ]

    def test_finds_a_key_in_two_partitions(self) -> None:
        """Where keys decide: here three of them, over two partitions."""
        sink: Stored = {0: [], 1: []}
        for partition, records in SOURCE.items():
            for offset, value in records:
                target = sink[(partition + offset) % 3 % 2]
                target.append((len(target), copy_of(partition, offset, value)))
        assert judge(SOURCE, sink, keys=3).wrong == []
        sink[1].append(sink[0].pop(1))
        assert (
            judge(SOURCE, sink, keys=3).wrong[0].endswith("stands in partition 1, where nobody should have written it")
        )

    def test_finds_a_reader_that_was_shown_something_else_or_not_all(self) -> None:
        sink, read = whole_sink(), whole_sink()
        read[0].insert(1, (1, b"0:0|aborted"))
        del read[1][-1]
        assert len(judge_reading(read, sink)) == 3
        assert judge_reading(whole_sink(), sink) == []
