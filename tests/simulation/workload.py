"""What users do to a simulated cluster: topics, writes, reads and questions, drawn from the seed, and a last read.

phase      what users do
SAFETY     producers write, consumers read, seek back and ask for "latest"
LIVENESS   the same until every ISR is whole again, under load; then nobody writes any more, and when all is settled
           (V19) a last reader reads every partition from its start: `finished` when it is through
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from minilog.config import ClientConfig, parse_config
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME
from minilog.types import TopicPartition
from minilog.v1 import admin_pb2, common_pb2
from minilog_broker.controller.internal_topics import internal_replication_factor
from minilog_broker.replication.partition_state import NO_LEADER, PartitionKey
from tests.simulation.clients import ClientProcess
from tests.simulation.consuming import SimulatedConsumer
from tests.simulation.history import History
from tests.simulation.invariants.liveness import is_whole, open_transactions, undeleted, unsettled
from tests.simulation.invariants.violation import Violation
from tests.simulation.network import Failure
from tests.simulation.producing import SimulatedProducer
from tests.simulation.spark_sink import SparkSink
from tests.simulation.trimming import Trimmer

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.invariants.judge import Judge

LEAST_WRITING_MS = 1_000.0  # in the liveness phase
LOOK_MS = 250.0  # how often the end is looked for
LAST_READER = "last-reader"


class Workload:
    """See the module's text. Made before the first step of the cluster."""

    def __init__(self, cluster: Cluster, history: History, judge: Judge) -> None:
        self.cluster, self.history, self.judge = cluster, history, judge
        self.finished = False
        self._rng = random.Random(f"workload {cluster.seed}")
        self._topics = [f"t{number}" for number in range(cluster.plan.topic_count)]
        self._replication_factor = cluster.plan.replication_factor
        self._writing = True
        self._healed_ms = 0.0
        self._last: SimulatedConsumer | None = None
        self._admin = cluster.add_client()
        self._create(None)
        self._producers = [self._producer(number) for number in range(self._rng.choice(cluster.plan.producer_counts))]
        self._consumers = [self._consumer(number) for number in range(self._rng.choice(cluster.plan.consumer_counts))]
        self._pause_ms = self._rng.choice(cluster.plan.write_pauses_ms)
        self._sinks = [self._sink(*each) for each in enumerate(cluster.plan.sinks)] if cluster.plan.transactions else []
        self._trimmer = self._trims() if cluster.plan.trims_per_s else None
        self._admin.after(LOOK_MS, self._look)

    # -- clients

    def _config(self, **settings: object) -> ClientConfig:
        rng = self._rng
        drawn: dict[str, object] = {
            "bootstrap.servers": "node-1:9092",
            "session.keepalive.ms": int(self.cluster.plan.session_keepalive_ms),
            "delivery.timeout.ms": rng.choice(self.cluster.plan.delivery_timeouts_ms),
            "request.timeout.ms": rng.choice((300, 1_500, 5_000)),
            "retry.backoff.ms": rng.choice((10, 50)),
        }
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return parse_config({**drawn, **named})

    def _producer(self, number: int) -> SimulatedProducer:
        rng = self._rng
        acks = rng.choice(self.cluster.plan.acks) if number else "all"
        settings: dict[str, object] = {"acks": acks, "linger_ms": rng.choice((0, 5)), "batch_size": 200}
        if acks == "all" and number and rng.random() < 0.2:
            settings["enable_idempotence"] = False
        client = self.cluster.add_client()
        name = f"p{number}"
        writer_rng = random.Random(f"{name} {self.cluster.seed}")
        made = SimulatedProducer(
            name, client, self._config(**settings), self.cluster.plan.node_ids, self.history, writer_rng
        )
        client.after(rng.uniform(0.0, 500.0), self._write, (made, client))
        return made

    def _consumer(self, number: int) -> SimulatedConsumer:
        rng = self._rng
        resets = ("earliest", "earliest", "latest")
        reset = rng.choice((*resets, "error") if self.cluster.plan.trims_per_s else resets)
        rack = rng.choice(self.cluster.plan.consumer_racks)
        made, client = self._reader(f"c{number}", auto_offset_reset=reset, client_rack=rack)
        client.after(rng.uniform(200.0, 700.0), self._read, (made, client))
        return made

    def _reader(self, name: str, **settings: object) -> tuple[SimulatedConsumer, ClientProcess]:
        client = self.cluster.add_client()
        rng = random.Random(f"{name} {self.cluster.seed}")
        config = self._config(**({"fetch_max_bytes": self._rng.choice((300, 2_000, 100_000))} | settings))
        return SimulatedConsumer(name, client, config, self.cluster.plan.node_ids, self.history, rng), client

    def _trims(self) -> Trimmer:
        plan, rng = self.cluster.plan, random.Random(f"trimmer {self.cluster.seed}")
        client, config = self.cluster.add_client(), self._config(request_timeout_ms=3_000)
        return Trimmer(client, config, plan.node_ids, self._topics, plan.trims_per_s, rng)

    def _sink(self, number: int, name: str) -> SparkSink:
        rng = random.Random(f"sink {number} {self.cluster.seed}")

        def config(transactional_id: str) -> ClientConfig:
            # Below the time that an open transaction may hold up readers in the liveness phase.
            settings = {"transactional_id": transactional_id, "transaction_timeout_ms": rng.choice((500, 2_000, 4_000))}
            return self._config(linger_ms=rng.choice((0, 5)), batch_size=200, **settings)

        return SparkSink(self.cluster, self.history, name, config, self._topics, rng)

    # -- what they do

    def _write(self, made: tuple[SimulatedProducer, ClientProcess]) -> None:
        producer, client = made
        if self._writing:
            producer.write(self._topics)
            pause_ms = self._pause_ms
            if self.cluster.phase.name != "SAFETY":
                pause_ms = min(pause_ms, self.cluster.plan.load_pause_ms)
            client.after(self._rng.expovariate(1.0 / pause_ms), self._write, made)

    def _read(self, made: tuple[SimulatedConsumer, ClientProcess]) -> None:
        consumer, client = made
        consumer.read(self._keys(consumer))
        drawn = self._rng.random()
        if drawn < 0.1:
            consumer.seek_back()
        elif drawn < 0.5:
            consumer.ask_latest()
        elif drawn < 0.5 + self.cluster.plan.take_over_share:
            consumer.take_over(self._rng.choice(self._consumers))
        client.after(self._rng.uniform(50.0, 400.0), self._read, made)

    def _keys(self, consumer: SimulatedConsumer) -> dict[TopicPartition, PartitionKey]:
        """All partitions of our topics, as the committed metadata has them and this consumer knows them."""
        image, known = self.judge.metadata.image, consumer.cache.topics
        found: dict[TopicPartition, PartitionKey] = {}
        for name in self._topics:
            topic = image.topic(name)
            if topic is None or (name in known and known[name].topic_id != topic.topic_id):
                continue
            for key in topic.partition_keys():
                found[TopicPartition(name, key.partition)] = key
        return found

    def _create(self, _: Any) -> None:
        """Ask one broker after the other to create what is missing, until it is there."""
        plan, image = self.cluster.plan, self.judge.metadata.image
        if all(name in image.topic_ids for name in self._topics):
            return
        request = admin_pb2.CreateTopicsRequest(timeout_ms=1_000)
        for name in self._topics:
            request.topics.add(name=name, num_partitions=plan.partitions, replication_factor=self._replication_factor)
        node_id = self._rng.choice(list(plan.node_ids))

        def answered(answer: Any) -> None:
            codes = set() if isinstance(answer, Failure) else {result.error.code for result in answer.results}
            if common_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR in codes and self._rng.random() < 0.2:
                self._replication_factor = max(1, self._replication_factor - 1)  # not so many brokers are there
            self._admin.after(200.0 if codes == {0} else 50.0, self._create)

        self._admin.call(node_id, "CreateTopics", request, answered, timeout_ms=1_000.0)

    # -- the end

    def _look(self, _: Any) -> None:
        self._admin.after(LOOK_MS, self._look)
        cluster = self.cluster
        if cluster.phase.name == "SAFETY":
            return
        if self._writing:
            self._healed_ms = self._healed_ms or cluster.now_ms
            written = cluster.now_ms >= self._healed_ms + LEAST_WRITING_MS and not self._missing()
            self._writing = not (written and is_whole(cluster, self.judge))
            for sink in self._sinks:
                sink.writing = self._writing
            if self._trimmer is not None and not self._writing:
                self._trimmer.finish([TopicPartition(name, key.partition) for name, key in self._named_keys()])
        elif self.wrong() is None:
            self._last_read()

    def wrong(self) -> Violation | None:
        """What keeps the run from its end: V19 of brokers and of clients."""
        if (wrong := unsettled(self.cluster, self.judge)) is not None:
            return wrong
        if missing := self._missing():
            return Violation("V19", f"topics {missing} could not be created")
        # A partition may wait for its operator: where power was lost under flush.policy=os, and may lack what a marker
        # asks for; where its last copy rotted. Whoever has to write there waits with it.
        whole = not self._unled() and all(self.judge.partitions[key].exempt is None for _, key in self._named_keys())
        whole = whole and not self._lacks_brokers()
        if (busy := [sink.name for sink in self._sinks if not sink.idle]) and whole:
            return Violation("V19", f"queries {busy} do not get their last micro-batch committed")
        if self._sinks and not busy and (wrong := open_transactions(self.cluster, self.judge)) is not None:
            return wrong
        if self._trimmer is not None and (wrong := undeleted(self.cluster, self.judge, self._trimmer)) is not None:
            return wrong
        if pending := self.history.pending():
            text = f"{len(pending)} writes are not answered, the first of {pending[0].client}: {pending[0]}"
            return Violation("V19", text, key=pending[0].key)
        return None

    def _lacks_brokers(self) -> bool:
        """Whether there is no coordinator yet, and cannot be one: its topic has its replicas on brokers that run."""
        image = self.judge.metadata.image
        factor = internal_replication_factor(len(image.voters))
        return TRANSACTIONS_TOPIC_NAME not in image.topic_ids and len(self.cluster.core) < factor

    def _unled(self) -> list[PartitionKey]:
        """Partitions that nobody leads; where `unsettled` finds nothing wrong, nobody who is there could."""
        partitions = self.judge.metadata.image.partitions
        return [key for _, key in self._named_keys() if partitions[key].leader_id == NO_LEADER]

    def _missing(self) -> list[str]:
        return [name for name in self._topics if name not in self.judge.metadata.image.topic_ids]

    def ends(self) -> dict[PartitionKey, tuple[int, int]]:
        """(start, end) of each of our partitions that are led, as the last reader must find them: it reads what is
        committed. A partition that has lost what a decided transaction wrote refuses its markers, so that the
        transaction stays open for its operator, and readers stop before it."""
        found = {}
        image = self.judge.metadata.image
        for _, key in self._named_keys():
            node = self.cluster.nodes.get(image.partitions[key].leader_id)
            life = node.life if node is not None else None
            if life is not None and (log := life.logs.get(key)) is not None:
                lossy = self.history.is_exempt(key)
                found[key] = (log.log_start_offset, log.last_stable_offset if lossy else log.high_watermark)
        return found

    def _named_keys(self) -> list[tuple[str, PartitionKey]]:
        """All partitions that our topics have."""
        topics = [(name, self.judge.metadata.image.topic(name)) for name in self._topics]
        return [(name, key) for name, topic in topics if topic is not None for key in topic.partition_keys()]

    def _last_read(self) -> None:
        if self._last is None:
            self._last, _ = self._reader(LAST_READER, auto_offset_reset="earliest", fetch_max_bytes=1 << 20)
        self._last.read(self._keys(self._last))
        for key in self._unled():
            self.history.exempt(key)  # what is in it cannot be read
        ends = self.ends()
        if all((self.history.known_position(LAST_READER, key) or 0) >= end for key, (_, end) in ends.items()):
            self.history.check_end(LAST_READER, ends)
            self.finished = True

    def check_over(self) -> None:
        """The liveness phase is over: raises what did not come true."""
        if self.finished:
            return
        if (wrong := self.wrong()) is not None:
            raise wrong
        ends = self.ends()
        self.history.check_end(LAST_READER, ends)
        raise Violation("V19", f"the run does not come to its end: {ends}")
