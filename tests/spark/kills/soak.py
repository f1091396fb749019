"""Steady input and a kill every 20 s, for as long as told: what the processes hold is sampled before each kill."""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Iterator, Sequence

from tests.integration.forms import Form
from tests.spark.kills.run import CopyOutcome, finish, play, running_scene, tell
from tests.spark.kills.sampling import Samples

KILL_EVERY_S = 20.0


def in_random_order(names: Sequence[str], seed: int) -> Iterator[str]:
    """Each name as often as the others, without end."""
    chance = random.Random(seed)
    while True:
        yield from chance.sample(list(names), len(names))


def soak(
    names: Sequence[str], minutes: float, seed: int, directory: pathlib.Path, *, master: str, form: Form
) -> tuple[CopyOutcome, Samples]:
    """Kill these by turns until the time is over; a kill after which all takes longer to mend delays the next."""
    outcome, samples = CopyOutcome(seed), Samples()
    victims = in_random_order(names, seed)
    with running_scene(directory, seed, master=master, form=form) as scene:
        end_s = time.monotonic() + minutes * 60.0
        while (began_s := time.monotonic()) < end_s:
            print(samples.take(scene), flush=True)
            outcome.kills.append(play(scene, next(victims)))
            tell(scene, outcome)
            scene.pause(max(0.0, began_s + KILL_EVERY_S - time.monotonic()))
        print(samples.take(scene), flush=True)
        finish(scene, outcome)
    return outcome, samples
