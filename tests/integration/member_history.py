"""What members of a group wrote down about themselves, judged (M1, M2, M5).

Each member process appends one line per event to a file of its own. All processes of one machine share the monotonic
clock, so the lines of all members have one order. A member holds a partition from the line `assigned` until the first
of these: its line `revoked` or `lost`, the death of its process, and the moment until which it holds by its own clock.
Where a coordinator fences it while its program gives a partition back, it held the partition until that began.

A hand-out is one offset that a poll gave to the program. Rules: no two members hold one partition at one moment. A
member gets records of partitions that it holds, each offset once, without a gap, from where the group had committed.
No record is handed out after a commit that covers it was acknowledged. Each acknowledged record is handed out.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tests.integration.populations import Story

GRACE_S = 0.5
"""From the look at the session to the line that says so; the coordinator waits two heartbeats longer than a member."""

FENCED = ("FencedMemberEpoch", "StaleMemberEpoch", "UnknownMemberId")
"""A commit with one of these errors came from a member that had lost its partitions."""


class MemberEvent(msgspec.Struct, array_like=True):
    """One line. Times are seconds of the monotonic clock of the machine."""

    kind: str
    """assigned, revoking (the callback begins), revoked, lost, handed, commits (it asks), committed, refused (one of
    these commits), sample, raised, left."""
    time_s: float
    until_s: float
    """Until when the member holds what it has, if nothing more comes; 0: it is in no group."""
    since_s: float = 0.0
    """Of `handed`: when the poll began."""
    offsets: dict[int, tuple[int, int]] = {}
    """By partition: the first offset and the end, exclusive. Of a commit the end is what is committed."""
    words: str = ""


MemberStory = Story[MemberEvent]


@dataclass
class Holding:
    """One member's time with one partition."""

    member: str
    partition: int
    begin_s: float
    end_s: float = math.inf
    ending: str = ""
    """revoked, fenced, killed, stopped, hung, session."""
    handed: list[tuple[float, int, int]] = field(default_factory=list)
    """When the poll began, first offset, end."""


@dataclass
class MemberJudgement:
    """The counts of a run, and what is wrong."""

    holdings: list[Holding] = field(default_factory=list)
    handed: int = 0
    again: Counter[str] = field(default_factory=Counter)
    """Records that were handed out again, by the ending of the holding before."""
    commits: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Commits that raised an error, by its name."""
    raised: Counter[str] = field(default_factory=Counter)
    """Polls that raised an error."""
    without_owner_s: float = 0.0
    """The longest time in which a partition had no owner, once it had its first."""
    without_owner_at: tuple[int, float] = (-1, 0.0)
    """That partition, and the begin of that time."""
    overlaps: int = 0
    wrong: list[str] = field(default_factory=list)


class _Reading:
    """One story, event by event, as holdings."""

    def __init__(self, story: MemberStory, judgement: MemberJudgement) -> None:
        self._story, self._judgement = story, judgement
        self._open: dict[int, Holding] = {}
        self._last: dict[int, Holding] = {}  # the newest of each partition, open or not
        self._revoking_s: dict[int, float] = {}  # when the callback began that gives a partition back
        self._until_s = 0.0
        self._held_s = 0.0  # of the last line that says that it holds what it has

    def read(self) -> None:
        for event in self._story.events:
            if event.kind == "handed":
                self._note_handed(event)
            elif event.until_s == 0.0:  # the coordinator has fenced it since that line, or its own time was over
                self._close_all(min(self._held_s, self._until_s), event.time_s)
            self._follow(event)
            if event.until_s:
                self._until_s, self._held_s = event.until_s, event.time_s
        if self._story.died_s is not None:
            self._close(self._open.keys(), self._story.died_s, "killed")
        self._judgement.wrong += [
            f"{self._story.name} ended and did not give back partition {partition}" for partition in self._open
        ]

    def _follow(self, event: MemberEvent) -> None:
        match event.kind:
            case "assigned":
                for partition in event.offsets:
                    holding = Holding(self._story.name, partition, event.time_s)
                    if partition in self._open:
                        self._wrong(f"was assigned partition {partition} twice")
                    self._open[partition] = self._last[partition] = holding
                    self._judgement.holdings.append(holding)
            case "revoking":
                self._revoking_s |= dict.fromkeys(event.offsets, event.time_s)
            case "revoked":
                self._close(event.offsets, event.time_s, "revoked")
            case "lost":
                self._close_all(min(event.time_s, self._until_s), event.time_s)
            case "raised":
                self._judgement.raised[event.words] += 1
            case "refused":
                self._judgement.refused[event.words] += 1
                if event.words in FENCED:
                    self._close(self._revoking_s.keys() & event.offsets.keys(), event.time_s, "fenced")

    def _note_handed(self, event: MemberEvent) -> None:
        was_stopped = self._story.was_stopped(event.since_s, event.time_s)
        if 0.0 < event.until_s < event.since_s:
            self._wrong(f"got records {event.since_s - event.until_s:.3f} s after its time by its own clock")
        for partition, (first, end) in event.offsets.items():
            holding = self._last.get(partition)
            if holding is None:
                self._wrong(f"got offset {first} of partition {partition}, which it was never assigned")
                continue
            is_late = event.time_s > holding.end_s + GRACE_S and not was_stopped
            if is_late or event.since_s > holding.end_s:
                self._wrong(f"got offset {first} of partition {partition} after its time ({holding.ending})")
            if event.since_s > self._revoking_s.get(partition, math.inf):
                self._wrong(f"got offset {first} of partition {partition} while it gave that back")
            holding.handed.append((event.since_s, first, end))
        if event.until_s == 0.0:  # it fell out of the group between the hand-out and its line
            end_s = max(self._until_s, event.since_s) if was_stopped else event.time_s
            self._close_all(end_s, event.time_s)

    def _close_all(self, end_s: float, seen_s: float) -> None:
        """It has lost all. Why?"""
        story = self._story
        recent_s = end_s - 15.0
        if story.was_stopped(recent_s, seen_s):
            ending = "stopped"
        elif any(recent_s <= hang_s <= seen_s for hang_s in story.hangs):
            ending = "hung"
        else:
            ending = "session"
        self._close(self._open.keys(), end_s, ending)

    def _close(self, partitions: Iterable[int], end_s: float, ending: str) -> None:
        """A member that is fenced while it gives partitions back had no more of their records since that began."""
        for partition in list(partitions):
            revoking_s = self._revoking_s.pop(partition, math.inf)
            if (holding := self._open.pop(partition, None)) is not None:
                end_s = end_s if ending == "revoked" else min(end_s, revoking_s)
                holding.end_s, holding.ending = max(end_s, holding.begin_s), ending

    def _wrong(self, words: str) -> None:
        self._judgement.wrong.append(f"{self._story.name} {words}")


@dataclass
class _Commits:
    """Of one partition: when, and the next offset to read."""

    asked: list[tuple[float, int]] = field(default_factory=list)
    acknowledged: list[tuple[float, int]] = field(default_factory=list)

    def acknowledged_before(self, time_s: float) -> int:
        return max((offset for at_s, offset in self.acknowledged if at_s < time_s), default=0)

    def asked_before(self, time_s: float) -> int:
        return max((offset for at_s, offset in self.asked if at_s <= time_s), default=0)


def judge_members(
    stories: Iterable[MemberStory],
    acknowledged: Mapping[int, set[int]],
    *,
    committed: Mapping[int, int],
    quiet: tuple[float, float],
) -> MemberJudgement:
    """`acknowledged`: the offsets of acknowledged records, by partition. `committed`: what the group has committed in
    the end. `quiet`: a time after the last fault in which each partition has an owner all the time."""
    judgement = MemberJudgement()
    commits = {partition: _Commits() for partition in acknowledged}
    for story in stories:
        _Reading(story, judgement).read()
        for event in story.events:
            for partition, (_, end) in event.offsets.items():
                if event.kind == "commits":
                    commits[partition].asked.append((event.time_s, end))
                elif event.kind == "committed":
                    commits[partition].acknowledged.append((event.time_s, end))
            judgement.commits += event.kind == "committed"
    by_partition: dict[int, list[Holding]] = {partition: [] for partition in acknowledged}
    for holding in judgement.holdings:
        by_partition[holding.partition].append(holding)
    for partition, holdings in by_partition.items():
        holdings.sort(key=lambda holding: holding.begin_s)
        _judge_owners(partition, holdings, quiet, judgement)
        _judge_records(partition, holdings, commits[partition], judgement)
        _judge_completeness(partition, holdings, acknowledged[partition], judgement)
        most = commits[partition].acknowledged_before(math.inf)
        if committed.get(partition, 0) < most:
            judgement.wrong.append(
                f"partition {partition}: a commit of {most} was acknowledged, and {committed.get(partition)} stands"
            )
    return judgement


def _judge_owners(
    partition: int, holdings: list[Holding], quiet: tuple[float, float], judgement: MemberJudgement
) -> None:
    covered_s = holdings[0].begin_s if holdings else -math.inf
    quiet_s, last = quiet[0], ""
    for holding in holdings:
        if holding.begin_s < covered_s:
            judgement.overlaps += 1
            judgement.wrong.append(
                f"partition {partition}: {holding.member} had it from {holding.begin_s:.3f}, and {last} until "
                f"{covered_s:.3f}"
            )
        if holding.begin_s - covered_s > judgement.without_owner_s:
            judgement.without_owner_s = holding.begin_s - covered_s
            judgement.without_owner_at = partition, covered_s
        if holding.begin_s <= quiet_s:
            quiet_s = max(quiet_s, holding.end_s)
        if holding.end_s >= covered_s:
            covered_s, last = holding.end_s, holding.member
    if quiet_s < quiet[1]:
        judgement.wrong.append(f"partition {partition} had no owner {quiet_s - quiet[0]:.3f} s into the quiet time")


def _judge_records(partition: int, holdings: list[Holding], commits: _Commits, judgement: MemberJudgement) -> None:
    endings: dict[int, str] = {}  # of the newest holding in which an offset was handed out
    for holding in holdings:
        where = f"partition {partition}, {holding.member}"
        expected: int | None = None
        for since_s, first, end in holding.handed:
            judgement.handed += end - first
            if expected is None and first > (most := commits.asked_before(holding.begin_s)):
                judgement.wrong.append(f"{where}: began at {first}, and nobody committed more than {most}")
            if expected is not None and first != expected:
                judgement.wrong.append(f"{where}: got {first} where {expected} was next")
            if first < (done := commits.acknowledged_before(since_s)):
                judgement.wrong.append(f"{where}: got {first} again, and {done} was committed before")
            expected = end
            judgement.again.update(endings[offset] for offset in range(first, end) if offset in endings)
        endings |= {offset: holding.ending for _, first, end in holding.handed for offset in range(first, end)}


def _judge_completeness(
    partition: int, holdings: list[Holding], acknowledged: set[int], judgement: MemberJudgement
) -> None:
    spans = itertools.chain.from_iterable(holding.handed for holding in holdings)
    handed = {offset for _, first, end in spans for offset in range(first, end)}
    if missing := sorted(acknowledged - handed):
        judgement.wrong.append(
            f"partition {partition}: {len(missing)} acknowledged records were handed to nobody, first {missing[0]}"
        )
