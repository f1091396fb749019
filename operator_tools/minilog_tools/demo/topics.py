"""The topics of the demonstration: functions that create them, watch them, and read them to their ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa

import minilog
from minilog import Admin, Consumer, NewTopic, TopicPartition
from minilog.errors import RetriableError
from minilog.types import PartitionDescription
from minilog_broker.failure import CommandFailed
from minilog_tools.demo.data import FLIGHTS_SCHEMA, WEATHER_SCHEMA
from minilog_tools.demo.patience import limit_on_this_machine_s, machine_load

FLIGHTS, WEATHER, DELAYS = "flights", "weather", "delays"
TOPICS = (FLIGHTS, WEATHER, DELAYS)
PARTITIONS = 3
# The columns of a topic without a schema.
RECORDS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())])
_ASK_EVERY_S = 0.25
# An election takes a second, and catching up takes some seconds. On a calm machine a minute is too long.
_CHANGE_WITHIN_S = 60.0
# Reading the year from loopback takes seconds.
_READ_WITHIN_S = 60.0


def create_topics(bootstrap_servers: str, brokers: int) -> None:
    """Create topics with three partitions, each on three brokers if there are three. Two must have every record.

    Retention is off, because it goes by the timestamps of rows, which are of 2013.
    """
    factor = min(3, brokers)
    configs = {"min.insync.replicas": str(min(2, factor)), "retention.ms": "-1"}
    schemas = {FLIGHTS: FLIGHTS_SCHEMA, WEATHER: WEATHER_SCHEMA, DELAYS: None}
    with _admin(bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, factor, configs, schemas[name]) for name in TOPICS])


def find_victim(bootstrap_servers: str) -> int:
    """A broker that leads a partition of the flights and is not the controller. Raises CommandFailed without one."""
    with _admin(bootstrap_servers) as admin:
        controller = admin.describe_cluster().controller
        (flights,) = admin.describe_topics([FLIGHTS])
    leaders = sorted(
        {partition.leader for partition in flights.partitions if partition.leader not in (None, controller)}
    )
    if not leaders:
        raise CommandFailed("no broker but the controller leads a partition of the flights: this is a bug")
    return int(leaders[-1] or 0)


def find_controller(bootstrap_servers: str) -> int:
    """The broker that leads the metadata quorum. Raises CommandFailed without one."""
    with _admin(bootstrap_servers) as admin:
        controller = admin.describe_cluster().controller
    if controller is None or controller < 0:
        raise CommandFailed("the cluster has no controller: this is a bug")
    return int(controller)


def wait_led_by_others(bootstrap_servers: str, broker_id: int, stop: threading.Event) -> float:
    """Wait until every partition has a leader that is not `broker_id`. Returns the seconds that it took."""
    return _wait(
        bootstrap_servers,
        lambda partitions: all(partition.leader not in (None, broker_id) for partition in partitions),
        f"some partition is still led by broker {broker_id}, or by nobody",
        stop,
    )


def wait_in_sync(bootstrap_servers: str, broker_id: int, stop: threading.Event) -> float:
    """Wait until `broker_id` is in the ISR of every partition that it replicates. Returns the seconds that it took."""
    return _wait(
        bootstrap_servers,
        lambda partitions: all(
            broker_id in partition.isr for partition in partitions if broker_id in partition.replicas
        ),
        f"broker {broker_id} is not back in every ISR",
        stop,
    )


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The offset behind the last record that readers may see, by partition."""
    wanted = {TopicPartition(topic, number): "latest" for number in range(PARTITIONS)}
    with _admin(bootstrap_servers) as admin:
        offsets = admin.list_offsets(wanted)
    return {partition.partition: offsets[partition] or 0 for partition in wanted}


def record_count(bootstrap_servers: str, topic: str) -> int:
    """The number of records that readers may see. Offsets do not show it, because aborted records and the markers of
    transactions have offsets, too."""
    return minilog.scan(topic, config={"bootstrap.servers": bootstrap_servers}).count()


def read_topic(bootstrap_servers: str, topic: str, columns: pa.Schema) -> pa.Table:
    """All rows up to the present end. `columns` are those of a typed topic, or RECORDS for one without a schema."""
    ends = end_offsets(bootstrap_servers, topic)
    limit_s = limit_on_this_machine_s(_READ_WITHIN_S)
    deadline = time.monotonic() + limit_s
    batches: list[pa.RecordBatch] = []
    with Consumer({"bootstrap.servers": bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(topic, number, 0, end) for number, end in ends.items()])
        while not consumer.finished():
            if time.monotonic() > deadline:
                raise CommandFailed(f"{topic} could not be read to its end in {limit_s:.0f} s. {machine_load()}")
            batches += [batch.select(columns.names) for batch in consumer.poll_arrow(timeout=1.0)]
    return pa.Table.from_batches(batches, columns)


def _admin(bootstrap_servers: str) -> Admin:
    return Admin({"bootstrap.servers": bootstrap_servers})


def _wait(
    bootstrap_servers: str,
    is_so: Callable[[list[PartitionDescription]], bool],
    otherwise: str,
    stop: threading.Event,
) -> float:
    began = time.monotonic()
    with _admin(bootstrap_servers) as admin:
        while not stop.wait(_ASK_EVERY_S):
            try:
                partitions = [
                    partition for topic in admin.describe_topics(list(TOPICS)) for partition in topic.partitions
                ]
            except RetriableError:
                partitions = []
            waited_s = time.monotonic() - began
            if partitions and is_so(partitions):
                return waited_s
            if waited_s > limit_on_this_machine_s(_CHANGE_WITHIN_S):
                raise CommandFailed(f"{otherwise} after {waited_s:.0f} s. {machine_load()}")
    return time.monotonic() - began
