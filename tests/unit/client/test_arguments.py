"""What programs hand in, taken in each form that says what it means, and refused with what is right."""

from __future__ import annotations

import numpy as np
import pytest

from minilog.errors import BrokerNotAvailable, InvalidArgument, InvalidRecord, UnknownTopicOrPartition
from minilog.producer.arguments import checked_headers, checked_partition, checked_timestamp_us
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.consuming import Consuming, fill

PARTITION = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("given", [[("a", b"1"), ("b", None)], (("a", b"1"), ("b", None)), {"a": b"1", "b": None}])
def test_headers_are_pairs_or_a_dict(given: object) -> None:
    """Once: a dict gave "not enough values to unpack"."""
    assert list(checked_headers(TOPIC, given)) == [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    "given", ["ab", b"ab", 5, ["ab"], [("a",)], [("a", "text")], [(b"a", b"1")], {"a": 1}, {1: b""}]
)
def test_other_headers_are_refused_with_what_is_right(given: object) -> None:
    with pytest.raises(InvalidRecord, match="give a list of pairs, or a dict, of str and bytes or None"):
        checked_headers(TOPIC, given)


def test_assign_takes_the_offsets_of_a_mapping() -> None:
    """Once: `assign({tp: 5})` dropped the 5, and began at auto.offset.reset."""
    brokers = Brokers()
    fill(brokers, 10)
    cluster = Consuming(brokers, auto_offset_reset="earliest")
    cluster.core.assign({PARTITION: 5})
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, offset) for offset in range(5, 10)]


@pytest.mark.parametrize("offset", [-1, "5", 1.5])
def test_assign_refuses_what_is_no_offset(offset: object) -> None:
    cluster = Consuming(Brokers())
    with pytest.raises(InvalidArgument, match="has no offset"):
        cluster.core.assign({PARTITION: offset})


def test_topics_that_are_not_there_are_told() -> None:
    """Once: subscribing to them said nothing."""
    cluster = Consuming(Brokers())
    cluster.core.subscribe([TOPIC, "absent"])
    assert cluster.core.missing_topics() == [], "nobody was asked yet"
    cluster.run()
    assert cluster.core.missing_topics() == ["absent"]


def test_a_partition_that_nobody_could_be_asked_about_is_not_said_to_be_missing() -> None:
    """Once: "there is no topic" was said where no broker answered at all."""
    cluster = Consuming(Brokers())
    cluster.core.assign([TopicPartition("elsewhere", 0)])
    cluster.run()
    unreachable = BrokerNotAvailable("no broker answered in time; bootstrap.servers=127.0.0.1:1")
    cluster.core.metadata_failed(unreachable)
    cluster.now += 6_000
    cluster.core.poll(cluster.now)
    with pytest.raises(BrokerNotAvailable, match="no broker answered"):
        cluster.core.take(1)
    cluster.core.metadata_changed(cluster.now)
    for _ in range(2):
        cluster.now += 6_000
        cluster.core.poll(cluster.now)
    assert cluster.core.take(1) == [], "the next question has no answer yet: silence is no news of the topic"
    cluster.core.metadata_changed(cluster.now)
    cluster.now += 2_000
    cluster.core.poll(cluster.now)
    with pytest.raises(UnknownTopicOrPartition, match="create it"):
        cluster.core.take(1)


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3), np.array(3)], ids=repr)
def test_partitions_and_time_stamps_become_whole_numbers_of_python(given: object) -> None:
    for found, wanted in ((checked_partition("flights", given), 3), (checked_timestamp_us("flights", given), 3000)):
        assert (found, type(found)) == (wanted, int)


@pytest.mark.parametrize("given", [1.0, True, np.float64(1), np.bool_(True), "1", b"1"], ids=repr)
def test_a_value_that_is_no_whole_number_is_no_partition_and_no_time_stamp(given: object) -> None:
    with pytest.raises(InvalidRecord, match=r"the partition for topic 'flights' is .*: give an int"):
        checked_partition("flights", given)
    with pytest.raises(InvalidRecord, match=r"the time stamp of a record for topic 'flights' is .*: give milliseconds"):
        checked_timestamp_us("flights", given)


def test_a_time_stamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="give milliseconds since 1970"):
        checked_timestamp_us("flights", 1 << 62)
