"""What is counted, how it is read, and that no name or label can break the text. No sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from minilog.errors import InvalidArgument, InvalidConfig
from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.queues.describing import RecordCounts
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.server.addresses import check_plaintext
from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import BrokerMetrics, Samples
from minilog_broker.server.metrics.end_history import MAX_POINTS, EndHistory
from minilog_broker.server.metrics.group_lag import LogEnd, lag_of
from minilog_broker.server.metrics.names import MAX_TOPICS, MetricType
from minilog_broker.server.metrics.observations import Observations
from minilog_broker.server.metrics.queue_records import QueueRecords
from minilog_broker.server.runtime.logging import configure_logging, escaped
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver

KEY = PartitionKey(b"t" * 16, 0)


class Told:
    """A source with these samples; it counts how often it is looked at."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.looks: list[tuple[str, ...]] = []

    async def look(self, topics: Sequence[str]) -> Samples:
        self.looks.append(tuple(topics))
        return self.samples


def exposed(observations: Observations, source: Told, *scrapes: list[str]) -> str:
    async def scenario() -> str:
        metrics = BrokerMetrics(observations, source)
        text = ""
        for topics in scrapes or ([],):
            text = (await metrics.expose(list(topics), "")).content.decode()
        return text

    return asyncio.run(scenario())


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {(each.name, tuple(each.labels.values())): each.value for each in samples}


def state(leader: int, epoch: int, isr: tuple[int, ...]) -> PartitionState:
    return PartitionState(
        key=KEY,
        topic_name="flights",
        replicas=(1, 2, 3),
        in_sync_replicas=isr,
        eligible_leaders=(),
        damaged_replicas=(),
        leader_id=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        leader_broker_epoch=1,
    )


def test_calls_appends_and_syncs_are_counted_by_kind() -> None:
    observations = Observations(1)
    produce = observations.call("Produce")
    assert observations.call("Produce") is produce
    produce.took(0.003)
    produce.received(100)
    produce.sent(7)
    observations.appended(90, 10)
    observations.synced(0.02)
    found = values(exposed(observations, Told([])))
    assert found["minilog_request_duration_seconds_count", ("Produce",)] == 1
    assert found["minilog_received_bytes_total", ("Produce",)] == 100
    assert found["minilog_sent_bytes_total", ("Produce",)] == 7
    assert found["minilog_appended_bytes_total", ()] == 90
    assert found["minilog_appended_records_total", ()] == 10
    assert found["minilog_sync_duration_seconds_sum", ()] == 0.02


def test_the_isr_and_elections_are_counted_where_this_broker_leads() -> None:
    observations = Observations(1)
    observations.partitions_changed([state(1, 1, (1, 2, 3))])  # the first word of a partition is no change
    observations.partitions_changed([state(1, 1, (1, 2))])
    observations.partitions_changed([state(1, 1, (1, 2, 3))])
    observations.partitions_changed([state(2, 2, (2, 3))])  # another leads: it counts
    observations.partitions_changed([state(1, 3, (1, 2, 3))])
    observations.partitions_removed([KEY])
    observations.partitions_changed([state(1, 4, (1,))])
    found = values(exposed(observations, Told([])))
    assert found["minilog_isr_shrinks_total", ()] == 1
    assert found["minilog_isr_expands_total", ()] == 2
    assert found["minilog_leader_elections_total", ()] == 1


def test_every_observer_does_the_same_things() -> None:
    """What shells call is there in both, and where nobody listens it does nothing."""
    for observer in (UNOBSERVED, Observations(1)):
        told: BrokerObserver = observer
        told.call("Fetch").took(0.1)
        told.appended(1, 1)
        told.synced(0.1)
        told.partitions_changed([])
        told.partitions_removed([KEY])
        told.controller_changed()
        told.unclean_election()
    assert UNOBSERVED.call("a") is UNOBSERVED.call("b")


@pytest.mark.parametrize("group", ['"', "\\", "a\nb", "\x1b[2J", "\u2028", "}\nminilog_topics 9", ""])
def test_a_label_of_any_text_stays_a_label(group: str) -> None:
    samples: Samples = [(names.GROUP_LAG_RECORDS, (group,), 5.0), (names.TOPICS, (), 1.0)]
    text = exposed(Observations(1), Told(samples))
    found = values(text)
    assert sum(name == "minilog_group_lag_records" for name, _ in found) == 1
    assert found["minilog_topics", ()] == 1
    assert text.replace("\n", "").isprintable()


def test_every_metric_has_one_type_and_its_help() -> None:
    samples: Samples = [
        (metric, tuple("x" for _ in metric.labels), 1.0)
        for metric in names.ALL
        if metric.type is MetricType.GAUGE
        or metric.name.startswith(
            ("minilog_scrub_", "minilog_log_cleaner_", "minilog_queue_")
        )  # read, and not counted here
    ]
    text = exposed(Observations(1), Told(samples))
    for each in names.ALL:
        assert text.count(f"# TYPE {each.name} {each.type.value}\n") == 1, each.name
        assert f"# HELP {each.name} " in text


def test_state_is_read_once_for_many_scrapes_and_anew_for_topics() -> None:
    source = Told([])
    exposed(Observations(1), source, [], [], ["flights"], [])
    assert source.looks == [(), ("flights",)]


def test_too_many_topics_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=f"names {MAX_TOPICS + 1} topics: one scrape has at most {MAX_TOPICS}"):
        exposed(Observations(1), Told([]), [f"t{each}" for each in range(MAX_TOPICS + 1)])


# -- the lag of groups


def history(*points: tuple[float, int]) -> EndHistory:
    found = EndHistory()
    for now_s, end in points:
        found.note(now_s, end)
    return found


@pytest.mark.parametrize(
    ("offset", "seconds"),
    [
        (300, 0.0),  # at the end
        (400, 0.0),  # above it, as after an unclean election
        (200, 10.0),  # the log ended there at 20
        (150, 15.0),
        (100, 20.0),
        (50, 20.0),  # before the first look: not more than that
    ],
)
def test_seconds_of_lag_are_since_the_log_ended_there(offset: int, seconds: float) -> None:
    assert history((10.0, 100), (20.0, 200), (30.0, 300)).seconds_since(offset, 30.0) == seconds


def test_a_history_is_bounded_and_stays_in_order() -> None:
    found = history(*((float(second), second * 10) for second in range(1_000)))
    assert len(found._points) <= MAX_POINTS
    assert found._points == sorted(found._points)
    assert found.seconds_since(9_500, 999.0) == pytest.approx(49.0, abs=1.0)
    assert found.seconds_since(100, 999.0) == pytest.approx(989.0, abs=5.0)
    assert EndHistory().seconds_since(0, 5.0) == 0.0


def test_a_queue_is_as_late_as_its_oldest_record_that_is_not_settled() -> None:
    records, other = QueueRecords(), QueueKey("jobs", PartitionKey(b"t" * 16, 1))
    counted = RecordCounts()
    assert records.lag_s(counted, 30.0) == 0.0
    counted.add(QueueKey("jobs", KEY), PartitionQueue(200, 0), None)
    assert records.lag_s(counted, 30.0) == 0.0, "no leader has reported yet"
    for key, settled_to in ((QueueKey("jobs", KEY), 200), (other, 300)):
        counted.add(key, PartitionQueue(settled_to, 0), 300)
        records._histories[key] = history((10.0, 100), (20.0, 200), (30.0, 300))
    assert records.lag_s(counted, 30.0) == 10.0


def test_a_group_is_as_far_behind_as_all_its_partitions_and_as_late_as_its_latest() -> None:
    other, gone = PartitionKey(b"t" * 16, 1), PartitionKey(b"g" * 16, 0)
    ends = {KEY: LogEnd(0, 300, 3_000), other: LogEnd(100, 200, 500)}
    histories = {KEY: history((10.0, 100), (30.0, 300)), other: history((10.0, 200), (30.0, 200))}
    records, size_bytes, seconds = lag_of({KEY: 200, other: 50, gone: 7}, ends, histories, 30.0)
    assert records == 100 + 100  # below the log's start nothing is left to read
    assert size_bytes == 1_000 + 500
    assert seconds == 20.0
    assert lag_of({KEY: 300}, ends, histories, 40.0) == (0, 0.0, 0.0)


# -- plaintext, logs


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_plaintext_is_for_loopback(host: str) -> None:
    check_plaintext("--http", host, 8080, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "broker-1.example"])
def test_plaintext_elsewhere_is_refused_unless_it_is_meant(host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"plaintext.*--insecure"):
        check_plaintext("--http", host, 8080, insecure=False)
    check_plaintext("--http", host, 8080, insecure=True)


def test_a_log_line_off_a_terminal_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    try:
        log = structlog.get_logger()
        log.info("an event\nwith a line", topic="\x1b[2J\n", count=3)
        try:
            raise ValueError("no\nway")
        except ValueError as error:
            log.error("failed", exc_info=error)
        log.debug("silent")
        first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    finally:
        structlog.reset_defaults()
    assert (first["event"], first["topic"], first["count"], first["level"]) == (
        "an event\nwith a line",
        "\x1b[2J\n",
        3,
        "info",
    )
    assert second["exception"].startswith("Traceback")


def test_on_a_terminal_no_name_begins_a_line_or_steers_it() -> None:
    said = escaped(None, "info", {"event": "a\nb", "topic": "\x1b[2J", "count": 3})
    assert said == {"event": "a\\nb", "topic": "\\x1b[2J", "count": 3}
