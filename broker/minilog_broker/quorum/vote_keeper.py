"""A voter's epoch and vote, as they are and as they are on disk. Nothing that rests on them goes out before (V11)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minilog_broker.quorum.quorum_effects import NO_VOTE, PersistVote, QuorumEffect, VoteState


class VoteKeeper:
    """`current` may be ahead of `durable`. `when_durable` waits for everything that is recorded by then."""

    def __init__(self, stored: VoteState, emit: Callable[[QuorumEffect], None]) -> None:
        self.current = stored
        self.durable = stored
        self._emit = emit
        self._writing: deque[VoteState] = deque()
        self._written = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # (writes that must be done, what then)

    def record(self, epoch: int, voted_for: int = NO_VOTE, voted_directory: bytes = b"") -> None:
        """Take a later epoch, or a first vote in this one. Another vote in the same epoch, or an older epoch, is a
        mistake of ours."""
        current = self.current
        if epoch == current.epoch and voted_for in (NO_VOTE, current.voted_for):
            return
        if epoch < current.epoch or (epoch == current.epoch and current.voted_for != NO_VOTE):
            raise AssertionError(f"a vote for {voted_for} in epoch {epoch} would take back {current}")
        self.current = VoteState(epoch, voted_for, voted_directory)
        self._writing.append(self.current)
        self._emit(PersistVote(epoch, voted_for, voted_directory))

    @property
    def is_writing(self) -> bool:
        return bool(self._writing)

    def voted_for(self, epoch: int) -> int:
        """The broker that this voter has voted for in `epoch`, which is not below the current one; NO_VOTE: none."""
        return self.current.voted_for if self.current.epoch == epoch else NO_VOTE

    def is_free_for(self, epoch: int, candidate_id: int, directory_id: bytes) -> bool:
        """Whether our vote in `epoch`, which is not below the current one, is free, or this candidate has it."""
        voted_for, voted_directory = self.voted_for(epoch), self.current.voted_directory
        return voted_for == NO_VOTE or (voted_for == candidate_id and voted_directory in (b"", directory_id))

    def when_durable(self, action: Callable[[], None]) -> None:
        """Call `action` as soon as everything that is recorded now is on disk."""
        if not self._writing:
            action()
        else:
            self._waiting.append((self._written + len(self._writing), action))

    def persisted(self) -> None:
        """The oldest write is done."""
        if not self._writing:
            return
        self.durable = self._writing.popleft()
        self._written += 1
        while self._waiting and self._waiting[0][0] <= self._written:
            self._waiting.popleft()[1]()
