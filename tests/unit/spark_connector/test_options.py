"""Options: what is understood, and that every refusal is one sentence with option, value and remedy."""

from __future__ import annotations

import pickle
import re
from typing import ClassVar

import pytest

from pyspark_minilog import helpers
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.limits import Limits
from pyspark_minilog.options.offsets import EARLIEST, LATEST, OffsetSpec, Partition, everywhere
from pyspark_minilog.options.places import AtTimestamp, OfGroup
from pyspark_minilog.options.table import (
    parse_batch_options,
    parse_sink_options,
    parse_source_options,
    parse_stream_options,
    parse_stream_sink_options,
)
from tests.rules import proves

BASE = {"bootstrap.servers": "localhost:9092", "subscribe": "flights"}


@proves("SPO.3")
def test_defaults_of_a_stream() -> None:
    options = parse_stream_options(BASE)
    assert options.starting == everywhere("startingOffsets", LATEST)
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert (options.retries, options.retry_interval_ms) == (3, 1000)
    assert options.limits == Limits(None, None, 900_000, None)
    assert options.min_partitions is options.max_records_per_partition is None


@proves("SPO.3", "SPB.1")
def test_defaults_of_a_batch() -> None:
    options = parse_batch_options(BASE)
    assert options.starting == everywhere("startingOffsets", EARLIEST)
    assert options.ending == everywhere("endingOffsets", LATEST)


@proves("SPF.2")
def test_keys_are_understood_in_any_case() -> None:
    given = {
        "BOOTSTRAP.SERVERS": "h:1",
        "subscribepattern": "a.*",
        "MaxOffsetsPerTrigger": "7",
        "fetchoffset.numretries": "0",
    }
    options = parse_stream_options(given)
    assert (options.limits.max_offsets, options.retries, options.subscription.pattern) == (7, 0, "a.*")


@proves("SPF.2")
def test_options_that_spark_adds_itself_are_ignored() -> None:
    parse_stream_options({**BASE, "checkpointlocation": "y", "queryname": "z"})


@proves("SPF.7")
@pytest.mark.parametrize("given", [{}, {"checkpointlocation": "/c"}])
def test_where_spark_says_nothing_it_is_a_table_of_the_catalog(given: dict[str, str]) -> None:
    for parse in (parse_source_options, parse_batch_options, parse_stream_options):
        with pytest.raises(InvalidOption, match=r"no option is given: .* CREATE TABLE \.\.\. USING minilog OPTIONS"):
            parse(given)
    for parse_sink in (parse_sink_options, parse_stream_sink_options):
        with pytest.raises(InvalidOption, match=r"no option is given: .* Rows cannot be inserted into a table"):
            parse_sink(given)


@proves("SPF.4")
@pytest.mark.parametrize("key", ["path", "paths"])
def test_an_argument_of_load_save_and_start_is_no_topic(key: str) -> None:
    with pytest.raises(
        InvalidOption, match=rf"'{key}' is 't': a topic is not a path. Name the topic with option\('subscribe'"
    ):
        parse_batch_options({**BASE, key: "t"})
    with pytest.raises(
        InvalidOption, match=rf"'{key}' is 't': a topic is not a path. Name the topic with option\('topic'"
    ):
        parse_sink_options({"bootstrap.servers": "h:1", "topic": "u", key: "t"})


@proves("SPO.1")
@pytest.mark.parametrize("name", ["bootstrap.servers", "minilog.bootstrap.servers", "kafka.bootstrap.servers"])
def test_servers_have_three_names(name: str) -> None:
    assert parse_source_options({name: "h:1", "subscribe": "t"}).client["bootstrap.servers"] == "h:1"


@proves("SPO.15")
def test_client_settings_reach_the_client() -> None:
    options = parse_source_options(
        {**BASE, "minilog.isolation.level": "read_uncommitted", "minilog.fetch.max.bytes": "99"}
    )
    assert options.client == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_uncommitted",
        "fetch.max.bytes": "99",
    }


def test_options_travel_to_the_tasks() -> None:
    options = parse_source_options({**BASE, "startingOffsets": '{"flights":{"0":3}}'})
    assert pickle.loads(pickle.dumps(options)) == options
    assert isinstance(options.starting, OffsetSpec)
    assert options.starting.place_of(Partition("flights", 0)) == 3


REFUSED_BY_SOURCE = [
    ({}, "no topic is named: set exactly one of the options subscribe, subscribePattern, assign"),
    (
        {"subscribe": "a", "assign": '{"a":[0]}'},
        "'subscribe' (a) and 'assign' ({\"a\":[0]}) exclude each other: keep one",
    ),
    ({"subscribe": " , "}, "option 'subscribe' is ' , ': name at least one topic"),
    ({"subscribePattern": "a("}, "option 'subscribePattern' is 'a(': correct the regular expression"),
    ({"assign": "[1]"}, "option 'assign' is '[1]': give JSON such as"),
    ({"assign": '{"a":[]}'}, "topic 'a' needs a list of partition numbers"),
    ({"assign": '{"a":[-1]}'}, "topic 'a' needs a list of partition numbers"),
    ({"subscribe": "a", "minPartitions": "0"}, "option 'minPartitions' is '0': give a whole number of 1 or more"),
    (
        {"subscribe": "a", "maxOffsetsPerTrigger": "-5"},
        "option 'maxOffsetsPerTrigger' is '-5': give a whole number of 1 or more",
    ),
    ({"subscribe": "a", "maxOffsetsPerTrigger": "1e3"}, "option 'maxOffsetsPerTrigger' is '1e3'"),
    (
        {"subscribe": "a", "fetchOffset.numRetries": "-1"},
        "option 'fetchOffset.numRetries' is '-1': give a whole number of 0",
    ),
    ({"subscribe": "a", "failOnDataLoss": "no"}, "option 'failOnDataLoss' is 'no': give true or false"),
    (
        {"subscribe": "a", "startingOffsets": "oldest"},
        "option 'startingOffsets' is 'oldest': give earliest, latest, or JSON",
    ),
    (
        {"subscribe": "a", "startingOffsets": "-2"},
        "option 'startingOffsets' is '-2': in JSON it means earliest. Give earliest, or a number of 3 or more",
    ),
    (
        {"subscribe": "a", "startingOffsets": "-1"},
        "option 'startingOffsets' is '-1': in JSON it means latest. Give latest",
    ),
    ({"subscribe": "a", "startingOffsets": "-0"}, "option 'startingOffsets' is '-0': give a number of last records"),
    (
        {"subscribe": "a", "startingOffsets": "-10 weeks"},
        "option 'startingOffsets' is '-10 weeks': give a number of records such as -1000, or a time such as -10m",
    ),
    (
        {"subscribe": "a", "startingOffsets": "group"},
        "option 'startingOffsets' is 'group': name the group with the option minilog.group.id, too",
    ),
    ({"subscribe": "a", "endingOffsets": "group"}, "option 'endingOffsets' is 'group': give earliest, latest, or JSON"),
    ({"subscribe": "a", "minilog.group.id": " "}, "option 'minilog.group.id' is ' ': give 1 to 240 characters"),
    ({"subscribe": "a", "groupIdPrefix": "g" * 241}, "give 1 to 240 characters"),
    ({"subscribe": "a", "endingOffsets": "-1000"}, "option 'endingOffsets' is '-1000': give earliest, latest, or JSON"),
    ({"subscribe": "a", "startingTimestamp": "today"}, "option 'startingTimestamp' is 'today': give milliseconds"),
    ({"subscribe": "a", "startingTimestamp": "-1"}, "option 'startingTimestamp' is '-1': give milliseconds since 1970"),
    (
        {"subscribe": "a", "endingTimestamp": str(2**63)},
        "option 'endingTimestamp' is '9223372036854775808': give milli",
    ),
    (
        {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":"x"}}'},
        "topic 'a' needs milliseconds since 1970 (UTC): give JSON such as",
    ),
    ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a":5}'}, "topic 'a' needs a timestamp per partition"),
    ({"subscribe": "a", "startingOffsetsByTimestamp": "{}"}, "'startingOffsetsByTimestamp' is '{}': name at least one"),
    (
        {"subscribe": "a", "startingOffsetsByTimestampStrategy": "earliest"},
        "option 'startingOffsetsByTimestampStrategy' is 'earliest': give error or latest",
    ),
    # what a start by timestamp wins over must be possible all the same
    ({"subscribe": "a", "startingTimestamp": "5", "startingOffsets": "x"}, "option 'startingOffsets' is 'x'"),
    (
        {"subscribe": "a", "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
        "option 'minOffsetsPerTrigger' is '6': it is above maxOffsetsPerTrigger, which is 5. Lower it",
    ),
    ({"subscribe": "a", "minOffsetsPerTrigger": "0"}, "option 'minOffsetsPerTrigger' is '0': give a whole number of 1"),
    ({"subscribe": "a", "maxBytesPerTrigger": "1g"}, "option 'maxBytesPerTrigger' is '1g': give a whole number of 1"),
    (
        {"subscribe": "a", "minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"},
        "option 'maxTriggerDelay' is 'soon': give a time such as 30s or 15m",
    ),
    ({"subscribe": "a", "minOffsetsPerTrigger": "6", "maxTriggerDelay": "0"}, "option 'maxTriggerDelay' is '0'"),
    ({"subscribe": "a", "maxRecordsPerPartition": "0"}, "option 'maxRecordsPerPartition' is '0': give a whole number"),
    ({"subscribe": "a", "startingOffsets": "{}"}, "name at least one topic"),
    (
        {"subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'},
        "-3 is not an offset: give 0 or more, -2 (earliest) or -1 (latest)",
    ),
    ({"subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "'x' is not a partition number of topic 'a'"),
    ({"subscribe": "a", "startingOffsets": '{"a":7}'}, "topic 'a' needs earliest, latest or offsets"),
    ({"subscribe": "a", "startingOffsets": '{"a":{"0":1,"0":2}}'}, "'0' is there twice"),
    ({"subscribe": "a", "endingOffsets": '{"a":"earliest"}'}, "a batch cannot end at earliest (-2)"),
    (
        {"subscribe": "a", "minilog.auto.offset.reset": "latest"},
        "the connector sets it itself: use the option startingOffsets",
    ),
    ({"subscribe": "a", "minilog.acks": "1"}, "option 'minilog.acks' is '1': the connector sets it itself"),
    (
        {"subscribe": "a", "minilog.linger.ms": "x"},
        "option minilog.linger.ms='x' is not possible: it must be a whole number",
    ),
    ({"subscribe": "a", "kafka.bootstrap.servers": "other:1"}, "name different servers: keep one of them"),
]


@proves("SPO.15", "SPO.16", "SPO.17")
@pytest.mark.parametrize(("given", "message"), REFUSED_BY_SOURCE, ids=[str(each[0]) for each in REFUSED_BY_SOURCE])
def test_impossible_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        parse_source_options({"bootstrap.servers": "localhost:9092", **given})
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@proves("SPO.16")
@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("subscrib", "did you mean 'subscribe'?"),
        ("startingoffset", "did you mean 'startingOffsets'?"),
        ("minilog.fetch.max.byte", "did you mean 'minilog.fetch.max.bytes'?"),
        ("kafka.request.timeout.ms", "did you mean 'minilog.request.timeout.ms'?"),
        ("zzz", "leave it out"),
        # options of later versions are not there yet, and never ignored
        ("maxoffsetpertrigger", "did you mean 'maxOffsetsPerTrigger'?"),
        ("groupprefix", "did you mean 'groupIdPrefix'?"),
        ("topic", "leave it out"),
    ],
)
def test_unknown_options_are_refused_with_the_nearest_name(option: str, advice: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        parse_source_options({**BASE, option: "5"})
    assert f"of this minilog version has no option '{option}': " in str(refusal.value)

    assert advice in str(refusal.value)


@proves("SPO.1")
def test_servers_are_needed_and_checked() -> None:
    with pytest.raises(InvalidOption, match=r"option 'bootstrap.servers' is missing"):
        parse_source_options({"subscribe": "a"})
    with pytest.raises(InvalidOption, match=r"option bootstrap.servers=.nowhere. is not possible: it must be HOST"):
        parse_source_options({"subscribe": "a", "bootstrap.servers": "nowhere"})


@proves("SPO.5")
@pytest.mark.parametrize(
    ("option", "value"),
    [("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", '{"flights":{"0":5}}')],
)
def test_a_stream_has_no_end(option: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=f"option '{option}' is '.*': a stream has no end"):
        parse_stream_options({**BASE, option: value})
    parse_batch_options({**BASE, option: value})


@proves("SPO.4")
def test_a_timestamp_wins_over_those_per_partition_and_these_over_offsets() -> None:
    given = {**BASE, "startingOffsets": "latest", "endingOffsets": '{"flights":{"0":3}}'}
    assert parse_stream_options({**BASE, "startingOffsets": "earliest"}).starting.option == "startingOffsets"
    given |= {f"{side}OffsetsByTimestamp": '{"flights":{"0":5}}' for side in ("starting", "ending")}
    options = parse_batch_options(given)
    assert [options.starting.option, options.ending.option] == [
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ]
    options = parse_batch_options({**given, "startingTimestamp": "7", "endingTimestamp": "8"})
    assert [options.starting.option, options.ending.option] == ["startingTimestamp", "endingTimestamp"]


def test_where_no_record_is_that_young_a_start_fails_unless_told_and_an_end_is_latest() -> None:
    given = {**BASE, "startingTimestamp": "7", "endingTimestamp": "8"}
    options = parse_batch_options(given)
    assert options.starting == AtTimestamp("startingTimestamp", "7", or_latest=False, everywhere_ms=7)
    assert options.ending == AtTimestamp("endingTimestamp", "8", or_latest=True, everywhere_ms=8)
    told = parse_batch_options({**given, "startingOffsetsByTimestampStrategy": "Latest"})
    assert told.starting == AtTimestamp("startingTimestamp", "7", or_latest=True, everywhere_ms=7)


@pytest.mark.parametrize(
    ("text", "delay_ms"), [("30s", 30_000), ("1500", 1_500), (" 2 h ", 7_200_000), ("7d", 604_800_000)]
)
def test_the_longest_delay_is_a_time(text: str, delay_ms: int) -> None:
    given = {**BASE, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": text}
    assert parse_stream_options(given).limits == Limits(10, 10, delay_ms)


def test_a_delay_without_a_minimum_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parse_stream_options({**BASE, "maxTriggerDelay": "5s"})
    assert "'maxTriggerDelay' has no meaning without minOffsetsPerTrigger" in caplog.text


@pytest.mark.parametrize("start", ["latest", '{"flights":{"0":-1}}', '{"flights":"latest"}'])
def test_a_batch_does_not_start_at_latest(start: str) -> None:
    with pytest.raises(InvalidOption, match="a batch cannot start at latest"):
        parse_batch_options({**BASE, "startingOffsets": start})


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_per_trigger_in_a_batch_is_ignored_with_a_warning(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse_batch_options({**BASE, option: "5"})
    assert f"'{option}' has no meaning in a batch" in caplog.text


def test_each_host_may_say_its_rack_and_what_may_be_read_is_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILOG_CLIENT_RACK", "of the driver")
    monkeypatch.setenv("MINILOG_ISOLATION_LEVEL", "read_uncommitted")
    client = parse_source_options(BASE).client
    assert "client.rack" not in client
    assert client["isolation.level"] == "read_uncommitted"
    assert parse_source_options({**BASE, "minilog.client.rack": "a"}).client["client.rack"] == "a"


def test_a_bad_value_in_the_drivers_environment_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINILOG_FETCH_MAX_BYTES", "much")
    with pytest.raises(InvalidOption, match="on the driver: environment variable MINILOG_FETCH_MAX_BYTES"):
        parse_source_options(BASE)


def test_a_column_with_a_comma_stands_in_backquotes() -> None:
    assert parse_source_options({**BASE, "columns": "`a,b`, c,`d``e`"}).rows.columns == ("a,b", "c", "d`e")
    made = {"bootstrap.servers": "h:1", "topic": "t", "createTopic": "true"}
    schema = parse_sink_options({**made, "keyColumns": "`a,b`,c", "timestampColumn": "`at, UTC`"}).schema
    assert (schema.key_columns, schema.timestamp_column) == (("a,b", "c"), "at, UTC")
    with pytest.raises(InvalidOption, match=r"option 'columns' is 'a,`b': give names .* into `backquotes`"):
        parse_source_options({**BASE, "columns": "a,`b"})


def test_the_helper_takes_columns_of_any_name() -> None:
    given = helpers._options("t", ["a,b", "c", "d`e"], None, {})
    assert parse_source_options({**BASE, **given}).rows.columns == ("a,b", "c", "d`e")


def test_sink_options() -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": " t ", "minilog.compression.type": "lz4"})
    assert options.topic == "t"
    assert options.client["compression.type"] == "lz4"
    assert options.client["bootstrap.servers"] == "h:1"
    assert parse_sink_options({"bootstrap.servers": "h:1", "includeHeaders": "true"}).topic is None


@pytest.mark.parametrize("option", ["subscribe", "exactlytwice", "startingoffsets"])
def test_the_sink_refuses_what_it_does_not_have(option: str) -> None:
    with pytest.raises(InvalidOption, match=f"the sink of this minilog version has no option '{option}'"):
        parse_sink_options({"bootstrap.servers": "h:1", "topic": "t", option: "x"})


def test_an_empty_sink_topic_is_refused() -> None:
    with pytest.raises(InvalidOption, match="option 'topic' is ' ': name a topic"):
        parse_sink_options({"bootstrap.servers": "h:1", "topic": " "})


class TestExactlyOnce:
    SINK: ClassVar = {"bootstrap.servers": "h:1", "topic": "t"}

    def test_exactly_once_is_the_default_under_a_random_id(self) -> None:
        options = parse_sink_options(self.SINK)
        assert (options.exactly_once, options.transactional_id, options.transaction_version) == (True, None, 0)

    def test_a_write_may_be_named_and_counted(self) -> None:
        options = parse_sink_options({**self.SINK, "transactionalid": " daily ", "transactionversion": "12"})
        assert (options.transactional_id, options.transaction_version) == ("daily", 12)

    def test_exactly_once_may_be_turned_off(self) -> None:
        assert not parse_stream_sink_options({**self.SINK, "exactlyOnce": "false"}).exactly_once

    def test_its_time_out_is_a_client_setting(self) -> None:
        options = parse_sink_options({**self.SINK, "minilog.transaction.timeout.ms": "60000"})
        assert options.client["transaction.timeout.ms"] == "60000"

    @proves("SPO.15", "SPO.16", "SPO.17")
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"exactlyOnce": "perhaps"}, "option 'exactlyOnce' is 'perhaps': give true or false"),
            ({"transactionalId": " "}, "option 'transactionalId' is ' ': name the write"),
            ({"transactionVersion": "3"}, "option 'transactionVersion' is '3': it counts the writes of one"),
            ({"transactionalId": "a", "transactionVersion": "-1"}, "'-1': give a whole number of 0 or more"),
            (
                {"transactionalId": "a", "exactlyOnce": "false"},
                "'a': it names a transaction, and a write with exactlyOnce=false has none",
            ),
            ({"minilog.acks": "1"}, "a Spark write always uses acks=all"),
            ({"minilog.transactional.id": "a"}, "the connector sets it itself: a stream has the id of its query"),
        ],
    )
    def test_impossible_options_are_refused(self, given: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidOption, match=message):
            parse_sink_options({**self.SINK, **given})

    def test_a_stream_is_named_by_its_checkpoint(self) -> None:
        with pytest.raises(InvalidOption, match="'a': the checkpoint names the stream"):
            parse_stream_sink_options({**self.SINK, "transactionalId": "a"})


@proves("SPO.13")
def test_a_group_is_named_by_its_id_or_by_a_prefix_and_what_is_read() -> None:
    assert parse_source_options(BASE).group is None
    assert parse_source_options({**BASE, "minilog.Group.Id": "report"}).group == "report"
    prefixed = {**BASE, "groupIdPrefix": "spark"}
    group = parse_source_options(prefixed).group
    assert group is not None
    assert re.fullmatch(r"spark-[0-9a-f]{8}", group)
    assert parse_source_options(prefixed).group == group
    assert parse_source_options({**prefixed, "subscribe": "others"}).group != group
    assert parse_source_options({**prefixed, "minilog.group.id": "report"}).group == "report"


def test_the_group_is_no_setting_of_the_clients_that_read() -> None:
    options = parse_stream_options({**BASE, "minilog.group.id": "report", "startingOffsets": "group"})
    assert "group.id" not in options.client
    assert options.starting == OfGroup("startingOffsets", "group")
    with pytest.raises(InvalidOption, match="only a source stores the progress"):
        parse_sink_options({"bootstrap.servers": "localhost:9092", "minilog.group.id": "report"})
