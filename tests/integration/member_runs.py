"""Real member processes of one group come, leave, hang, stop and are killed beside kills of brokers, and are judged.

    python -m tests.integration.kill_runs members --minutes 10 --members 50 --seed 1

One topic, a producer with acks=all, and up to so many members, each a process of its own (group_member.py) that writes
down what it gets. Each second or so one of these happens to members: one comes, leaves, dies by SIGKILL, is stopped by
SIGSTOP and goes on later, or hangs in its handler. Each half minute a broker dies by SIGKILL, most often the group's
coordinator, and starts again. After the last fault the group gets a session time-out and 5 s. Then each partition has
an owner, and the group reads to the end. `member_history.py` judges the files.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import GroupIdNotFound, MinilogError
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.integration.clients import Writer
from tests.integration.group_member import MemberOrder
from tests.integration.history import Place
from tests.integration.member_history import MemberJudgement, MemberStory, judge_members, read_events
from tests.integration.rounds import admin_of
from tests.programs import Process

TOPIC = GROUP = "shared"
SESSION_S = 6.0
SETTLES_WITHIN_S = SESSION_S + 5.0
QUIET_S = 3.0
FORMS = ("poll", "poll_arrow", "iterate")
AT_ONCE = 4
"""So many members are stopped at one moment, and so many hang."""
WITHIN_S = 60.0
BROKER_SETTINGS = {
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.heartbeat.interval.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class MemberRunOptions:
    """`calm`: members come and leave, and nothing else happens. Pauses are means, in seconds."""

    seconds: float
    members: int = 50
    seed: int = 1
    partitions: int = 60
    calm: bool = False
    member_pause_s: float = 1.0
    broker_pause_s: float = 25.0
    write_pause_s: float = 0.005


@dataclass
class MemberRunOutcome:
    """What was done, and what became of it."""

    options: MemberRunOptions
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    targets: int = 0
    """How often the group got a new target: rebalances."""
    refusals: Counter[str] = field(default_factory=Counter)
    """What the looks at the group and its topic raised, by the error's name."""
    judgement: MemberJudgement = field(default_factory=MemberJudgement)
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        judged = self.judgement
        return {
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "faults": dict(self.faults),
            "acknowledged": self.acknowledged,
            "handed": judged.handed,
            "handed again": dict(judged.again),
            "overlaps": judged.overlaps,
            "commits": judged.commits,
            "refused commits": dict(judged.refused),
            "polls that raised": dict(judged.raised),
            "looks that raised": dict(self.refusals),
            "rebalances": self.targets,
            "holdings": len(judged.holdings),
            "longest time without an owner, s": round(judged.without_owner_s, 3),
            "its partition, and since": [judged.without_owner_at[0], round(judged.without_owner_at[1], 3)],
            "wrong": self.wrong,
        }


@dataclass
class _Living:
    """A member process."""

    process: Process
    story: MemberStory
    stopped_s: float | None = None


class Population:
    """The members, those that live and those that did."""

    def __init__(
        self, cluster: Cluster, folder: pathlib.Path, options: MemberRunOptions, chance: random.Random
    ) -> None:
        self._cluster, self._folder, self._options, self._chance = cluster, folder, options, chance
        self.living: dict[str, _Living] = {}
        self.leaving: dict[str, _Living] = {}
        self.stories: list[MemberStory] = []
        self.wrong: list[str] = []

    def come(self) -> None:
        name = f"member-{len(self.stories)}"
        form = FORMS[len(self.stories) % len(FORMS)]
        settings = {
            **self._cluster.client,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "client.id": name,
            "request.timeout.ms": 5_000,
        }
        order = MemberOrder(settings, TOPIC, str(self._log(name)), form, hang_s=self._chance.uniform(2.0, 14.0))
        with open(os.devnull, "r+b") as nothing, self._said(name).open("wb") as said:
            streams = [nothing.fileno(), nothing.fileno(), said.fileno()]
            module = "tests.integration.group_member"
            process = programs.start([msgspec.json.encode(order).decode()], streams, module=module)
        story = MemberStory(name, [])
        self.stories.append(story)
        self.living[name] = _Living(process, story)

    def free(self) -> list[str]:
        """The members that are not stopped, and have begun: a process takes signals from its first line on."""
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
        living.process.wait(WITHIN_S)
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
        deadline_s = time.monotonic() + WITHIN_S
        while self.leaving and time.monotonic() < deadline_s:
            self.look()
            time.sleep(0.05)
        self.wrong += [f"{name} does not leave: {self._text(name)}" for name in self.leaving]

    def end(self) -> None:
        """End all members that still run."""
        for living in (*self.living.values(), *self.leaving.values()):
            living.process.kill()
            living.process.wait(WITHIN_S)

    def told(self) -> list[MemberStory]:
        """All stories, with what the members wrote; what one of them said against itself is wrong."""
        for story in self.stories:
            story.events = read_events(self._log(story.name))
            if "Traceback" in self._text(story.name):
                self.wrong.append(f"{story.name} said a traceback: {self._text(story.name)}")
        return self.stories

    def _log(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.log"

    def _said(self, name: str) -> pathlib.Path:
        return self._folder / f"{name}.said"

    def _text(self, name: str) -> str:
        return self._said(name).read_text(errors="replace")[-2000:]


class _BrokerKills:
    """A thread that kills a broker now and then, starts it again, and waits until the cluster is whole."""

    def __init__(self, cluster: Cluster, chance: random.Random, pause_s: float) -> None:
        self._cluster, self._chance, self._pause_s = cluster, chance, pause_s
        self.faults: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker kills", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """All brokers run afterwards."""
        self._stop.set()
        self._thread.join(3 * WITHIN_S)
        assert not self._thread.is_alive(), "the kills of brokers do not end"

    def _run(self) -> None:
        try:
            with admin_of(self._cluster) as admin:
                while not self._stop.wait(self._chance.uniform(0.6, 1.4) * self._pause_s):
                    self._kill_one(admin)
        except Exception as error:
            self.wrong.append(f"the cluster does not come back: {error!r}")

    def _kill_one(self, admin: Admin) -> None:
        coordinator = leader_of_group(admin)
        others = sorted(set(self._cluster.ports) - {coordinator})
        victim = coordinator if self._chance.random() < 0.7 else self._chance.choice(others)
        self.faults["coordinator killed" if victim == coordinator else "broker killed"] += 1
        self._cluster.kill(victim)
        time.sleep(self._chance.uniform(0.2, 3.0))
        self._cluster.start(victim)
        self._cluster.wait_running(WITHIN_S)
        deadline_s = time.monotonic() + WITHIN_S
        while not is_whole(admin):
            assert time.monotonic() < deadline_s, "not all replicas are back in sync"
            time.sleep(0.2)


def leader_of_group(admin: Admin) -> int:
    """The broker that is the group's coordinator; waits while there is none."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        (described,) = admin.describe_topics([GROUPS_TOPIC_NAME])
        if (leader := described.partitions[coordinator_partition(GROUP)].leader) is not None:
            return leader
        assert time.monotonic() < deadline_s, "the group's partition has no leader"
        time.sleep(0.1)


def is_whole(admin: Admin) -> bool:
    """Whether each replica of the topic and of the groups is in sync."""
    described = admin.describe_topics([TOPIC, GROUPS_TOPIC_NAME])
    partitions = [partition for topic in described for partition in topic.partitions]
    return all(len(seen.isr) == len(seen.replicas) and seen.leader is not None for seen in partitions)


class MemberRun:
    """One run, from its first member to its judgement."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, options: MemberRunOptions, progress: Progress) -> None:
        self._cluster, self._options, self._progress = cluster, options, progress
        self._chance = random.Random(options.seed)
        self.members = Population(cluster, folder, options, random.Random(options.seed + 1))
        self.outcome = MemberRunOutcome(options)
        self._task = TaskID(0)

    def run(self) -> MemberRunOutcome:
        with admin_of(self._cluster) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=self._options.partitions, replication_factor=3)])
            self._task = self._progress.add_task("members come", total=self._options.seconds)
            writer = Writer(self._cluster.client, TOPIC, value_bytes=100, pause_s=self._options.write_pause_s)
            try:
                self._gather(admin)
                self._play()
                self._settle(admin)
                quiet_s = time.monotonic()
                self._wait(QUIET_S, "quiet")
                history = writer.stop()
                self._drain(admin)
                quiet = (quiet_s, time.monotonic())
                self.outcome.targets = admin.describe_group(GROUP).epoch
                self.members.leave_all()
            finally:
                self.members.end()
            self._judge(history.acknowledged.values(), self._committed(admin), quiet)
        return self.outcome

    def _gather(self, admin: Admin) -> None:
        """The first members, before anything breaks."""
        for _ in range(self._options.members * 3 // 5):
            self.members.come()
        self._wait_for_members(admin, "the first members do not join")

    def _wait_for_members(self, admin: Admin, failure: str) -> None:
        """Until the group has all living members, and no others."""
        deadline_s = time.monotonic() + WITHIN_S
        while not _has_members(admin, len(self.members.living)):
            assert time.monotonic() < deadline_s, failure
            time.sleep(0.2)
            self.members.look()

    def _play(self) -> None:
        options = self._options
        kills = None
        if not options.calm:
            kills = _BrokerKills(self._cluster, random.Random(options.seed + 2), options.broker_pause_s)
        began_s = time.monotonic()
        while (gone_s := time.monotonic() - began_s) < options.seconds:
            words = ", ".join(f"{count} {name}" for name, count in sorted(self.outcome.faults.items()))
            self._show(f"{len(self.members.living)} members: {words}", gone_s)
            self.members.look()
            self._disturb()
            time.sleep(min(self._chance.expovariate(1.0 / options.member_pause_s), 5.0))
        if kills is not None:
            kills.stop()
            self.outcome.faults += kills.faults
            self.outcome.wrong += kills.wrong

    def _disturb(self) -> None:
        """One thing that happens to members; and who was stopped long enough goes on."""
        members, now_s = self.members, time.monotonic()
        for name, living in list(members.living.items()):
            if living.stopped_s is not None and now_s - living.stopped_s > self._chance.uniform(0.5, 2.5) * SESSION_S:
                members.go_on(name)
        free = members.free()
        if len(members.living) < self._options.members and (self._chance.random() < 0.45 or len(free) < 3):
            members.come()
            self.outcome.faults["come"] += 1
            return
        kinds = ("leave",) if self._options.calm else ("leave", "kill", "stop", "hang")
        kind = self._chance.choice(kinds)
        victim = self._chance.choice(free)
        stopped = len(members.living) - len(free)
        if len(free) <= 2 or (kind == "stop" and stopped >= AT_ONCE):
            return
        getattr(members, kind)(victim)
        self.outcome.faults[kind] += 1

    def _settle(self, admin: Admin) -> None:
        """The last fault is over when everybody goes on, nobody hangs, and the last member that comes has joined: each
        change of members moves partitions."""
        for name, living in list(self.members.living.items()):
            if living.stopped_s is not None:
                self.members.go_on(name)
        hangs_s = [hang_s for living in self.members.living.values() for hang_s in living.story.hangs]
        if hangs_s:
            self._wait(max(0.0, max(hangs_s) + 15.0 - time.monotonic()), "hangs end")
        self._show("the last members join", self._options.seconds)
        self._wait_for_members(admin, "the group does not have all members, and only them")
        self._wait(SETTLES_WITHIN_S, "settling")

    def _drain(self, admin: Admin) -> None:
        """Until the group has committed all that is written. A group that goes on has time for what is left."""
        deadline_s, least = time.monotonic() + WITHIN_S, math.inf
        while (short := self._not_read(admin)) is None or short:
            left = math.inf if short is None else sum(end - done for _, done, end in short)
            if left < least:
                deadline_s, least = time.monotonic() + WITHIN_S, left
            if time.monotonic() > deadline_s:
                self.outcome.wrong.append(f"the group does not read to the end; partition, committed, end: {short}")
                break
            self._wait(0.5, "reading to the end")

    def _not_read(self, admin: Admin) -> list[tuple[int, int, int]] | None:
        """Partitions with more than the group has committed: what it has, and the end; None where nobody could say."""
        partitions = [TopicPartition(TOPIC, number) for number in range(self._options.partitions)]
        try:
            ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
            committed = self._committed(admin)
        except MinilogError as error:
            self.outcome.refusals[type(error).__name__] += 1
            return None
        progress = [(at.partition, committed.get(at.partition, 0), end or 0) for at, end in ends.items()]
        return [(number, done, end) for number, done, end in progress if done < end]

    def _committed(self, admin: Admin) -> dict[int, int]:
        with contextlib.suppress(GroupIdNotFound):
            return {progress.partition: progress.offset for progress in admin.describe_group(GROUP).offsets}
        return {}

    def _judge(self, places: Iterable[Place], committed: dict[int, int], quiet: tuple[float, float]) -> None:
        acknowledged: dict[int, set[int]] = {number: set() for number in range(self._options.partitions)}
        for partition, offset in places:
            acknowledged[partition].add(offset)
        outcome = self.outcome
        outcome.acknowledged = sum(map(len, acknowledged.values()))
        outcome.judgement = judge_members(self.members.told(), acknowledged, committed=committed, quiet=quiet)
        outcome.wrong += self.members.wrong + outcome.judgement.wrong

    def _wait(self, seconds: float, words: str) -> None:
        self._show(words, self._options.seconds)
        time.sleep(seconds)
        self.members.look()

    def _show(self, words: str, gone_s: float) -> None:
        self._progress.update(self._task, description=words, completed=gone_s)


def _has_members(admin: Admin, count: int) -> bool:
    try:
        members = admin.describe_group(GROUP).members
    except MinilogError:
        return False
    return len(members) == count and all(member.assigned for member in members)


def run_members(options: MemberRunOptions, directory: pathlib.Path, console: Console | None = None) -> MemberRunOutcome:
    """The run on a cluster of its own, judged."""
    console = console or Console(quiet=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        running_cluster(directory, 3, BROKER_SETTINGS) as cluster,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        outcome = MemberRun(cluster, directory, options, progress).run()
        for name, code in cluster.stop().items():
            if code != 0:
                outcome.wrong.append(f"broker {name} ended with {code}: {cluster.log_text(name)[-2000:]}")
        outcome.wrong += [
            f"broker {name} said a traceback: {cluster.log_text(name)[-2000:]}"
            for name in cluster.ports
            if "Traceback" in cluster.log_text(name)
        ]
    return outcome


def show(outcome: MemberRunOutcome, console: Console) -> None:
    """The table: what was done, and what became of it."""
    table = Table("what", "count", show_header=False)
    summary = outcome.summary()
    for name in ("seed", "seconds", "wrong"):
        del summary[name]
    for name, value in summary.items():
        words = (
            ", ".join(f"{count} {what}" for what, count in sorted(value.items())) if isinstance(value, dict) else value
        )
        table.add_row(name, str(words) or "0")
    console.print(table)
    options = outcome.options
    print(
        f"at most {options.members} members, {options.seconds:.0f} s, seed {options.seed}: wrong {len(outcome.wrong)}"
    )
    for line in outcome.wrong[:20]:
        print("  " + line)


def main(options: MemberRunOptions, result: pathlib.Path | None) -> int:
    """The mode `members` of kill_runs: 1 where anything is wrong."""
    console = Console()
    folder = tempfile.mkdtemp(prefix="minilog-members-")
    print(f"what members and brokers say is in {folder}, and stays there where anything is wrong", flush=True)
    outcome = run_members(options, pathlib.Path(folder), console)
    show(outcome, console)
    if not outcome.wrong:
        shutil.rmtree(folder)
    if result is not None:
        result.write_text(json.dumps(outcome.summary(), indent=2) + "\n")
    return 1 if outcome.wrong else 0
