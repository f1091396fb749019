"""A client of whichever version is installed where this runs: writes or reads so many values, and says what came of it.

python client.py write BOOTSTRAP_SERVERS TOPIC COUNT
python client.py read BOOTSTRAP_SERVERS TOPIC COUNT
"""

from __future__ import annotations

import sys
import time

from minilog import Consumer, Producer, TopicPartition
from minilog.errors import MinilogError

WITHIN_S = 30.0


def write(bootstrap_servers: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        futures = [producer.send(topic, value=b"%d" % number) for number in range(count)]
        producer.flush()
        print(sorted(future.result(WITHIN_S).offset for future in futures))


def read(bootstrap_servers: str, topic: str, count: int) -> None:
    found: list[int] = []
    with Consumer({"bootstrap.servers": bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            found += [int(value) for batch in consumer.poll_arrow(timeout=0.5) for value in batch["value"].to_pylist()]
    print(sorted(found))


if __name__ == "__main__":
    try:
        {"write": write, "read": read}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
    except MinilogError as error:
        sys.exit(f"{error.code}: {error}")
