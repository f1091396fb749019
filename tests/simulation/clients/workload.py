"""What users do to it: a topic each, producers that write as long as they may, consumers that read, and a last read."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minilog.aio import Admin, Consumer, Producer
from minilog.errors import (
    InvalidArgument,
    InvalidSchema,
    LevelNotReached,
    MinilogError,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownOutcome,
)
from minilog.partition_key import PartitionKey
from minilog.types import BatchMetadata, NewTopic, Record, RecordMetadata, TopicPartition
from tests.judges.violation import Violation
from tests.simulation.clients import guest, proposing, sharing, spark_sink, transacting
from tests.simulation.clients.filtered_reading import FilteredReading
from tests.simulation.clients.forger import Forger
from tests.simulation.clients.glutton import Glutton
from tests.simulation.clients.guest import Guest, make_users
from tests.simulation.clients.history import History, Outcome, Write
from tests.simulation.clients.keyed import identity_of, keyed
from tests.simulation.clients.queue_settings import DEAD_LETTERS, drawn
from tests.simulation.clients.retention import Retention
from tests.simulation.clients.rights import Subjects
from tests.simulation.clients.typed_topic import TellingConsumer, TypedTopic
from tests.simulation.machines.identities import ADMIN, APP

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.retirement import Retirement
    from tests.simulation.judge.settings import Settings
    from tests.simulation.machines.machine import ClientMachine

TOPIC = "t{}"
SILENT = "silent"
_SPECIAL = (transacting.TOPIC, spark_sink.TOPIC, sharing.TOPIC, proposing.TOPIC, DEAD_LETTERS)
IN_FLIGHT = 50
IDEMPOTENT_SHARE = 0.8  # of producers that wait for all
SEEN_AGAIN_RECORDS = 50
SEEKS_BACK_SHARE, TAKES_OVER_SHARE = 0.01, 0.03  # of a consumer's polls
BEGINS_ANEW_SHARE = 0.005  # of those of compacted topics
ASK_AGAIN_S = 0.2
HURRY_SHARE, HURRIES_S = 0.005, (0.0, 0.002, 0.01, 0.05)  # of writes, behind which the program closes its producer

_CLOCKS_THAT_JUMP = {"message.timestamp.after.max.ms": str(4 * 3_600_000)}
"""Brokers' clocks jump by up to an hour each time (faults/processes.py): one that began after a
jump refuses nothing."""


class Workload:
    """The users of one run: who they are, and what they know."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._plan = cluster.plan
        self.written = 0
        self._chance = random.Random(f"keys {cluster.seed}")
        self._generation = 0
        self.writing = True
        self.outruns = False  # it writes more than followers can read: who waits for no follower stops
        self.keys: dict[TopicPartition, PartitionKey] = {}
        self.replicas: dict[PartitionKey, list[str]] = {}  # names of hosts
        self._special: dict[str, bytes] = {}  # ids of topics
        self.acknowledged_s: dict[PartitionKey, float] = {}
        self.asked_s: dict[PartitionKey, float] = {}  # since when a write, with acks=all, waits for its acknowledgement
        self.acknowledged_end: dict[PartitionKey, int] = {}
        self.trimmed: dict[PartitionKey, int] = {}  # what is below may be deleted: somebody asked for that
        self._retention = Retention(cluster, history, self._plan.topic_configs)
        self.deleted: dict[PartitionKey, int] = {}  # what is below is: that was answered
        set_by = [self._plan.topic_configs, *self._plan.configs.values()]  # a topic is made with what brokers have
        unsynced = any(configs.get("flush.policy") == "os" for configs in set_by)
        self.unsynced_since_s = 0.0 if unsynced else math.inf  # the topic may be under flush.policy=os since
        history.may_be_deleted = self.may_be_gone
        self.producers: list[str] = []
        self._acks: dict[str, str] = {}  # of each producer
        self.consumers: list[str] = []
        self.typed = TypedTopic(cluster) if self._plan.typed else None
        self.guest = Guest(cluster, self) if self._plan.users else None
        self.forger = Forger(cluster, self) if self._plan.users else None
        self.glutton = Glutton(cluster, self) if self._plan.glutton else None
        self.subjects = Subjects(cluster, self) if self._plan.users else None
        self._filtered = None if self.typed is None else FilteredReading(cluster, self, history, self.typed)

    def settings(self, **given: object) -> dict[str, object]:
        """Of a client, which may write and read all topics."""
        return self.settings_of(APP, **given)

    def settings_of(self, user: str, **given: object) -> dict[str, object]:
        """Of a client of that user, where users are known."""
        known = self._cluster.identities
        settings = {} if known is None else known.of_user(user)
        settings["bootstrap.servers"] = self._cluster.bootstrap_servers
        return settings | {name.replace("_", "."): value for name, value in given.items()}

    async def look_at_replicas(self) -> None:
        """Where they are by now: they may have been moved."""
        process, machine = self._cluster.client("looker")

        async def look() -> None:
            async with Admin(self.settings_of(ADMIN, request_timeout_ms=3_000), machine) as admin:
                while True:
                    with contextlib.suppress(MinilogError):
                        for topic in await admin.describe_topics({at.topic for at in self.keys}):
                            for each in topic.partitions:
                                key = self.keys[TopicPartition(topic.name, each.partition)]
                                self.replicas[key] = [f"b{number}" for number in each.replicas]
                        return
                    await asyncio.sleep(ASK_AGAIN_S)

        await _result(self._cluster.loop.spawn(process, look()))

    async def uncordon(self, retirement: Retirement) -> None:
        """All that are cordoned, and not decommissioned, take replicas again."""
        process, machine = self._cluster.client("uncordons")

        async def ask() -> None:
            async with Admin(self.settings_of(ADMIN, request_timeout_ms=3_000), machine) as admin:
                while retirement.cordoned:
                    for broker_id in retirement.cordoned:
                        with contextlib.suppress(MinilogError):
                            await admin.uncordon_broker(broker_id)
                    await asyncio.sleep(ASK_AGAIN_S)

        await _result(self._cluster.loop.spawn(process, ask()))

    async def enable_cleaners(self, settings: Settings) -> None:
        """No setting holds a cleaner back any more."""
        process, machine = self._cluster.client("enables cleaners")

        async def ask() -> None:
            async with Admin(self.settings_of(ADMIN, request_timeout_ms=3_000), machine) as admin:
                while kept := set(settings.kept):
                    for whose, name in sorted(kept):
                        with contextlib.suppress(MinilogError):
                            broker_id = None if whose < 0 else whose
                            await admin.alter_broker_settings(broker_id, unset_configs=[name])
                    await asyncio.sleep(ASK_AGAIN_S)

        await _result(self._cluster.loop.spawn(process, ask()))

    # -- topics

    async def make_topics(self) -> None:
        """Ask until they are there."""
        process, machine = self._cluster.client("admin")
        await _result(self._cluster.loop.spawn(process, self._make_topics(machine)))

    async def _make_topics(self, machine: object) -> None:
        plan = self._plan
        async with Admin(self.settings_of(ADMIN, request_timeout_ms=3_000), machine) as admin:  # type: ignore[arg-type]
            if plan.users:
                await make_users(admin, TOPIC.format(0))
            names = [TOPIC.format(number) for number in range(plan.topics)]
            special = [*([transacting.TOPIC] if plan.writers else []), *([spark_sink.TOPIC] if plan.queries else [])]
            silent = [SILENT] if plan.silent_partitions else []
            guests = [guest.TOPIC] if plan.users else []
            special += [sharing.TOPIC] if plan.sharing else []
            special += [proposing.TOPIC] if plan.proposing else []
            special += [DEAD_LETTERS] if plan.queuing and self._has_dead_letters() else []
            for name in [*names, *special, *silent, *guests]:
                new = self._new(name)
                while True:
                    try:
                        await admin.create_topics([new])
                    except TopicAlreadyExists:
                        pass
                    except LevelNotReached:
                        with contextlib.suppress(MinilogError):
                            await admin.upgrade_level()
                        continue
                    except MinilogError:
                        await asyncio.sleep(ASK_AGAIN_S)
                        continue
                    break
                if name in silent or name in guests:
                    continue
                (topic,) = await admin.describe_topics([name])
                topic_id = admin._cluster.cache.topics[name].topic_id
                if name in special:
                    self._special[name] = topic_id
                    continue
                for partition in range(plan.partitions):
                    key = self.keys[TopicPartition(name, partition)] = PartitionKey(topic_id, partition)
                    self.replicas[key] = [f"b{number}" for number in topic.partitions[partition].replicas]

    def _new(self, name: str) -> NewTopic:
        plan = self._plan
        is_plain = name in (*_SPECIAL, guest.TOPIC) and not (plan.compacted and name == transacting.TOPIC)
        configs = {"min.insync.replicas": "2"} if is_plain else plan.topic_configs
        partitions = {SILENT: plan.silent_partitions, guest.TOPIC: 1, sharing.TOPIC: sharing.PARTITIONS}.get(
            name, plan.partitions
        )
        schema = self.typed.schema if self.typed is not None and name not in (*_SPECIAL, SILENT, guest.TOPIC) else None
        schema = proposing.SCHEMA if name == proposing.TOPIC else schema
        return NewTopic(name, partitions, plan.replication_factor, {**configs, **_CLOCKS_THAT_JUMP}, schema)

    def _has_dead_letters(self) -> bool:
        return drawn(self._cluster.seed, has_letters=self._plan.redriving).copies is not None

    def keys_of_special(self, topic: str) -> dict[int, PartitionKey]:
        """By partition; of a topic of writers with transactions, or of queries."""
        return {each: PartitionKey(self._special[topic], each) for each in range(self._plan.partitions)}

    def may_have_lost(self, key: PartitionKey) -> bool:
        """Whether an unclean election has come: "latest" may go back."""
        return self._history.is_exempt(key)

    def may_be_gone(self, key: PartitionKey) -> int:
        """The offset below which records may be deleted: by command, or by age and size."""
        at = next(at for at, known in self.keys.items() if known == key)
        return max(self.trimmed.get(key, 0), self._retention.may_be_gone(at, key))

    def alter(self, configs: dict[str, str]) -> None:
        """Somebody alters the topic; whether it comes to pass is not waited for."""
        self._retention.asked(configs)
        if configs.get("flush.policy") == "os":
            self.unsynced_since_s = min(self.unsynced_since_s, self._cluster.now_s)

        async def ask(admin: Admin) -> None:
            await admin.alter_topic(TOPIC.format(0), set_configs=configs)

        self.command(ask)

    def trim(self, key: PartitionKey, offset: int) -> None:
        """Somebody deletes what is below `offset`: from now on it may be gone, and when that is answered it is."""
        at = next(at for at, known in self.keys.items() if known == key)
        self.trimmed[key] = max(self.trimmed.get(key, 0), offset)

        async def ask(admin: Admin) -> None:
            low = (await admin.delete_records({at: offset}))[at]
            self.deleted[key] = max(self.deleted.get(key, 0), low)

        self.command(ask)

    def command(self, ask: Callable[[Admin], Awaitable[object]]) -> None:
        """A client of its own asks; whether it gets an answer is not waited for."""
        self._generation += 1
        process, machine = self._cluster.client(f"a{self._generation}")

        async def run() -> None:
            async with Admin(self.settings_of(ADMIN, request_timeout_ms=5_000), machine) as admin:
                with contextlib.suppress(MinilogError):  # it may have come to pass all the same
                    await ask(admin)

        self._cluster.run_client(process, run())

    # -- writing

    def add_producer(self) -> None:
        self._generation += 1
        name = f"p{self._generation}"
        process, machine = self._cluster.client(name)
        chance = machine.chance()
        waits = any(self._acks[each] == "all" for each in self.producers)  # one at least waits for all
        acks = self._acks[name] = chance.choice(self._plan.acks) if waits else "all"
        idempotent = acks == "all" and chance.random() < IDEMPOTENT_SHARE
        self.producers.append(name)
        self._cluster.run_client(process, self._produce(name, machine, acks, idempotent=idempotent))

    async def _produce(self, name: str, machine: ClientMachine, acks: str, *, idempotent: bool) -> None:
        timeout_ms = int(self._plan.delivery_timeout_s * 1000)
        settings = self.settings(
            acks=acks,
            enable_idempotence=str(idempotent).lower(),
            delivery_timeout_ms=timeout_ms,
            linger_ms=0,
            max_block_ms=timeout_ms,
        )
        counted = -1 if acks == "all" else int(acks)
        chance = machine.chance()
        if self.typed is not None:  # some hear soon of another version, others go on with what they know
            settings["metadata.max.age.ms"] = chance.choice((300, 2_000, 60_000))
        while self._writes(counted):
            producer = Producer(settings, machine)
            await self._write(name, producer, chance, counted, idempotent=idempotent)
            await producer.close(chance.choice(HURRIES_S) if self.writing else None)

    def _writes(self, acks: int) -> bool:
        """Whether a program with these acks goes on."""
        return self.writing and (acks == -1 or not self.outruns)

    async def _write(
        self, name: str, producer: Producer, chance: random.Random, acks: int, *, idempotent: bool
    ) -> None:
        """Until nobody writes any more, or the program is in a hurry to close its producer, whatever is out."""
        partitions = list(self.keys)
        under_way: set[asyncio.Future[Any]] = set()
        while self._writes(acks):
            await asyncio.sleep(self._plan.write_pause_s)
            if len(under_way) >= IN_FLIGHT:
                continue
            at = chance.choice(partitions)
            count = 1 if self.typed is None else self.typed.count(chance)
            values = [self._began(name, at, acks, idempotent=idempotent) for _ in range(count)]
            try:
                future = await self._send(producer, at, values)
            except MinilogError as error:
                for value in values:
                    self._end(value, Outcome.FAILED, error=repr(error))
                continue
            under_way.add(future)
            future.add_done_callback(lambda done, values=values, at=at: self._told(values, at, done))  # type: ignore[misc]
            future.add_done_callback(under_way.discard)
            if self._cluster.rages and chance.random() < HURRY_SHARE:
                self._cluster.count("a producer closes in a hurry")
                return

    def _began(self, name: str, at: TopicPartition, acks: int, *, idempotent: bool) -> bytes:
        """A value of its own, that is going to be written."""
        self.written += 1
        value = f"{name}:{self.written}".encode()
        self._history.began(Write(value, self.keys[at], name, idempotent, acks, self._cluster.now_s * 1e3))
        if acks == -1:
            self.asked_s.setdefault(self.keys[at], self._cluster.now_s)
        return value

    async def _send(self, producer: Producer, at: TopicPartition, values: list[bytes]) -> asyncio.Future[Any]:
        if self.typed is not None:
            return await self.typed.send(producer, at, values)
        if self._plan.compacted:
            return await producer.send(at.topic, partition=at.partition, **keyed(values[0], self._chance))
        return await producer.send(at.topic, values[0], partition=at.partition)

    def _told(self, values: list[bytes], at: TopicPartition, done: asyncio.Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            outcome = Outcome.UNKNOWN if isinstance(error, UnknownOutcome) else Outcome.FAILED
            for value in values:
                self._end(value, outcome, error=repr(error))
            return
        for value, offset in zip(values, _offsets(done.result(), len(values)), strict=True):
            key = self.keys[at]
            if self._history.writes[value].acks == -1:
                self.acknowledged_s[key] = self._cluster.now_s
                self.asked_s.pop(key, None)
                self.acknowledged_end[key] = max(self.acknowledged_end.get(key, 0), offset + 1)
            self._end(value, Outcome.OK, offset=offset)

    def _end(self, value: bytes, outcome: Outcome, *, offset: int = -1, error: str = "") -> None:
        self._history.ended(value, outcome, self._cluster.now_s * 1e3, offset=offset, error=error)

    async def lie(self, name: str, machine: ClientMachine, chance: random.Random) -> None:
        """See Operations.lie."""
        assert self.typed is not None
        settings = self.settings(enable_idempotence="false", delivery_timeout_ms=2_000, linger_ms=0, max_block_ms=2_000)
        at = chance.choice(list(self.keys))
        value = self._began(name, at, 1, idempotent=False)
        async with Producer(settings, machine) as producer:
            try:
                told = await (await self.typed.lie(producer, at, value))
            except MinilogError as error:
                outcome = Outcome.UNKNOWN if isinstance(error, UnknownOutcome) else Outcome.FAILED
                self._end(value, outcome, error=repr(error))
                return
        text = f"{value!r} is acknowledged at {told.offset}, by a version of the schema that nobody has made"
        raise Violation("typed", text)

    # -- reading

    def add_consumer(self) -> str:
        self._generation += 1
        name = f"c{self._generation}"
        process, machine = self._cluster.client(name)
        self.consumers.append(name)
        for key in self.keys.values():
            self._history.placed(name, key, 0)
        self._cluster.run_client(process, self._consume(name, machine, dict(self.deleted)))
        return name

    async def _consume(self, name: str, machine: ClientMachine, deleted: dict[PartitionKey, int]) -> None:
        """Read on, for ever. Where an unclean election took what it has read, it is told so, and begins anew."""
        while True:
            try:
                await self._read(name, machine, deleted)
            except OffsetOutOfRange as error:
                if not any(self._history.is_exempt(key) for key in self.keys.values()):
                    raise Violation("V14", str(error)) from error

    async def _read(self, name: str, machine: ClientMachine, deleted: dict[PartitionKey, int]) -> None:
        rack = self._plan.consumer_racks[self._generation % len(self._plan.consumer_racks)]
        settings = self.settings(auto_offset_reset="earliest", fetch_max_bytes=20_000, client_rack=rack)
        chance = machine.chance()
        async with TellingConsumer(settings, machine) as consumer:
            await consumer.assign([TopicPartition(at.topic, at.partition, self._begin(name, at)) for at in self.keys])
            poll = self._poll(name, consumer, chance)
            while True:
                await self._move(name, consumer, chance)
                records = await poll()
                if not records:
                    for at, key in self.keys.items():
                        self._history.passed_deleted(name, key, consumer.position(at))
                for record in records:
                    key = self.keys[TopicPartition(record.topic, record.partition)]
                    if record.offset < deleted.get(key, 0):
                        text = f"{name} reads {record.offset}, and all below {deleted[key]} was deleted before it began"
                        raise Violation("KIP-107", text)
                    self._history.read(name, key, record.offset, identity_of(record))

    def _poll(
        self, name: str, consumer: TellingConsumer, chance: random.Random
    ) -> Callable[[], Awaitable[list[Record]]]:
        """How it reads: rows of a typed topic are looked at, one by one."""
        if self.typed is None:
            return consumer.poll
        reader = self.typed.reader(name, consumer, chance)

        async def poll() -> list[Record]:
            try:
                return await reader.poll(1.0)
            except (InvalidArgument, InvalidSchema) as error:
                self._cluster.note(f"{name}: {error}")
                reader.choose_again()
                return []

        return poll

    async def _move(self, name: str, consumer: Consumer, chance: random.Random) -> None:
        """Now and then it reads something again, or goes on where another reader is, perhaps at another replica."""
        drawn, at = chance.random(), chance.choice(list(self.keys))
        key = self.keys[at]
        if self._plan.compacted and drawn < BEGINS_ANEW_SHARE:
            offset = 0
        elif drawn < SEEKS_BACK_SHARE:
            position = self._history.known_position(name, key) or 0
            offset = chance.randint(max(0, position - SEEN_AGAIN_RECORDS), position)
        elif drawn < SEEKS_BACK_SHARE + TAKES_OVER_SHARE and self._cluster.rages:
            offset = self._history.known_position(chance.choice(self.consumers), key) or 0
        else:
            return
        self._history.placed(name, key, offset)
        await consumer.seek(at, offset)

    def _begin(self, name: str, at: TopicPartition) -> int:
        key = self.keys[at]
        return 0 if self._history.is_exempt(key) else self._history.known_position(name, key) or 0

    def filtered_readers(self) -> FilteredReading:
        """Of a typed topic."""
        assert self._filtered is not None
        return self._filtered

    def positions(self, consumer: str) -> dict[PartitionKey, int]:
        """How far it has read."""
        return {key: self._history.known_position(consumer, key) or 0 for key in self.keys.values()}


def _offsets(told: RecordMetadata | list[BatchMetadata], count: int) -> list[int]:
    """Of each record of a write; -1 where it is not told."""
    if isinstance(told, RecordMetadata):
        return [told.offset]
    (part,) = told  # they are few
    return [-1] * count if part.first_offset < 0 else list(range(part.first_offset, part.last_offset + 1))


async def _result(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    task.result()
