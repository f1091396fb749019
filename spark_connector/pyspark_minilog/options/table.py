"""The options of source and sink: one table, read once. An option outside the table is refused.

Keys arrive in lower case, in one dictionary with Spark's own options. An option that this version does not have is
refused like a misspelling, so a job never runs with an option that does nothing. Client settings are
`minilog.<name>`. The connector refuses by name the settings that it must set itself.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from minilog.config import parse_config
from minilog.errors import InvalidArgument
from minilog.typed.schema.column_names import names_in_words, parse_names
from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.options.client_options import (
    ALLOW_SECRETS,
    DELEGATION_TOKENS,
    GROUP,
    SERVERS,
    client_settings,
    client_spelling,
    refuse_secrets,
    unknown,
)
from pyspark_minilog.options.config_file import with_file
from pyspark_minilog.options.durations import duration_ms
from pyspark_minilog.options.limits import DEFAULT_MAX_DELAY_MS, Limits
from pyspark_minilog.options.offsets import EARLIEST, LATEST, OffsetSpec, everywhere, parse_offset_spec
from pyspark_minilog.options.places import OfGroup, Place, parse_start, parse_timestamp, parse_timestamps
from pyspark_minilog.options.queue_options import SETTLE_QUEUE, check_settled, queue_name
from pyspark_minilog.options.subscription import TopicSubscription, exactly_one

logger = logging.getLogger(__name__)

_MOST_GROUP_CHARACTERS = 240  # of 255, which a broker takes; a prefix becomes a little longer

_CHECKPOINT = "checkpointlocation"
_ADDED_BY_SPARK = frozenset({_CHECKPOINT, "queryname"})
_NO_OPTIONS = {
    "source": "For a table of the catalog, write CREATE TABLE ... USING minilog OPTIONS (...) without columns. Spark "
    "cannot read a table that saveAsTable, writeTo or toTable made: drop that table, and create it again. Its rows are "
    "in the topic",
    "sink": "Rows cannot be inserted into a table of the catalog, because Spark does not name the table to the sink: "
    'use df.write.format("minilog")...save()',
}
# Spark turns the argument of load("..."), save("...") and start("...") into one of these options.
_PATHS = ("path", "paths")
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "onSchemaChange",
)
_OF_PARTS = ("minPartitions", "maxRecordsPerPartition")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SOURCE = (
    *SERVERS,
    ALLOW_SECRETS,
    DELEGATION_TOKENS,
    *SUBSCRIPTIONS,
    "queue",
    *_STREAM_ONLY,
    *_BATCH_ONLY,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "where",
    "metadata",
    "deletes",
    "view",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    GROUP,
)
# includeHeaders does nothing in a sink: the column decides. Jobs of Kafka's connector may have the option.
_SINK = (
    *SERVERS,
    ALLOW_SECRETS,
    DELEGATION_TOKENS,
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "checkReplay",
    "transactionalId",
    "transactionVersion",
    SETTLE_QUEUE,
    "transaction",
    "mergeSchema",
    "createTopic",
    "keyColumns",
    "timestampColumn",
    "numPartitions",
    "replicationFactor",
)
# A block decides these for all of its writes.
_OF_BLOCKS = ("exactlyOnce", "checkReplay", "transactionalId", "transactionVersion")
_OF_NEW_TOPICS = ("keyColumns", "timestampColumn", "numPartitions", "replicationFactor")

_NO_PATH = {
    "source": "a topic is not a path. Name the topic with option('subscribe', ...), and call load() without an "
    "argument",
    "sink": "a topic is not a path. Name the topic with option('topic', ...), and call save() or start() without an "
    "argument",
}


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options for topics with a schema. `columns` is None for all columns."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    metadata: bool = False
    is_kafka_view: bool = False
    fails_on_change: bool = False
    is_latest_view: bool = False
    deletes: bool = False

    @property
    def for_schemas(self) -> tuple[str, str] | None:
        """The name and value of a given option that needs a schema, or None if no such option is given."""
        if self.columns is not None:
            return "columns", names_in_words(self.columns)
        if self.where is not None:
            return "where", self.where
        if self.metadata:
            return "metadata", "true"
        return ("deletes", "true") if self.deletes else None


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """How a sink may change the schema of its topic, or create the topic. None means the brokers' default."""

    merges: bool = False
    creates: bool = False
    key_columns: tuple[str, ...] = ()
    timestamp_column: str | None = None
    num_partitions: int | None = None
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query that reads. `client` has the settings of the minilog client, with the servers. A stream
    stores its progress under `group`, or leases its records from `queue`. With `delegates` the tasks log in by
    delegation tokens of the driver's user."""

    client: dict[str, Any]
    subscription: TopicSubscription
    starting: Place
    ending: Place
    limits: Limits
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    retries: int
    retry_interval_ms: int
    group: str | None = None
    rows: RowOptions = RowOptions()
    delegates: bool = False
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a query that writes. `topic` wins over the column of that name. With `check_replay` a write that
    is committed already must be the same as the present write. `checkpoint` is the folder of the streaming query, if
    it is an option. The query settles the messages that it has of `settle_queue`. `has_default_timeout`: no setting
    gives the time-out of a transaction. `transaction` is the folder of the transaction block that the write belongs
    to."""

    client: dict[str, Any]
    topic: str | None
    exactly_once: bool = True
    transactional_id: str | None = None
    transaction_version: int = 0
    transaction: str | None = None
    check_replay: bool = True
    checkpoint: str | None = None
    schema: SchemaOptions = SchemaOptions()
    delegates: bool = False
    has_default_timeout: bool = True
    settle_queue: str | None = None


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options that batch and stream have in common, for `schema()`. Raises InvalidOption."""
    return _source_options(_named(given, _SOURCE, "source"), LATEST)


def parse_stream_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a streaming query, which starts at the latest offsets by default. Raises InvalidOption."""
    named = _named(given, _SOURCE, "source")
    for option in _BATCH_ONLY:
        if option in named:
            raise refused(
                option, named[option], "a stream has no end. Leave the option out, or read a batch with spark.read"
            )
    options = _source_options(named, LATEST)
    if options.rows.is_latest_view:
        remedy = (
            "a stream never has the newest row of a key, because a newer one may come. Read the table as a batch with "
            "spark.read, or read rows and deletions with deletes=true, and merge them by their key in foreachBatch"
        )
        raise refused("view", named["view"], remedy)
    return options


def parse_batch_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a batch, from the earliest to the latest offsets by default. Raises InvalidOption."""
    named = _named(given, _SOURCE, "source")
    for option in _STREAM_ONLY:
        if option in named:
            logger.warning("option '%s' has no meaning in a batch and is ignored", option)
    if "queue" in named:
        remedy = "a batch settles nothing. Read the queue with spark.readStream, or leave the option out to read topics"
        raise refused("queue", named["queue"], remedy)
    options = _source_options(named, EARLIEST)
    match options.starting:
        case OffsetSpec(option, text) as start if start.mentions(LATEST):
            raise refused(option, text, "a batch cannot start at latest (-1). Give earliest, or offsets")
    return options


def parse_stream_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a streaming write. Raises InvalidOption."""
    options = parse_sink_options({key: value for key, value in given.items() if key.lower() != SETTLE_QUEUE.lower()})
    if options.transactional_id is not None:
        remedy = "the checkpoint names the stream. Leave the option out, or write batches with foreachBatch"
        raise refused("transactionalId", options.transactional_id, remedy)
    if options.transaction is not None:
        remedy = "a stream is a transaction of its own. Write with df.write inside of the block, in foreachBatch"
        raise refused("transaction", options.transaction, remedy)
    settled = next((value for key, value in given.items() if key.lower() == SETTLE_QUEUE.lower()), None)
    if settled is not None:
        settled = check_settled(settled, options.checkpoint, exactly_once=options.exactly_once)
    return replace(options, settle_queue=settled)


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a batch write. Raises InvalidOption."""
    named = _named(given, _SINK, "sink")
    if SETTLE_QUEUE in named:
        raise refused(
            SETTLE_QUEUE, named[SETTLE_QUEUE], "a batch write has no messages of a queue. Use it with df.writeStream"
        )
    for option in _OF_BLOCKS:
        if "transaction" in named and option in named:
            remedy = "the block of pyspark_minilog.transaction decides it for all of its writes. Leave the option out"
            raise refused(option, named[option], remedy)
    topic = named.get("topic")
    if topic is not None and not topic.strip():
        raise refused("topic", topic, "name a topic, or leave the option out and give a column 'topic'")
    transactional_id = named.get("transactionalId")
    if transactional_id is not None and not transactional_id.strip():
        raise refused("transactionalId", transactional_id, "name the write, or leave the option out")
    if transactional_id is None and "transactionVersion" in named:
        remedy = "it counts the writes of one transactionalId. Set transactionalId, too"
        raise refused("transactionVersion", named["transactionVersion"], remedy)
    exactly_once = _boolean(named, "exactlyOnce", True)
    if not exactly_once and transactional_id is not None:
        remedy = "it names a transaction, and a write with exactlyOnce=false has none. Leave one of the two out"
        raise refused("transactionalId", transactional_id, remedy)
    client = client_settings(named)
    return SinkOptions(
        client=client,
        topic=topic and topic.strip(),
        exactly_once=exactly_once,
        transactional_id=transactional_id and transactional_id.strip(),
        transaction_version=_number(named, "transactionVersion", 0, 0) or 0,
        transaction=named.get("transaction"),
        check_replay=_boolean(named, "checkReplay", True),
        checkpoint=next((value for key, value in given.items() if key.lower() == _CHECKPOINT), None),
        schema=_schema_options(named),
        delegates=_boolean(named, DELEGATION_TOKENS, False),
        has_default_timeout=parse_config(with_file(client)).transaction_timeout_ms == 0,
    )


def _source_options(named: dict[str, str], default_start: int) -> SourceOptions:
    chosen = {name: named[name] for name in SUBSCRIPTIONS if name in named}
    subscription = exactly_one(chosen)
    starting, group, client = _start(named, default_start), _group(named, chosen), client_settings(named)
    if isinstance(starting, OfGroup) and group is None:
        raise refused(starting.option, starting.text, "name the group with the option minilog.group.id, too")
    return SourceOptions(
        client=client,
        subscription=subscription,
        starting=starting,
        ending=_end(named),
        limits=_limits(named),
        min_partitions=_number(named, "minPartitions", None, 1),
        max_records_per_partition=_number(named, "maxRecordsPerPartition", None, 1),
        fail_on_data_loss=_boolean(named, "failOnDataLoss", "queue" not in named),
        include_headers=_boolean(named, "includeHeaders", False),
        retries=_number(named, "fetchOffset.numRetries", 3, 0) or 0,
        retry_interval_ms=_number(named, "fetchOffset.retryIntervalMs", 1000, 0) or 0,
        group=group,
        rows=_row_options(named),
        delegates=_boolean(named, DELEGATION_TOKENS, False),
        queue=queue_name(named, client["isolation.level"]),
    )


def _row_options(named: Mapping[str, str]) -> RowOptions:
    view, change = (named.get(name, "").strip().lower() for name in ("view", "onSchemaChange"))
    if view not in ("", "columns", "kafka", "latest"):
        remedy = "give columns, kafka (keys and values, with values as JSON), or latest (the newest row of each key)"
        raise refused("view", named["view"], remedy)
    if view == "latest" and _boolean(named, "deletes", False):
        raise refused("deletes", named["deletes"], "view=latest has no row of a deleted key. Leave one of the two out")
    for option in _OF_PARTS:
        if view == "latest" and option in named:
            raise refused(option, named[option], "view=latest reads a partition in one task. Leave the option out")
    if change not in ("", "ignore", "fail"):
        raise refused("onSchemaChange", named["onSchemaChange"], "give ignore or fail")
    where = named.get("where")
    if where is not None and not where.strip():
        raise refused("where", where, "give a SQL condition, such as delay > 15, or leave the option out")
    metadata = _boolean(named, "metadata", False)
    if metadata and view == "kafka":
        remedy = "view=kafka has these columns already: topic, partition, offset, timestamp and key. Leave it out"
        raise refused("metadata", named["metadata"], remedy)
    return RowOptions(
        columns=_names(named, "columns"),
        where=where,
        metadata=metadata,
        is_kafka_view=view == "kafka",
        fails_on_change=change == "fail",
        is_latest_view=view == "latest",
        deletes=_boolean(named, "deletes", False),
    )


def _schema_options(named: Mapping[str, str]) -> SchemaOptions:
    creates = _boolean(named, "createTopic", False)
    for option in _OF_NEW_TOPICS:
        if option in named and not creates:
            raise refused(option, named[option], "it is for a topic that the write creates. Set createTopic=true, too")
    timestamps = _names(named, "timestampColumn")
    if timestamps is not None and len(timestamps) > 1:
        raise refused("timestampColumn", named["timestampColumn"], "name one column")
    return SchemaOptions(
        merges=_boolean(named, "mergeSchema", False),
        creates=creates,
        key_columns=_names(named, "keyColumns") or (),
        timestamp_column=timestamps[0] if timestamps else None,
        num_partitions=_number(named, "numPartitions", None, 1),
        replication_factor=_number(named, "replicationFactor", None, 1),
    )


def _names(named: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    if option not in named:
        return None
    try:
        return parse_names(named[option])
    except InvalidArgument:
        remedy = "give names with commas between them, such as carrier,delay. Put a name with a comma into `backquotes`"
        raise refused(option, named[option], remedy) from None


def _group(named: Mapping[str, str], chosen: Mapping[str, str]) -> str | None:
    """The id wins over the prefix. A digest of the subscription completes the prefix: each run gets the same name."""
    for option in (GROUP, "groupIdPrefix"):
        if option in named:
            given = named[option].strip()
            if not 1 <= len(given) <= _MOST_GROUP_CHARACTERS:
                raise refused(option, named[option], f"give 1 to {_MOST_GROUP_CHARACTERS} characters")
            digest = hashlib.sha256(repr(sorted(chosen.items())).encode()).hexdigest()[:8]
            return given if option == GROUP else f"{given}-{digest}"
    return None


def _named(given: Mapping[str, str], allowed: tuple[str, ...], side: str) -> dict[str, str]:
    """The options under their documented spelling; client settings are `minilog.<name>`."""
    if all(key.lower() in _ADDED_BY_SPARK for key in given):
        raise InvalidOption(f"no option is given: name at least the brokers and a topic. {_NO_OPTIONS[side]}")
    spelling = {name.lower(): name for name in allowed}
    named: dict[str, str] = {}
    for key, value in given.items():
        lower = key.lower()
        if lower in spelling:
            named[spelling[lower]] = value
        elif lower in _ADDED_BY_SPARK:
            continue
        elif lower in _PATHS:
            raise refused(key, value, _NO_PATH[side])
        elif (option := client_spelling(key, value)) is None:
            raise unknown(key, allowed, side)
        elif named.setdefault(option, value) != value:
            raise InvalidOption(f"option '{option}' is given under two names, with different values: keep one of them")
    if not _boolean(named, ALLOW_SECRETS, False):
        refuse_secrets(given)
    return named


def _start(named: Mapping[str, str], default: int) -> Place:
    """A timestamp wins over timestamps per partition, and these win over offsets. All of them must be valid."""
    strategy = named.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        option = "startingOffsetsByTimestampStrategy"
        raise refused(option, named[option], "give error or latest. It decides what happens if all records are older")
    offsets = "startingOffsets"
    start = parse_start(offsets, named[offsets]) if offsets in named else everywhere(offsets, default)
    return _at_timestamp(named, "starting", or_latest=strategy == "latest") or start


def _end(named: Mapping[str, str]) -> Place:
    option = "endingOffsets"
    end = parse_offset_spec(option, named[option]) if option in named else everywhere(option, LATEST)
    if end.mentions(EARLIEST):
        raise refused(option, end.text, "a batch cannot end at earliest (-2). Give latest, or offsets")
    return _at_timestamp(named, "ending", or_latest=True) or end


def _at_timestamp(named: Mapping[str, str], side: str, *, or_latest: bool) -> Place | None:
    single, per_partition = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    of_all = parse_timestamp(single, named[single], or_latest=or_latest) if single in named else None
    of_each = (
        parse_timestamps(per_partition, named[per_partition], or_latest=or_latest) if per_partition in named else None
    )
    return of_all or of_each


def _limits(named: Mapping[str, str]) -> Limits:
    least = _number(named, "minOffsetsPerTrigger", None, 1)
    most = _number(named, "maxOffsetsPerTrigger", None, 1)
    if least is not None and most is not None and least > most:
        raise refused("minOffsetsPerTrigger", least, f"it is above maxOffsetsPerTrigger, which is {most}. Lower it")
    delay = "maxTriggerDelay"
    if delay in named and least is None:
        logger.warning("option '%s' has no meaning without minOffsetsPerTrigger and is ignored", delay)
    return Limits(most, least, _duration_ms(named, delay), _number(named, "maxBytesPerTrigger", None, 1))


def _duration_ms(named: Mapping[str, str], option: str) -> int:
    if option not in named:
        return DEFAULT_MAX_DELAY_MS
    text = named[option].strip()
    delay_ms = int(text) if text.isascii() and text.isdigit() else duration_ms(text)
    if delay_ms is None or not 1 <= delay_ms < 2**63:
        remedy = "give a time such as 30s or 15m. The units are ms, s, m, h and d. A number without a unit is in ms"
        raise refused(option, named[option], remedy)
    return delay_ms


def _number(named: Mapping[str, str], option: str, default: int | None, least: int) -> int | None:
    if option not in named:
        return default
    text = named[option].strip()
    if not (text.isascii() and text.isdigit()) or not least <= int(text) < 2**63:
        raise refused(option, named[option], f"give a whole number of {least} or more")
    return int(text)


def _boolean(named: Mapping[str, str], option: str, default: bool) -> bool:
    if option not in named:
        return default
    text = named[option].strip().lower()
    if text not in ("true", "false"):
        raise refused(option, named[option], "give true or false")
    return text == "true"
