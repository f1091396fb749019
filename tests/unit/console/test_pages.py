"""The values of pages, from the client's answers and from a viewer's input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import InvalidArgument
from minilog.types import (
    BrokerDescription,
    ClusterDescription,
    GroupDescription,
    GroupOffset,
    PartitionDescription,
    QueueDescription,
    QueuePosition,
    QueueRange,
    TopicDescription,
    VoterDescription,
)
from minilog_tools.console.cluster_view import ClusterView, FirstLooks, GroupLook
from minilog_tools.console.pages.cluster import broker_rows, topic_row
from minilog_tools.console.pages.page import ON_ONE_PAGE, Visit, piece_of
from minilog_tools.console.pages.records import wanted_records
from minilog_tools.console.pages.topics import partition_row
from minilog_tools.console.queue_look import QueueLook
from minilog_tools.console.record_reader import MOST_RECORDS, RecordReader, Start
from minilog_tools.console.rendering import age, href, rate, short, size, time_text
from minilog_tools.console.shown_bytes import Form


def partition(number: int, leader: int | None = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionDescription:
    ends: dict[int, int | None] = {1: 100, 2: 100, 3: 40}
    return PartitionDescription(
        number, leader, 0, 0, [1, 2, 3], list(isr), [], 10, 90, 90, 100, replica_ends=ends, size_bytes=2048
    )


def topic(*partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription("flights", "id", False, {}, list(partitions))


def visit(**fields: str) -> Visit:
    return Visit(ClusterView({}), fields, RecordReader())


def test_a_topic_is_as_well_as_its_worst_partition() -> None:
    assert topic_row(topic(partition(0)), None).state == "in sync"
    assert topic_row(topic(partition(0), partition(1, isr=(1, 2))), None).state == "under-replicated"
    assert topic_row(topic(partition(0), partition(1, leader=None, isr=(3,))), None).state == "no leader"


def test_records_of_a_topic_are_told_where_all_leaders_answer() -> None:
    dead = PartitionDescription(1, None, 0, 0, [1], [1], [], None, None, None, None)
    assert topic_row(topic(partition(0), partition(1)), {"flights": 2.5}).records == 160
    assert topic_row(topic(partition(0), dead), None).records is None
    assert topic_row(topic(partition(0)), None).rate is None
    assert topic_row(topic(partition(0)), {}).rate == 0.0
    assert topic_row(topic(partition(0), partition(1)), None).size_bytes == 4096
    assert topic_row(topic(partition(0), dead), None).size_bytes is None


def test_a_replica_says_how_far_it_is_behind_its_leader() -> None:
    cells = partition_row(partition(0, isr=(1, 2))).replicas
    assert [(cell.broker_id, cell.state, cell.behind) for cell in cells] == [
        (1, "leader", 0),
        (2, "in sync", 0),
        (3, "out of sync", 60),
    ]


def test_brokers_are_counted_by_what_they_have() -> None:
    brokers = [BrokerDescription(number, "h", 1, None, "running") for number in (3, 1, 2, 4)]
    cluster = ClusterDescription("c", 1, 0, brokers, [VoterDescription(1, "d", False), VoterDescription(2, "d", True)])
    rows = broker_rows(cluster, [topic(partition(0), partition(1, leader=2, isr=(1, 2)))])
    assert [(row.broker.id, row.role, row.leaders, row.replicas, row.out_of_sync) for row in rows] == [
        (1, "controller", 1, 2, 0),
        (2, "voter that lost its disk", 1, 2, 0),
        (3, "observer", 0, 2, 1),
        (4, "observer", 0, 0, 0),
    ]


def test_a_long_list_comes_in_pieces() -> None:
    names = [f"topic-{number:04}" for number in range(1000)]
    assert piece_of(visit(), names, str).items == names[:ON_ONE_PAGE]
    second = piece_of(visit(page="2", q="TOPIC-00"), names, str)
    assert (second.items, second.count, second.total) == (names[50:100], 2, 100)
    for wrong in ("0", "-1", "x", "²", "9" * 30, "99999"):
        assert 1 <= piece_of(visit(page=wrong), names, str).number <= 20
    assert piece_of(visit(q="nothing"), names, str).items == []


def test_the_form_of_records_is_read() -> None:
    wanted = wanted_records(
        {"start": "time", "at": "2026-05-01T12:00", "count": "5000", "key": "0xC0FFEE", "form": "hex", "partition": "3"}
    )
    assert wanted.start is Start.TIME
    assert wanted.at == 1777636800000
    assert wanted.count == MOST_RECORDS
    assert (wanted.key, wanted.form, wanted.partition) == (b"\xc0\xff\xee", Form.HEX, 3)
    assert wanted_records({"start": "time", "at": "1777636800000"}).at == 1777636800000
    assert wanted_records({"columns": "carrier, delay,", "where": " "}).columns == ("carrier", "delay")
    assert wanted_records({}).start is Start.LATEST
    assert wanted_records({}).is_any
    assert (wanted_records({"value": "EWR"}).value, wanted_records({"value": "EWR"}).is_any) == (b"EWR", False)


@pytest.mark.parametrize(
    "fields",
    [
        {"start": "<script>"},
        {"start": "offset", "at": "-1"},
        {"start": "offset", "at": "²"},
        {"start": "time", "at": "yesterday"},
        {"start": "time", "at": "9" * 18},
        {"partition": "1e9"},
        {"count": "9" * 40},
        {"key": "0xZZ"},
        {"value": "0xZZ"},
        {"form": "picture"},
    ],
)
def test_a_page_that_cannot_be_read_says_so(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        wanted_records(fields)


def test_numbers_are_short_for_people() -> None:
    assert [short(value) for value in (None, 0, 7, 1.25, 9999, 10_400, 1_250_000, 3e9)] == [
        "–", "0", "7", "1.2", "9,999", "10.4 k", "1.25 M", "3 G",
    ]  # fmt: skip
    assert (rate(None), rate(225.0)) == ("–", "225/s")
    assert [size(value) for value in (None, 12, 2048, 62_914_560)] == ["–", "12 B", "2.0 KiB", "60.0 MiB"]
    assert [age(value) for value in (None, 0, 0.5, 59, 150, 9000, 864_000)] == [
        "–", "0 s", "< 1 s", "59 s", "2 min", "2 h", "10 d",
    ]  # fmt: skip
    assert time_text(1777636800123) == "2026-05-01 12:00:00.123"
    assert time_text(2**62) == f"{2**62} ms"


def test_names_in_addresses_are_quoted() -> None:
    assert href("/topic", name='a"/&=<b>', q=None) == "/topic?name=a%22%2F%26%3D%3Cb%3E"
    assert href("/topic", name="\udcff") == "/topic?name=%3F"


def test_a_queue_is_the_sum_of_its_partitions() -> None:
    leased = QueueRange(4, 6, "leased", 2, 11, "shipper-1", 20_000)
    settling = QueueRange(7, 7, "settling", 1, 12, "shipper-1", 0)
    ready = QueueRange(0, 1, "ready", 1, 0, "", 3_000)
    first = QueuePosition("orders", 0, 4, 9, 12, [leased, settling], 1, 2)
    second = QueuePosition("orders", 1, 0, 2, 2, [ready], 3, 4)
    look = QueueLook("jobs", QueueDescription("jobs", {}, [first, second]))
    assert (look.count("leased"), look.count("ready"), look.count("settling")) == (3, 2, 1)
    assert (look.backlog, look.unsettled, look.worker_count) == (3, 9, 1)
    assert look.undecided_count is None
    known = [replace(first, undecided_count=18), replace(second, undecided_count=0)]
    assert QueueLook("jobs", QueueDescription("jobs", {}, known)).undecided_count == 18
    assert (look.dead_count, look.expired_count) == (6, 4)
    assert [row.remaining_s for row in look.ranges] == [20.0, None, 3.0]


def test_a_group_has_a_lag_in_each_topic() -> None:
    offsets = [
        GroupOffset("flights", 0, 5, end_offset=9, lag_records=4, lag_seconds=1.5, committed_ms=0, metadata=""),
        GroupOffset("flights", 1, 5, end_offset=7, lag_records=2, lag_seconds=3.5, committed_ms=0, metadata=""),
        GroupOffset("weather", 0, 5, end_offset=None, lag_records=None, lag_seconds=None, committed_ms=0, metadata=""),
    ]
    look = GroupLook("report", GroupDescription("report", offsets, []))
    assert (look.lag_in("flights"), look.seconds_in("flights")) == (6, 3.5)
    assert (look.lag_in("weather"), look.seconds_in("weather")) == (None, None)
    assert look.offsets_in("bookings") == []


def test_looks_name_what_they_leave_out() -> None:
    assert FirstLooks(["a"], 1).note == ""
    assert FirstLooks(["a"], 30).note == "Of the first 1 of 30."
    assert FirstLooks([], 0, "no coordinator").note == "no coordinator"


def test_a_queue_whose_end_is_not_known_has_no_backlog() -> None:
    unknown = QueuePosition("orders", 1, 0, 0, None, [], 0, 0)
    look = QueueLook("jobs", QueueDescription("jobs", {}, [unknown]))
    assert (look.backlog, look.unsettled) == (None, None)
    hidden = QueueLook("jobs", None, InvalidArgument("no"))
    assert (hidden.positions, hidden.ranges, hidden.worker_count) == ([], [], 0)
