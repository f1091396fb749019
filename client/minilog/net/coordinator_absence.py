"""What a client tells its program while a coordinator does not serve it. No I/O.

    served     the coordinator answers: nothing is told
    absent     attempts fail. After `GRACE_MS` the reason is told, once a state: the broker and the kind of error
    told       a reason was told: the next good answer tells that it is over, and for how long it lasted

Without this a poll of a queue or of a group returns nothing for the time of a fail-over, as if there were no records.
A short absence is usual: a coordinator moves whenever a broker stops.
"""

from __future__ import annotations

from minilog.errors import (
    BrokerNotAvailable,
    CoordinatorLoadInProgress,
    LeaderNotAvailable,
    MinilogError,
    NotCoordinator,
    TimedOut,
)

GRACE_MS = 2_000.0
ABSENT = (BrokerNotAvailable, CoordinatorLoadInProgress, LeaderNotAvailable, NotCoordinator, TimedOut)
"""The errors of a coordinator that is away or not ready. After any other error it is there."""
MAX_ABSENCES = 100  # of one client: a program that asks for more coordinators at once learns of some


class CoordinatorAbsence:
    """The absence of one coordinator, as one client sees it. `what` names the coordinator."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began_ms: float | None = None
        self._told: set[tuple[int | None, type[MinilogError]]] = set()

    def failed(self, broker_id: int | None, error: MinilogError, now_ms: float) -> str | None:
        """An attempt failed, at this broker if there is one. Returns the warning, if this state is new."""
        if self._began_ms is None:
            self._began_ms = now_ms
        state = broker_id, type(error)
        if now_ms - self._began_ms < GRACE_MS or state in self._told:
            return None
        self._told.add(state)
        where = "" if broker_id is None else f" at broker {broker_id}"
        return (
            f"{self._what} does not serve{where}: {error}. This has lasted for "
            f"{(now_ms - self._began_ms) / 1000.0:.1f} s, and the client goes on asking"
        )

    def answered(self, now_ms: float) -> str | None:
        """An attempt succeeded. Returns the news that the absence is over, if it was told."""
        began_ms, self._began_ms = self._began_ms, None
        if began_ms is None or not self._told:
            return None
        self._told.clear()
        return f"{self._what} serves again, after {(now_ms - began_ms) / 1000.0:.1f} s"


class CoordinatorAbsences:
    """The coordinators that one client asks for and that are absent."""

    def __init__(self) -> None:
        self._absences: dict[str, CoordinatorAbsence] = {}

    def failed(self, what: str, broker_id: int | None, error: MinilogError, now_ms: float) -> str | None:
        """As of CoordinatorAbsence. An error of a coordinator that is there tells nothing."""
        if not isinstance(error, ABSENT):
            return None
        absence = self._absences.get(what)
        if absence is None:
            if len(self._absences) >= MAX_ABSENCES:
                del self._absences[next(iter(self._absences))]
            absence = self._absences[what] = CoordinatorAbsence(what)
        return absence.failed(broker_id, error, now_ms)

    def answered(self, what: str, now_ms: float) -> str | None:
        """As of CoordinatorAbsence."""
        absence = self._absences.pop(what, None)
        return None if absence is None else absence.answered(now_ms)
