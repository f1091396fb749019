"""The sender under acks=0: nobody answers, and what a healthy cluster would take is not lost all the same."""

from __future__ import annotations

from minilog.errors import NotLeaderOrFollower
from minilog.v1 import common_pb2
from tests.rules import proves
from tests.unit.client.brokers import Brokers
from tests.unit.client.producing import Producing

pytestmark = proves("PR.1")


def unasked() -> Producing:
    """Under acks=0, with a leader that has proven that it takes what is sent."""
    cluster = Producing(Brokers(), acks=0)
    cluster.send(b"first")
    cluster.run()
    return cluster


def test_acks_0_is_done_once_sent() -> None:
    cluster = unasked()
    cluster.mute = True
    future = cluster.send(b"a")
    cluster.run()
    assert future.result(0).offset == -1
    assert [request.acks for request in cluster.requests] == [1, 0]


def test_acks_0_is_not_done_while_it_is_in_this_process() -> None:
    """Once: it was reported as delivered when it was queued; buffer.memory did not bound the queue either."""
    cluster = unasked()
    cluster.clogged = True
    futures = [cluster.send(b"%d" % number) for number in range(20)]
    cluster.run()
    assert not any(future.done() for future in futures)
    assert sum(len(request.entries) for request in cluster.requests) == 1 + 5, "five are out, the others are counted"
    cluster.clogged = False
    cluster.lose_connection(1)
    cluster.run(1000)
    assert [future.result(0).offset for future in futures] == [-1] * 20
    assert cluster.brokers.log().end == 1 + 20


def test_acks_0_loses_nothing_to_a_leader_that_does_not_lead_yet() -> None:
    """A topic was created a moment ago: its first records were refused, and nobody heard of it."""
    cluster = Producing(Brokers(), acks=0)
    cluster.brokers.script.extend([common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER] * 2)
    futures = [cluster.send(b"%d" % number) for number in range(20)]
    cluster.run(1000)
    assert [future.result(0).offset for future in futures] == [-1] * 20
    assert (cluster.brokers.log().end, cluster.lost) == (20, [])


def test_acks_0_looks_who_leads_as_soon_as_it_is_refused() -> None:
    """What was refused is lost, and told; what is sent 100 ms later is not: metadata.max.age.ms would be 5 s."""
    cluster = unasked()
    cluster.brokers.move(2)
    cluster.send(b"lost")
    cluster.run(100)
    cluster.send(b"after")
    cluster.run()
    assert cluster.brokers.log().end == 2
    assert [type(error) for error in cluster.lost] == [NotLeaderOrFollower]
    assert [request.acks for request in cluster.requests] == [1, 0, 1], "the new leader proves itself first"


def test_acks_0_what_is_sent_again_to_another_leader_is_asked_for_an_answer_first() -> None:
    """A stream broke and another leads: the new leader may not know of it yet, and would refuse what nobody misses."""
    cluster = unasked()
    cluster.clogged = True
    futures = [cluster.send(b"%d" % number) for number in range(5)]
    cluster.run()
    before = len(cluster.requests)
    cluster.brokers.move(2)
    cluster.clogged = False
    cluster.lose_connection(1)
    cluster.run(1000)
    assert [future.result(0).offset for future in futures] == [-1] * 5
    assert [(request.acks, len(request.entries)) for request in cluster.requests[before:]] == [(1, 1), (0, 4)]
    assert (cluster.brokers.log().end, cluster.lost) == (1 + 5, [])
