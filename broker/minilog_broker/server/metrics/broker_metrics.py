"""A scrape of one broker: the counters of shells (observations.py), and values of the broker's state.

A scrape reads the state at most once a second, however many scrapes come, in pieces that take turns of the loop.
Questions to other brokers or a disk (the lag of groups, free space) are bounded in time, and keep their last answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as MetricFamily

from minilog.errors import InvalidArgument
from minilog_broker.printable import printable
from minilog_broker.server.metrics.names import MAX_TOPICS, Metric, MetricType
from minilog_broker.server.metrics.observations import Observations
from minilog_broker.server.runtime.timer import now_ms

LOOP_LOOK_S = 0.1
FRESH_MS = 1_000.0  # a look at the state serves all scrapes of this time


Samples = list[tuple[Metric, tuple[str, ...], float]]
"""For each sample the metric, the values of its labels, and its value."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """Metrics in the form that is sent."""

    content: bytes
    content_type: str


class MetricsSource(Protocol):
    """The reader of a broker's state."""

    async def look(self, topics: Sequence[str]) -> Samples:
        """The samples of this moment, with those of the named topics. Raises InvalidArgument where there are too
        many."""


def families(samples: Samples) -> list[MetricFamily]:
    """The samples as families of prometheus-client, each name once. Labels are escaped: topics and groups have any
    name."""
    by_name: dict[str, MetricFamily] = {}
    for metric, labels, value in samples:
        family = by_name.get(metric.name)
        if family is None:
            kind = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
            family = by_name[metric.name] = kind(metric.name, metric.help, labels=metric.labels)
        family.add_metric([printable(label) for label in labels], value)  # type: ignore[attr-defined]
    return list(by_name.values())


class _Scrape:
    """The registry of one scrape, for prometheus-client's encoders."""

    def __init__(self, observations: Observations, samples: Samples) -> None:
        self._observations = observations
        self._samples = samples

    def collect(self) -> Iterator[MetricFamily]:
        yield from self._observations.registry.collect()
        yield from families(self._samples)


class BrokerMetrics:
    """The metrics of one broker, as a scrape reads them. `source` reads the state."""

    def __init__(self, observations: Observations, source: MetricsSource) -> None:
        self._observations = observations
        self._source = source
        self._one_at_a_time = asyncio.Lock()
        self._looked_ms = float("-inf")
        self._samples: Samples = []
        self._watch: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the delay of the loop."""
        self._watch = asyncio.get_running_loop().call_later(LOOP_LOOK_S, self._look_at_loop)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def _look_at_loop(self) -> None:
        assert self._watch is not None
        self._observations.loop_was_late(max(0.0, asyncio.get_running_loop().time() - self._watch.when()))
        self.start()

    async def expose(self, topics: list[str], accept: str) -> Exposition:
        """All metrics, in the form that an Accept header asks for. Raises InvalidArgument."""
        if len(topics) > MAX_TOPICS:
            raise InvalidArgument(f"topics= names {len(topics)} topics: one scrape has at most {MAX_TOPICS}")
        async with self._one_at_a_time:
            if topics:
                samples = await self._source.look(topics)
            else:
                if now_ms() - self._looked_ms > FRESH_MS:
                    self._samples = await self._source.look(())
                    self._looked_ms = now_ms()
                samples = self._samples
        encode, content_type = choose_encoder(accept)
        return Exposition(encode(_Scrape(self._observations, samples)), content_type)
