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
    world = Producing(Brokers(), **settings)
    world.send(b"first")
    world.run()
    return world


@pytest.mark.parametrize("written", [False, True])
def test_what_a_superseded_leader_does_not_answer_goes_to_the_new_one_once_and_in_order(written: bool) -> None:
    world = proven()
    world.hold, world.mute = not written, written
    futures = [world.send(b"%d" % number) for number in range(4)]
    world.run(200)
    world.hold = world.mute = False
    old = list(world.held)
    world.brokers.move(leader=2)
    world.run(2 * PATIENCE_MS)
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert values(world.brokers) == [b"first", b"0", b"1", b"2", b"3"]
    assert [broker for broker, _, _ in world.sent[-4:]] == [2] * 4
    world.held = old
    world.release()  # the old leader's refusals come at last, and change nothing
    assert world.send(b"after").cancel() is True
    world.run(PATIENCE_MS)
    assert values(world.brokers)[:5] == [b"first", b"0", b"1", b"2", b"3"]


def test_a_leader_that_is_only_slow_is_waited_for() -> None:
    world = proven()
    world.hold = True
    future = world.send(b"slow")
    world.run(5 * PATIENCE_MS)
    assert len(world.sent) == 2
    world.release()
    world.run()
    assert future.result(0).offset == 1


def test_an_answer_that_comes_soon_after_a_move_counts() -> None:
    world = proven()
    world.hold = True
    world.send(b"out")
    world.run(PATIENCE_MS / 5)
    world.brokers.move(leader=2)
    world.cache.apply(world.brokers.metadata())
    world.sender.metadata_changed(world.now)
    world.run(PATIENCE_MS / 5)
    assert len(world.sent) == 2


def test_metadata_is_asked_for_five_times_a_second_while_an_answer_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = proven()
    world.hold = True
    world.send(b"slow")
    asked = 0
    metadata = world.brokers.metadata

    def counted() -> object:
        nonlocal asked
        asked += 1
        return metadata()

    monkeypatch.setattr(world.brokers, "metadata", counted)
    world.run(10 * PATIENCE_MS)
    assert 20 <= asked <= 24


def test_the_next_look_is_told_to_the_shell() -> None:
    world = proven()
    world.hold = True
    world.send(b"slow")
    world.run()
    assert world.sender.next_wake_ms(world.now) == pytest.approx(world.now + PATIENCE_MS)
