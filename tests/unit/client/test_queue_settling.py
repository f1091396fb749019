"""The outcome of a verdict that a worker sends more than once (docs/spec/queues.md § Settlement)."""

from __future__ import annotations

from minilog.errors import CoordinatorLoadInProgress, InvalidRecordState, UnknownOutcome
from minilog.queues.settling import AGAIN_MS
from tests.unit.client.queueing import Working, leased_range


def test_a_refusal_behind_an_unknown_outcome_and_a_passing_error_is_no_error() -> None:
    """The first attempt may have come there, whatever the second one met."""
    working = Working()
    working.grant(leased_range(0, 0))
    working.read([0], 1)
    working.hand_out()[0].accept()
    for error in (UnknownOutcome("lost"), CoordinatorLoadInProgress("later")):
        working.sent()
        working.worker.settling_failed(error, working.now_ms)
        working.now_ms += AGAIN_MS
    working.sent()
    working.settled({0: InvalidRecordState("the lease does not hold all of it")})
    assert not working.worker.errors
