"""Batches of a later version, on their way in and out: nobody drops, cuts or repairs them (docs/spec/levels.md)."""

from __future__ import annotations

import pytest

from minilog.errors import CorruptMessage, UnsupportedVersion, error_from_wire
from minilog.record_batch.header import decode_header
from minilog_broker.replication.replica_effects import AppendToLog, LaterVersionMet, TruncateLog
from tests.rules import proves
from tests.unit.record_batch.batches import of_a_later_version, patched, sealed
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch
from tests.unit.replication.test_follower import FollowerBench, placed

pytestmark = proves("DK.2")


def test_a_follower_ends_and_takes_nothing_behind_it() -> None:
    bench = FollowerBench()
    later = of_a_later_version(placed(6, 5), *KEY)
    bench.follower.receive(*bench.run(batches=placed(5, 5) + later + placed(7, 5)), 0.0)
    met = [effect for effect in bench.effects if isinstance(effect, LaterVersionMet)]
    assert [each.key for each in met] == [KEY]
    assert "offset 6" in str(met[0].error)
    appended = [effect for effect in bench.effects if isinstance(effect, AppendToLog)]
    assert [header.base_offset for effect in appended for header in effect.batches.headers] == [5]
    assert not any(isinstance(effect, TruncateLog) for effect in bench.effects)


def test_damage_that_looks_like_a_later_version_is_asked_for_again() -> None:
    bench = FollowerBench()
    bench.follower.receive(*bench.run(batches=patched(placed(5, 5), 31, "B", 0x80)), 0.0)
    assert not any(isinstance(effect, LaterVersionMet) for effect in bench.effects)
    assert bench.resume_ms


@pytest.mark.parametrize("data", [of_a_later_version(batch(), *KEY), sealed(patched(batch(), 3, "B", 50), *KEY)])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_of_a_later_version_is_refused_for_good_and_nothing_is_written(data: bytes, acks: int) -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, data, acks=acks)
    cluster.settle()
    error = cluster[1].answers[ticket].error
    assert isinstance(error, UnsupportedVersion)
    assert not error.retriable
    assert cluster[1].ends()[2] == 0
    again = cluster.produce(1)
    cluster.settle()
    assert cluster[1].answers[again].error is None


def test_a_damaged_batch_of_a_producer_is_still_damage() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, patched(batch(), 31, "B", 0x80))
    cluster.settle()
    assert isinstance(cluster[1].answers[ticket].error, CorruptMessage)


def test_the_refusal_has_a_code_of_its_own_on_the_wire() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1, of_a_later_version(batch(), *KEY))
    cluster.settle()
    from minilog.errors import wire_error

    error = cluster[1].answers[ticket].error
    assert error is not None
    assert isinstance(error_from_wire(wire_error(error)), UnsupportedVersion)
    with pytest.raises(UnsupportedVersion):
        decode_header(of_a_later_version(batch(), *KEY))
