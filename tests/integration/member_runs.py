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
import math
import pathlib
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress, TaskID

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import GroupIdNotFound, MinilogError
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from tests.cluster import Cluster
from tests.integration.broker_kills import BrokerKills
from tests.integration.clients import Writer
from tests.integration.group_member import MemberOrder
from tests.integration.history import Place
from tests.integration.member_history import MemberEvent, MemberJudgement, judge_members
from tests.integration.populations import Population
from tests.integration.process_runs import broker_faults, report, watched_cluster
from tests.integration.rounds import admin_of

TOPIC = GROUP = "shared"
SESSION_S = 6.0
SETTLES_WITHIN_S = SESSION_S + 5.0
QUIET_S = 3.0
FORMS = ("poll", "poll_arrow", "iterate")
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


class MemberRun:
    """One run, from its first member to its judgement."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, options: MemberRunOptions, progress: Progress) -> None:
        self._cluster, self._options, self._progress = cluster, options, progress
        self._chance = random.Random(options.seed)
        self._hang_chance = random.Random(options.seed + 1)
        self.members = Population(folder, "member", "tests.integration.group_member", MemberEvent, order=self._order_of)
        self.outcome = MemberRunOutcome(options)
        self._task = TaskID(0)

    def _order_of(self, name: str, number: int, log: str) -> MemberOrder:
        settings = {
            **self._cluster.client,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "client.id": name,
            "request.timeout.ms": 5_000,
        }
        form = FORMS[number % len(FORMS)]
        return MemberOrder(settings, TOPIC, log, form, hang_s=self._hang_chance.uniform(2.0, 14.0))

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
            kills = BrokerKills(
                self._cluster,
                random.Random(options.seed + 2),
                options.broker_pause_s,
                topic=GROUPS_TOPIC_NAME,
                partition=coordinator_partition(GROUP),
                topics=[TOPIC],
            )
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
        kinds = ("leave",) if self._options.calm else ("leave", "kill", "stop", "hang")
        self.members.wake(self._chance, SESSION_S)
        fault = self.members.disturb(self._chance, self._options.members, kinds)
        if fault is not None:
            self.outcome.faults[fault] += 1

    def _settle(self, admin: Admin) -> None:
        """The last fault is over when everybody goes on, nobody hangs, and the last member that comes has joined: each
        change of members moves partitions."""
        self.members.wake_all()
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
        outcome.judgement = judge_members(self.members.read(), acknowledged, committed=committed, quiet=quiet)
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
    with watched_cluster(directory, BROKER_SETTINGS, console) as (cluster, progress):
        outcome = MemberRun(cluster, directory, options, progress).run()
        outcome.wrong += broker_faults(cluster)
    return outcome


def main(options: MemberRunOptions, result: pathlib.Path | None) -> int:
    """The mode `members` of kill_runs: 1 where anything is wrong."""
    words = f"at most {options.members} members"
    return report("members", words, lambda folder, console: run_members(options, folder, console), result)
