"""The demonstration waits for the windows that readers see, and not for offsets.

A query that is stopped in the middle of a micro-batch leaves aborted records, and each transaction leaves markers. Both
have offsets. The demonstration once counted these, ended too early, and reported missing windows.
"""

from __future__ import annotations

import contextlib

from minilog import Producer
from minilog.testing import running_cluster
from minilog_tools.demo import topics


def test_a_window_counts_when_it_is_committed() -> None:
    with running_cluster() as cluster:
        servers = cluster.settings["bootstrap.servers"]
        topics.create_topics(servers, brokers=1)
        with Producer({**cluster.settings, "transactional.id": "job"}) as producer:
            for records, is_stopped in ((5, True), (3, False)):
                with contextlib.suppress(ZeroDivisionError), producer.transaction():
                    for number in range(records):
                        producer.send(topics.DELAYS, b"{}", key=b"%d" % number)
                    producer.flush()
                    assert not is_stopped or 1 / 0
        assert sum(topics.end_offsets(servers, topics.DELAYS).values()) > 8
        assert topics.record_count(servers, topics.DELAYS) == 3
