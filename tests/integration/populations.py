"""Real processes of one kind that come, leave, hang, stop and are killed, each with a file of what it saw.

A process begins with a JSON order, writes one line per event to a file of its own, leaves with SIGTERM, and hangs with
SIGUSR1. All processes of one machine share the monotonic clock, so the lines of all of them have one order.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from tests import programs
from tests.programs import Process

AT_ONCE = 4
"""So many are stopped at one moment."""
ENDS_WITHIN_S = 60.0
Event = TypeVar("Event", bound=msgspec.Struct)


@dataclass
class Story(Generic[Event]):
    """One process: what it wrote, and what was done to it."""

    name: str
    events: list[Event]
    died_s: float | None = None
    """When a killed process had ended."""
    stops: list[tuple[float, float]] = field(default_factory=list)
    """From SIGSTOP to SIGCONT."""
    hangs: list[float] = field(default_factory=list)
    """When its program was told to hang."""

    def was_stopped(self, since_s: float, until_s: float) -> bool:
        return any(begin_s <= until_s and end_s >= since_s for begin_s, end_s in self.stops)


def read_events(path: pathlib.Path, event: type[Event]) -> list[Event]:
    """All whole lines of a process's file. A process that was killed before its first line has none."""
    if not path.exists():
        return []
    decoder = msgspec.json.Decoder(event)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()]


@dataclass
class _Living(Generic[Event]):
    """A process that lives."""

    process: Process
    story: Story[Event]
    stopped_s: float | None = None


class Population(Generic[Event]):
    """The processes, those that live and those that did.

    `order` gives what a process is to do, by its name, its number and the path of its file. `module` has its `main`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        kind: str,
        module: str,
        event: type[Event],
        order: Callable[[str, int, str], msgspec.Struct],
    ) -> None:
        self._folder, self._kind, self._module, self._event, self._order = folder, kind, module, event, order
        self.living: dict[str, _Living[Event]] = {}
        self.leaving: dict[str, _Living[Event]] = {}
        self.stories: list[Story[Event]] = []
        self.wrong: list[str] = []

    def come(self) -> None:
        name = f"{self._kind}-{len(self.stories)}"
        order = self._order(name, len(self.stories), str(self._log(name)))
        with open(os.devnull, "r+b") as nothing, self._said(name).open("wb") as said:
            streams = [nothing.fileno(), nothing.fileno(), said.fileno()]
            process = programs.start([msgspec.json.encode(order).decode()], streams, module=self._module)
        story = Story[Event](name, [])
        self.stories.append(story)
        self.living[name] = _Living(process, story)

    def free(self) -> list[str]:
        """Those that are not stopped, and have begun: a process takes signals from its first line on."""
        return [name for name, living in self.living.items() if living.stopped_s is None and self._has_begun(name)]

    def _has_begun(self, name: str) -> bool:
        log = self._log(name)
        return log.exists() and log.stat().st_size > 0

    def leave(self, name: str) -> None:
        living = self.living.pop(name)
        living.process.send_signal(signal.SIGTERM)
        self.leaving[name] = living

    def kill(self, name: str) -> None:
        living = self.living.pop(name)
        living.process.kill()
        living.process.wait(ENDS_WITHIN_S)
        living.story.died_s = time.monotonic()

    def stop(self, name: str) -> None:
        living = self.living[name]
        living.stopped_s = time.monotonic()
        living.process.send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        living = self.living[name]
        living.process.send_signal(signal.SIGCONT)
        assert living.stopped_s is not None
        living.story.stops.append((living.stopped_s, time.monotonic()))
        living.stopped_s = None

    def hang(self, name: str) -> None:
        self.living[name].process.send_signal(signal.SIGUSR1)
        self.living[name].story.hangs.append(time.monotonic())

    def wake(self, chance: random.Random, pause_s: float) -> None:
        """Who was stopped for about so long goes on."""
        now_s = time.monotonic()
        for name, living in list(self.living.items()):
            if living.stopped_s is not None and now_s - living.stopped_s > chance.uniform(0.5, 2.5) * pause_s:
                self.go_on(name)

    def wake_all(self) -> None:
        for name, living in list(self.living.items()):
            if living.stopped_s is not None:
                self.go_on(name)

    def disturb(self, chance: random.Random, most: int, kinds: tuple[str, ...]) -> str | None:
        """One of these things happens to one of them, or one comes. Its name, None where nothing happens."""
        free = self.free()
        if len(self.living) < most and (chance.random() < 0.45 or len(free) < 3):
            self.come()
            return "come"
        kind, victim = chance.choice(kinds), chance.choice(free)
        if len(free) <= 2 or (kind == "stop" and len(self.living) - len(free) >= AT_ONCE):
            return None
        getattr(self, kind)(victim)
        return kind

    def look(self) -> None:
        """Notes who ended by itself, which nobody does; and who has left."""
        for name, living in list(self.living.items()):
            if (code := living.process.poll()) is not None:
                self.wrong.append(f"{name} ended with {code}: {self._text(name)}")
                living.story.died_s = time.monotonic()
                del self.living[name]
        for name, living in list(self.leaving.items()):
            if (code := living.process.poll()) is not None:
                if code != 0:
                    self.wrong.append(f"{name} left with {code}: {self._text(name)}")
                del self.leaving[name]

    def leave_all(self) -> None:
        for name in list(self.living):
            self.leave(name)
        deadline_s = time.monotonic() + ENDS_WITHIN_S
        while self.leaving and time.monotonic() < deadline_s:
            self.look()
            time.sleep(0.05)
        self.wrong += [f"{name} does not leave: {self._text(name)}" for name in self.leaving]

    def end(self) -> None:
        """End all that still run."""
        for living in (*self.living.values(), *self.leaving.values()):
            living.process.kill()
            living.process.wait(ENDS_WITHIN_S)

    def read(self) -> list[Story[Event]]:
        """All stories, with what the processes wrote. A traceback is wrong."""
        for story in self.stories:
            story.events = read_events(self._log(story.name), self._event)
            if "Traceback" in self._text(story.name):
                self.wrong.append(f"{story.name} said a traceback: {self._text(story.name)}")
        return self.stories

    def _log(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.said"

    def _text(self, name: str) -> str:
        return self._said(name).read_text(errors="replace")[-2000:]
