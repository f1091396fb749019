"""What a client makes of another version: of the broker, and of what it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.consumer.decode import decode_all
from minilog.errors import UnsupportedVersion
from minilog.net.metadata_cache import MetadataCache
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, metadata_pb2
from minilog.versions import FIRST, PROTOCOL, VersionRange, check_protocol, range_from_wire
from tests.rules import proves
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill
from tests.unit.record_batch.batches import of_a_later_version, patched

pytestmark = proves("DK.2")


@proves("DK.3")
@pytest.mark.parametrize(
    ("own", "other", "too_old"),
    [
        (VersionRange(1, 1), VersionRange(2, 3), "client"),
        (VersionRange(4, 5), VersionRange(1, 3), "broker"),
        (VersionRange(1, 2), VersionRange(2, 3), None),
        (VersionRange(1, 9), VersionRange(5, 5), None),
    ],
)
def test_the_side_that_is_too_old_is_named(own: VersionRange, other: VersionRange, too_old: str | None) -> None:
    if too_old is None:
        check_protocol(own, "client", other, "broker")
        check_protocol(other, "broker", own, "client")
        return
    for pair in (((own, "client"), (other, "broker")), ((other, "broker"), (own, "client"))):
        with pytest.raises(UnsupportedVersion, match=f"{too_old} is too old, upgrade it") as raised:
            check_protocol(*pair[0], *pair[1])
        assert str(own) in str(raised.value)
        assert str(other) in str(raised.value)


def test_a_side_without_a_range_speaks_the_first_version() -> None:
    assert range_from_wire(common_pb2.ClientIdentity().protocol) == FIRST
    assert range_from_wire(PROTOCOL.to_wire()) == PROTOCOL


def test_the_level_of_the_cluster_is_what_it_says() -> None:
    cache = MetadataCache()
    assert cache.level == 1
    assert cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="c", metadata_offset=5, level=3))
    assert cache.level == 3
    assert not cache.apply(metadata_pb2.GetMetadataResponse(cluster_id="c", metadata_offset=4, level=2))
    assert cache.level == 3


class VersionsReading:
    """A consumer of a log with three batches, the second one another than it knows: whole, or only seemingly so."""

    def __init__(self, *, later: bool) -> None:
        brokers, self.partition = Brokers(), TopicPartition(TOPIC, 0)
        fill(brokers, 1, 1, 1)
        self.known = brokers.log(0).batches[1][2]
        self.other = of_a_later_version(self.known, TOPIC_ID, 0) if later else patched(self.known, 31, "B", 0x80)
        self.cluster = Consuming(brokers, auto_offset_reset="earliest")
        self.cluster.core.assign([self.partition])
        self.cluster.run()
        self.cluster.push()

    def poll(self) -> list[int]:
        runs = self.cluster.core.take(1 << 30)
        came = [replace(run, batches=bytes(run.batches).replace(self.known, self.other)) for run in runs]
        outcome = decode_all(came, 1 << 30)
        self.cluster.core.put_back(outcome.rest)
        self.cluster.core.runs_are_corrupt(outcome.corrupt, self.cluster.now)
        return [offset for _, found in outcome.good for rows in found for offset in rows.column("offset").to_pylist()]


def test_a_consumer_gives_what_is_before_it_and_then_refuses_at_once() -> None:
    reading = VersionsReading(later=True)
    assert reading.poll() == [0]
    assert reading.poll() == []
    with pytest.raises(UnsupportedVersion, match="was written by a later version"):
        reading.poll()
    assert reading.cluster.core.position(reading.partition) == 1


def test_damage_that_looks_like_it_is_tried_again() -> None:
    reading = VersionsReading(later=False)
    assert reading.poll() == [0]
    assert reading.poll() == []
    assert reading.poll() == [], "it is asked for again"
