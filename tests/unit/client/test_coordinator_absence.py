"""What a client tells of a coordinator that does not serve (minilog/net/coordinator_absence.py)."""

from minilog.errors import CoordinatorLoadInProgress, InvalidRecordState, LeaderNotAvailable
from minilog.net.coordinator_absence import CoordinatorAbsence, CoordinatorAbsences

LOADING = CoordinatorLoadInProgress("it reads its log")
NO_LEADER = LeaderNotAvailable("partition 3 of '__queues' has no leader now")


def test_a_short_absence_is_not_told() -> None:
    absence = CoordinatorAbsence("the coordinator of queue 'jobs'")
    assert absence.failed(2, LOADING, 1_000.0) is None
    assert absence.failed(2, LOADING, 2_900.0) is None
    assert absence.answered(2_950.0) is None


def test_a_lasting_absence_is_told_once_a_state_with_broker_and_reason_and_again_when_it_is_over() -> None:
    absence = CoordinatorAbsence("the coordinator of queue 'jobs'")
    said = [absence.failed(None, NO_LEADER, at_ms) for at_ms in (0.0, 1_000.0, 2_000.0, 3_000.0)]
    said += [absence.failed(2, LOADING, at_ms) for at_ms in (5_000.0, 6_000.0, 38_000.0)]
    assert [text for text in said if text] == [
        "the coordinator of queue 'jobs' does not serve: partition 3 of '__queues' has no leader "
        "now. This has lasted for 2.0 s, and the client goes on asking",
        "the coordinator of queue 'jobs' does not serve at broker 2: it reads its log. This has lasted for 5.0 s, and "
        "the client goes on asking",
    ]
    assert absence.answered(38_200.0) == "the coordinator of queue 'jobs' serves again, after 38.2 s"
    assert absence.answered(38_300.0) is None


def test_the_next_absence_has_its_own_time_and_warning() -> None:
    absence = CoordinatorAbsence("the coordinator of group 'g'")
    absence.failed(1, LOADING, 0.0)
    assert absence.failed(1, LOADING, 2_000.0)
    absence.answered(3_000.0)
    assert absence.failed(1, LOADING, 10_000.0) is None
    assert absence.failed(1, LOADING, 12_000.0)


def test_a_coordinator_that_refuses_a_call_is_there() -> None:
    absences = CoordinatorAbsences()
    told = [absences.failed("it", 1, InvalidRecordState("no lease"), at_ms) for at_ms in (0.0, 5_000.0)]
    assert told == [None, None]
