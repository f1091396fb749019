"""A worker of a queue in a process of its own, which settles nothing: it prints the offset of each message that it got.

python -m tests.integration.queue_worker BOOTSTRAP_SERVERS QUEUE TOPIC
"""

from __future__ import annotations

import sys

from minilog import QueueConsumer


def main() -> None:
    servers, queue, topic = sys.argv[1:]
    with QueueConsumer({"bootstrap.servers": servers, "queue": queue, "max.poll.records": 10}) as consumer:
        consumer.subscribe([topic])
        for message in consumer:
            print(message.partition, message.offset, flush=True)


if __name__ == "__main__":
    main()
