"""A copy that is damaged where it was sound when it was written: found by whoever reads it, and given up."""

from __future__ import annotations

import pytest

from minilog.errors import CorruptMessage
from minilog.record_batch.header import check_crc, iterate_headers
from minilog.v1 import common_pb2
from minilog.v1.common_pb2 import PartitionId
from minilog.v1.data_pb2 import FetchPosition, FetchRequest
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.replication.replica_effects import CheckCopy
from minilog_broker.replication.sessions.copy_checks import MAX_WAITING, CopyChecks
from minilog_broker.storage.errors import DamagedCopy, DifferingCopy
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster


def test_a_leader_whose_consumer_got_it_damaged_looks_at_its_own_copy_and_gives_it_up() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster[1].flip_bit()
    session = cluster.consume(1, 0)
    cluster.settle()
    assert not cluster[1].offline, "what is sent is not looked at"
    cluster.fetch(1, session, 0, position_number=2, came_damaged=True)
    cluster.settle()
    assert KEY in cluster[1].offline
    last = cluster.runs(1, session)[-1]
    assert last.error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_all_that_came_damaged_is_looked_at_and_not_the_first_batch_only_by_whatever_session_it_is_told() -> None:
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    cluster[1].flip_bit()
    session = cluster.consume(1, 0)
    cluster.settle()
    assert not cluster[1].offline
    session = cluster.consume(1, 3)
    cluster.fetch(1, session, 0, position_number=2, came_damaged=True)
    cluster.settle()
    assert KEY in cluster[1].offline


def test_a_sound_copy_is_sent_again() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    session = cluster.consume(1, 0)
    cluster.settle()
    cluster.fetch(1, session, 0, position_number=2, came_damaged=True)
    cluster.settle()
    assert not cluster[1].offline
    assert [run.first_offset for run, batches in cluster.pushed(1, session) if batches] == [0, 0]


def find_damage(cluster: ReplicaCluster, broker_id: int) -> None:
    """A consumer asks again for what it was sent."""
    session = cluster.consume(broker_id, 0)
    cluster.settle()
    cluster.fetch(broker_id, session, 0, position_number=2, came_damaged=True)
    cluster.settle()


@proves("SE.21")
def test_a_damaged_copy_is_cut_and_fetched_again_when_the_controller_knows_of_it_and_once_in_a_life() -> None:
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    cluster[1].flip_bit()
    find_damage(cluster, 1)
    assert KEY in cluster[1].offline
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert KEY in cluster[1].offline
    cluster.controller.set_state(KEY, in_sync_replicas=(2, 3), damaged_replicas=(1,))
    cluster.settle()
    assert KEY not in cluster[1].offline
    assert cluster[1].logs[KEY].log_end_offset == cluster[2].logs[KEY].log_end_offset == 3
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2, 3), damaged_replicas=())
    cluster.settle()
    cluster[1].flip_bit()
    find_damage(cluster, 1)
    assert KEY in cluster[1].offline
    cluster.controller.set_state(KEY, in_sync_replicas=(2, 3), damaged_replicas=(1,))
    cluster.settle()
    assert KEY in cluster[1].offline, "a disk that damages it twice is not to be trusted"


def test_damage_that_a_command_of_the_disk_meets_is_cut_and_fetched_again_too() -> None:
    """Found by the simulator (seed 801879): a truncation met rot in an old segment. Taken for an error of the disk, it
    left the copy offline; the next life did not read that segment, and met it again."""
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    cluster[2].flip_bit()
    cluster[2].manager.log_failed(KEY, DamagedCopy("the header checksum is wrong"), cluster.now_ms)
    cluster.settle()
    assert KEY in cluster[2].offline
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 3), damaged_replicas=(2,))
    cluster.settle()
    assert KEY not in cluster[2].offline
    assert cluster[2].logs[KEY].log_end_offset == 3


def test_a_copy_that_differs_is_not_cut_while_it_is_the_last_of_the_isr() -> None:
    """The others left while they were compared: what was acknowledged since is on this disk alone."""
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    cluster[1].manager.log_failed(KEY, DifferingCopy("other records", 1), cluster.now_ms)
    cluster.settle()
    cluster.controller.set_state(KEY, in_sync_replicas=(1,), leader_id=NO_LEADER, damaged_replicas=(1,))
    cluster.settle()
    assert cluster[1].logs[KEY].log_end_offset == 3, "it is the last that has all"
    assert KEY in cluster[1].offline
    cluster.controller.set_state(KEY, in_sync_replicas=(2,), leader_id=2, damaged_replicas=(1,))
    cluster.settle()
    assert KEY not in cluster[1].offline, "another was chosen to lead"
    assert cluster[1].logs[KEY].log_end_offset == 1, "it is cut where it differs"


def set_aside(cluster: ReplicaCluster, broker_id: int, offset: int) -> None:
    """A scrub finds that the follower differs from `offset` on. The controller hears of it, and counts on others."""
    cluster[broker_id].manager.log_failed(KEY, DifferingCopy("other records", offset), cluster.now_ms)
    cluster.settle()
    assert KEY in cluster[broker_id].offline
    others = tuple(other for other in (1, 2, 3) if other != broker_id)
    cluster.controller.set_state(KEY, in_sync_replicas=others, damaged_replicas=(broker_id,))
    cluster.settle()


def test_a_copy_that_differs_is_fetched_again_each_time_and_its_disk_may_damage_it_once() -> None:
    """Its checksums are right. Until a restart it stayed offline at the second time, as if its disk were to blame."""
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    for offset in (1, 0, 2):
        set_aside(cluster, 2, offset)
        assert KEY not in cluster[2].offline
        assert cluster[2].logs[KEY].log_end_offset == 3, "it is fetched again"
        cluster.controller.set_state(KEY, in_sync_replicas=(1, 2, 3), damaged_replicas=())
        cluster.settle()
    for is_first in (True, False):
        cluster[2].manager.log_failed(KEY, DamagedCopy("the header checksum is wrong"), cluster.now_ms)
        cluster.settle()
        cluster.controller.set_state(KEY, in_sync_replicas=(1, 3), damaged_replicas=(2,))
        cluster.settle()
        assert (KEY not in cluster[2].offline) is is_first
        cluster.controller.set_state(KEY, in_sync_replicas=(1, 2, 3), damaged_replicas=())
        cluster.settle()


@proves("SE.21")
@pytest.mark.parametrize("first", range(13))
def test_a_flipped_bit_is_found_wherever_it_is(first: int) -> None:
    """By the leader when it looks at what it sends, or by its consumer, who says so: in headers as in bodies."""
    for number in range(first, 1_000, 13):
        cluster = ReplicaCluster()
        for _ in range(3):
            cluster.produce(1)
        cluster.settle()
        if number >= sum(header.length for header in cluster[1].headers()):
            break
        cluster[1].flip_bit(number)
        session = cluster.consume(1, 0)
        cluster.settle()
        if KEY in cluster[1].offline:
            continue
        broken_at = first_broken(b"".join(batches for _, batches in cluster.pushed(1, session)))
        assert broken_at is not None, f"the consumer believes a run whose byte {number} is wrong"
        cluster.fetch(1, session, broken_at, position_number=2, came_damaged=True)
        cluster.settle()
        assert KEY in cluster[1].offline, f"byte {number} of the log is wrong, and the leader's look did not find it"


def first_broken(batches: bytes) -> int | None:
    """The offset behind the last batch of a run that a consumer believes, where that is not all of the run."""
    offset, position = 0, 0
    try:
        for at, header in iterate_headers(batches):
            check_crc(*KEY, memoryview(batches)[at : at + header.length], header)
            assert header.base_offset == offset
            offset, position = header.next_offset, at + header.length
    except CorruptMessage:
        return offset
    return None if position == len(batches) else offset


def looks(cluster: ReplicaCluster, broker_id: int) -> list[CheckCopy]:
    return [each for each in cluster[broker_id].history if isinstance(each, CheckCopy)]


@proves("SE.21")
def test_however_often_it_is_asked_a_place_is_looked_at_once_by_the_disk_and_one_place_at_a_time() -> None:
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    sessions = [cluster.consume(1, 3) for _ in range(3)]
    for number in range(2, 100):
        for session in sessions:
            cluster.fetch(1, session, number % 3, position_number=number, came_damaged=True)
    assert len(looks(cluster, 1)) == 1
    assert len(cluster[1].disk) == 1, "the loop reads nothing"
    cluster.settle()
    assert len(looks(cluster, 1)) == 3
    for session in sessions:  # the last position counts, and is sent from once it was looked at
        assert [run.first_offset for run, batches in cluster.pushed(1, session) if batches] == [0]


def test_a_position_that_was_forgotten_or_replaced_while_its_copy_is_looked_at_is_not_sent_from() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    forgotten, replaced = cluster.consume(1, 1), cluster.consume(1, 1)
    for session in (forgotten, replaced):
        cluster.fetch(1, session, 0, position_number=2, came_damaged=True)
    cluster[1].manager.fetch_request(forgotten, FetchRequest(forgotten=[PartitionId(topic_id=KEY[0])]), cluster.now_ms)
    cluster.fetch(1, replaced, 1, position_number=3)
    cluster.settle()
    for session in (forgotten, replaced):
        assert not [run for run, batches in cluster.pushed(1, session) if batches]


def test_where_too_many_looks_wait_a_position_is_sent_from_without_one() -> None:
    checks = CopyChecks(lambda _: None, 1)
    assert all(checks.ask(KEY, offset) for offset in range(MAX_WAITING))
    assert not checks.hold(KEY, 1, FetchPosition(fetch_offset=MAX_WAITING))
    assert checks.hold(KEY, 1, FetchPosition(fetch_offset=0)), "what is asked already costs nothing more"
    assert list(checks.looked(KEY, 0)) == [1]
    assert checks.ask(KEY, MAX_WAITING)
