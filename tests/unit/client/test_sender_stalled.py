"""Answers that do not come from a leader that is still connected: it was cut off from the others, or hangs.

Found by real brokers: a leader whose links to the other brokers were cut, but not the client's to it, kept a producer
until request.timeout.ms and longer, though another broker led the partition three seconds after the cut.
"""

from __future__ import annotations

import pytest

from tests.unit.client.brokers import Brokers
from tests.unit.client.producing import Producing
from tests.unit.client.test_sender import values

PATIENCE_MS = 500


def proven(**settings: object) -> Producing:
    """A producer that has written one record."""
    cluster = Producing(Brokers(), **settings)
    cluster.send(b"first")
    cluster.run()
    return cluster


def times_metadata_is_asked_for(cluster: Producing, monkeypatch: pytest.MonkeyPatch) -> int:
    """In ten times the patience."""
    asked = list[None]()
    metadata = cluster.brokers.metadata

    def counted() -> object:
        asked.append(None)
        return metadata()

    monkeypatch.setattr(cluster.brokers, "metadata", counted)
    cluster.run(10 * PATIENCE_MS)
    return len(asked)


@pytest.mark.parametrize("written", [False, True])
def test_batches_that_a_superseded_leader_does_not_answer_go_to_the_new_one_once_and_in_order(written: bool) -> None:
    cluster = proven()
    cluster.hold, cluster.mute = not written, written
    futures = [cluster.send(b"%d" % number) for number in range(4)]
    cluster.run(200)
    cluster.hold = cluster.mute = False
    old = list(cluster.held)
    cluster.brokers.move(leader=2)
    cluster.run(2 * PATIENCE_MS)
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert values(cluster.brokers) == [b"first", b"0", b"1", b"2", b"3"]
    assert [broker for broker, _, _ in cluster.sent[-4:]] == [2] * 4
    cluster.held = old
    cluster.release()  # the old leader's refusals come at last, and change nothing
    assert cluster.send(b"after").cancel() is True
    cluster.run(PATIENCE_MS)
    assert values(cluster.brokers)[:5] == [b"first", b"0", b"1", b"2", b"3"]


def test_a_leader_that_leads_again_is_sent_nothing_again_before_it_answers_or_is_lost() -> None:
    """Seed 920032: a broker was cut off, another led, and then it again: ten batches of one partition were unanswered
    on one stream."""
    cluster = proven()
    cluster.hold = True
    futures = [cluster.send(b"%d" % number) for number in range(4)]
    cluster.run(200)
    cluster.brokers.move(leader=2)
    cluster.run(2 * PATIENCE_MS)
    cluster.brokers.move(leader=1)
    cluster.run(4 * PATIENCE_MS)
    assert [broker for broker, _, _ in cluster.sent[1:]] == [1] * 4 + [2] * 4
    cluster.hold = False
    cluster.release()
    cluster.run(4 * PATIENCE_MS)
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert values(cluster.brokers) == [b"first", b"0", b"1", b"2", b"3"]


def test_metadata_is_not_asked_for_in_a_spin_while_a_leader_owes_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer made the lane due at once, which found that it was owed, and asked again."""
    cluster = proven()
    cluster.hold = True
    cluster.send(b"a")
    cluster.run(200)
    cluster.brokers.move(leader=2)
    cluster.run(2 * PATIENCE_MS)
    cluster.brokers.move(leader=1)
    asked = times_metadata_is_asked_for(cluster, monkeypatch)
    assert asked <= 30


def test_a_batch_given_up_under_acks_0_is_owed_until_it_has_left() -> None:
    """Nobody answers it: the connection took it at last, and that is all there is to know."""
    cluster = proven(acks=0)
    cluster.clogged = True
    cluster.send(b"late")
    cluster.run(2 * PATIENCE_MS)
    clogged = cluster.requests[-1]
    cluster.brokers.move(leader=2)
    cluster.run(2 * PATIENCE_MS)
    cluster.clogged = False
    cluster.sender.written(clogged)
    cluster.brokers.move(leader=1)
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.sender.metadata_changed(cluster.now)
    cluster.lose_connection(2)
    cluster.send(b"after")
    cluster.run(4 * PATIENCE_MS)
    assert values(cluster.brokers)[-1] == b"after"


def test_a_leader_that_is_only_slow_is_waited_for() -> None:
    cluster = proven()
    cluster.hold = True
    future = cluster.send(b"slow")
    cluster.run(5 * PATIENCE_MS)
    assert len(cluster.sent) == 2
    cluster.release()
    cluster.run()
    assert future.result(0).offset == 1


def test_an_answer_that_comes_soon_after_a_move_counts() -> None:
    cluster = proven()
    cluster.hold = True
    cluster.send(b"out")
    cluster.run(PATIENCE_MS / 5)
    cluster.brokers.move(leader=2)
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.sender.metadata_changed(cluster.now)
    cluster.run(PATIENCE_MS / 5)
    assert len(cluster.sent) == 2


def test_metadata_is_asked_for_five_times_a_second_while_an_answer_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = proven()
    cluster.hold = True
    cluster.send(b"slow")
    asked = times_metadata_is_asked_for(cluster, monkeypatch)
    assert 20 <= asked <= 24


def test_the_next_look_is_told_to_the_shell() -> None:
    cluster = proven()
    cluster.hold = True
    cluster.send(b"slow")
    cluster.run()
    assert cluster.sender.next_wake_ms(cluster.now) == pytest.approx(cluster.now + PATIENCE_MS)
