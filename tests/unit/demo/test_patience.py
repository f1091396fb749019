"""The demonstration waits for a job that lives, and gives up one that does not."""

from __future__ import annotations

import os

from minilog_tools.demo.patience import LONGEST_S, Patience, Signs, cpu_s_of_group


def _outcome(first: Signs, later: dict[float, Signs]) -> str | None:
    patience = Patience(first, 0.0)
    for now_s, signs in later.items():
        if (sentence := patience.look(signs, now_s)) is not None:
            return f"{now_s:.0f} s: {sentence}"
    return None


def test_a_job_that_starts_slowly_is_waited_for_while_it_uses_cpu() -> None:
    """Spark's restart took 67 s on a machine with a load of 13. The demonstration gave up after 60 s."""
    starting = {float(now_s): Signs(4_071, 20, 20, now_s / 10) for now_s in range(0, 600, 5)}
    assert _outcome(Signs(4_071, 20, 20, 0.0), starting) is None


def test_a_micro_batch_under_way_is_waited_for_while_it_uses_cpu() -> None:
    working = {float(now_s): Signs(10, 21, 20, now_s / 10) for now_s in range(0, 600, 5)}
    assert _outcome(Signs(10, 20, 20, 0.0), working) is None


def test_an_idle_job_is_given_up_though_it_uses_cpu() -> None:
    idle = {float(now_s): Signs(10, 21, 21, now_s / 10) for now_s in range(5, 600, 5)}
    sentence = _outcome(Signs(10, 20, 20, 0.0), idle)
    assert sentence is not None
    assert sentence.startswith("70 s: nothing for 70 s, and no other sign of life for 65 s")
    assert "begun 21 micro-batches and finished 21" in sentence
    assert "cores and a load of" in sentence


def test_a_job_without_cpu_is_given_up() -> None:
    stopped = {float(now_s): Signs(10, 21, 20, 3.0) for now_s in range(5, 600, 5)}
    assert str(_outcome(Signs(10, 21, 20, 3.0), stopped)).startswith("65 s: ")


def test_a_job_that_computes_for_ever_is_given_up() -> None:
    looping = {float(now_s): Signs(10, 21, 20, float(now_s)) for now_s in range(5, 2_000, 5)}
    assert str(_outcome(Signs(10, 21, 20, 0.0), looping)).startswith(f"{LONGEST_S + 5:.0f} s: ")


def test_the_cpu_time_of_a_process_group_has_that_of_its_processes() -> None:
    used_s = sum(os.times()[:2])
    assert cpu_s_of_group(os.getpgrp()) >= used_s - 0.1
    assert cpu_s_of_group(2**22 + 1) == 0.0  # above the largest id that Linux gives
