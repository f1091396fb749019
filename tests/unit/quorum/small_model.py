"""A small model of the metadata quorum, searched breadth first: three voters, a few epochs and entries.

The production decides what is committed (quorum/commit.py), whose log is up to date (quorum/voting.py), and where a
voter's log leaves its leader's (replication/rules/divergence.py). Judged at every state: V11, one leader per epoch and
one vote per voter and epoch; V12, what is committed is on a majority's disks, and every later leader has it.

Simpler than life: every write is synced at once, an election is one event, pre-votes and time-outs are left out
(anybody may stand at any time).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

from minilog.v1 import peer_pb2
from minilog_broker.quorum import commit, voting
from minilog_broker.replication.rules import divergence
from minilog_broker.replication.rules.divergence import Accepted, Diverged, LeaderEpochs, StartAnewAt
from minilog_broker.storage.epoch_cache import EpochCache
from tests.judges.partition import check_epochs
from tests.judges.quorum import Holders, Leaders, OneLog, check_held, check_leader
from tests.judges.violation import hold
from tests.world.search import Search
from tests.world.search import search as breadth_first

VOTERS = (0, 1, 2)
Entries: TypeAlias = tuple[int, ...]  # the epoch of each; a leader's first entry is its leader change
Entry: TypeAlias = tuple[int, int]  # its offset and its epoch


class ModelVoter(NamedTuple):
    """A voter's disk (epoch, vote, log) and, where it leads, its memory."""

    epoch: int = 0
    voted_for: int = -1
    log: Entries = ()
    leads: bool = False
    epoch_start: int = 0
    ends: tuple[int, ...] = (0, 0, 0)  # what each voter has told this leader
    committed: int = 0


class QuorumModelState(NamedTuple):
    """`committed` is what any leader ever said was: no rule looks at it."""

    voters: tuple[ModelVoter, ...]
    committed: Entries
    led: tuple[tuple[int, tuple[int, int]], ...]  # (epoch, who led in it, in which life)


@dataclass(frozen=True, slots=True)
class QuorumBounds:
    epochs: int = 4
    entries: int = 2


def cache(log: Entries) -> EpochCache:
    epochs = EpochCache()
    for offset, epoch in enumerate(log):
        epochs.assign(epoch, offset)
    return epochs


def up_to_date(voter: ModelVoter, candidate: ModelVoter) -> bool:
    """Asks the production, which knows a log by its last entry."""

    def last(log: Entries) -> tuple[int, int]:
        return (log[-1] if log else -1, len(log))

    request = peer_pb2.VoteRequest(last_epoch=last(candidate.log)[0], last_end_offset=len(candidate.log))
    member = SimpleNamespace(log=SimpleNamespace(last_entry=last(voter.log)))
    return voting.is_up_to_date(cast(Any, member), request)


def next_states(state: QuorumModelState, bounds: QuorumBounds) -> Iterator[tuple[str, QuorumModelState]]:
    for number, voter in enumerate(state.voters):
        if voter.leads:
            yield (
                f"leader {number} starts anew",
                _with(state, {number: ModelVoter(voter.epoch, voter.voted_for, voter.log)}),
            )
        if voter.leads and len(voter.log) < bounds.entries:
            yield f"leader {number} appends", _led(state, number, voter._replace(log=(*voter.log, voter.epoch)))
        for other, peer in enumerate(state.voters):
            if other == number:
                continue
            if len(voter.log) < bounds.entries:
                yield from _elect(state, number, other, bounds)
            if voter.leads and peer.epoch <= voter.epoch:
                yield from _fetch(state, number, other)


def _with(state: QuorumModelState, changed: dict[int, ModelVoter]) -> QuorumModelState:
    voters = tuple(changed.get(number, voter) for number, voter in enumerate(state.voters))
    return state._replace(voters=voters)


def _elect(
    state: QuorumModelState, candidate_id: int, voter_id: int, bounds: QuorumBounds
) -> Iterator[tuple[str, QuorumModelState]]:
    """A candidate and one voter are a majority: both votes are durable, it leads. Who stands in vain skips epochs."""
    candidate, voter = state.voters[candidate_id], state.voters[voter_id]
    for epoch in range(candidate.epoch + 1, bounds.epochs + 1):
        free = voter.epoch < epoch or (voter.epoch == epoch and voter.voted_for in (-1, candidate_id))
        if free and up_to_date(voter, candidate):
            log = (*candidate.log, epoch)
            leader = ModelVoter(epoch, candidate_id, log, leads=True, epoch_start=len(candidate.log))
            after = _with(state, {voter_id: ModelVoter(epoch, candidate_id, voter.log)})
            yield f"voter {voter_id} elects {candidate_id} in epoch {epoch}", _led(after, candidate_id, leader)


def _led(state: QuorumModelState, leader_id: int, leader: ModelVoter) -> QuorumModelState:
    """What a leader's own log and what it was told let it commit."""
    if leader.leads:
        ends = tuple(len(leader.log) if each == leader_id else leader.ends[each] for each in VOTERS)
        committed = commit.committed_end([ends], leader.epoch_start, leader.committed)
        leader = leader._replace(ends=ends, committed=committed)
    return _with(state, {leader_id: leader})


def _fetch(state: QuorumModelState, leader_id: int, voter_id: int) -> Iterator[tuple[str, QuorumModelState]]:
    """The position is judged; then truncation, or one entry, and the leader is told the end."""
    leader, voter = state.voters[leader_id], state.voters[voter_id]
    end = len(voter.log)
    verdict = divergence.compare_position(
        LeaderEpochs(cache(leader.log), leader.epoch, leader.epoch_start),
        log_start=0,
        log_end=len(leader.log),
        fetch_offset=end,
        last_fetched_epoch=voter.log[-1] if voter.log else None,
    )
    vote = voter.voted_for if voter.epoch == leader.epoch else -1
    log = voter.log
    if isinstance(verdict, Diverged):
        what = divergence.truncation(cache(log), log_start=0, log_end=end, diverged=verdict, leader_log_start=0)
        log = log[: what.offset if isinstance(what, StartAnewAt) else what.end_offset]
        hold(len(log) < end, "V19", "a diverged voter cuts nothing")
    else:
        assert isinstance(verdict, Accepted)
        log = leader.log[: end + 1] if log == leader.log[:end] else (*log, *leader.log[end : end + 1])
        ends = tuple(len(log) if each == voter_id else told for each, told in enumerate(leader.ends))
        leader = leader._replace(ends=ends)
    after = _with(state, {voter_id: ModelVoter(leader.epoch, vote, log)})
    after = _led(after, leader_id, leader)
    if after != state:
        yield f"voter {voter_id} fetches from leader {leader_id}", after


def judged(_: QuorumModelState, state: QuorumModelState) -> QuorumModelState:
    """The state, with what the judges remember brought up to date."""
    leaders, log = Leaders(state.led), OneLog[Entry](_end_of, enumerate(state.committed))
    leads = {number: voter for number, voter in enumerate(state.voters) if voter.leads}
    for number, voter in enumerate(state.voters):
        check_epochs(f"b{number}", voter.log)
    for number, voter in leads.items():
        leaders.leads(number, 0, voter.epoch, voter.epoch)
        own = list(enumerate(voter.log))
        log.told(number, voter.committed, _first_other(own[: voter.committed], log.entries), own[log.end :])
    for number, voter in leads.items():
        if voter.epoch == max(leaders.of):
            check_leader(number, voter.epoch, _lacks(voter, log))
    check_held(log.end, [Holders(VOTERS, [number for number in VOTERS if _lacks(state.voters[number], log) is None])])
    committed = tuple(epoch for _, epoch in log.entries)
    return state._replace(committed=committed, led=tuple(sorted(leaders.of.items())))


def _end_of(entry: Entry) -> int:
    return entry[0] + 1


def _first_other(own: list[Entry], committed: list[Entry]) -> int | None:
    return next((mine[0] for mine, known in zip(own, committed, strict=False) if mine != known), None)


def _lacks(voter: ModelVoter, log: OneLog[Entry]) -> int | None:
    """The first committed offset that it has not, or otherwise."""
    own = list(enumerate(voter.log))
    return len(own) if len(own) < log.end else _first_other(own, log.entries)


def search(bounds: QuorumBounds) -> Search:
    """Visit all states within `bounds`."""
    first = QuorumModelState((ModelVoter(),) * len(VOTERS), (), ())
    return breadth_first(first, lambda state: next_states(state, bounds), judged, str)
