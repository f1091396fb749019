"""The truth about the metadata log, from wires and disks: what is committed of it, and what it says. V12, V13, V4, V17.

A quorum leader tells how far it is committed (`high_watermark` of what it sends to its followers). The first time that
more is told, a majority of the voters' disks must have it, and an entry of that leader's epoch must be among it (V12).
From then on nothing else may be told at those offsets, and a leader of a later epoch must have it all.

What the committed records say of partitions, topics and lives is what the other watchers judge by. It is known a little
later here than to the controller, which may act on it at once: `later` has what is on disks already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader
from minilog.v1 import records_pb2
from minilog_broker.controller.topic_config import BUILT_IN, effective_topic_config
from minilog_broker.quorum.records import CommittedBatch, decode_leader_change, decode_run
from minilog_broker.replication.partition_state import TopicConfig
from tests.judges.quorum import Holders, OneLog, check_entered, check_held, check_leader
from tests.judges.states import check_state
from tests.judges.views import View, is_same
from tests.judges.violation import Violation
from tests.simulation.judge.copies import Copies, Copy
from tests.simulation.judge.registrations import Decision, NextLife, Registrations
from tests.simulation.machines.host import DATA_PATH
from tests.world.stored import durable_json

LOG_NAME = "__cluster_metadata-0"


@dataclass(slots=True)
class Raise:
    """min.insync.replicas was raised by the record at `offset`; who has not heard of that counts to the former one."""

    offset: int
    former: int
    heard_by: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Topic:
    """A topic as the committed records have it."""

    name: str
    made_with: dict[str, str]
    config: TopicConfig
    set_values: dict[str, str] = field(default_factory=dict)
    raises: list[Raise] = field(default_factory=list)
    least_delete_retention_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.least_delete_retention_ms = self.config.delete_retention_ms

    def set(self, name: str, value: str | None, offset: int) -> None:
        """Another value, or none, by the record at `offset`."""
        former = self.config.min_in_sync_replicas
        self.set_values.pop(name, None)
        if value is not None:
            self.set_values[name] = value
        self.config = effective_topic_config({**self.made_with, **self.set_values})
        self.least_delete_retention_ms = min(self.least_delete_retention_ms, self.config.delete_retention_ms)
        if self.config.min_in_sync_replicas > former:
            self.raises.append(Raise(offset, former))

    def least_min(self, number: int) -> int:
        """The lowest min.insync.replicas that broker `number` may go by."""
        formers = (each.former for each in self.raises if number not in each.heard_by)
        return min((self.config.min_in_sync_replicas, *formers))


@dataclass(slots=True)
class JudgedChange:
    """A committed state of a partition, and the one before; `offset`: of its record."""

    key: PartitionKey
    before: records_pb2.PartitionRecord | None
    state: records_pb2.PartitionRecord
    offset: int


@dataclass(slots=True)
class _Harm:
    """So many faults have taken what a voter had."""

    count: int
    next_life: NextLife


class Metadata:
    """See the module's text. `changed` hears of each committed state of a partition, in their order, `replayed` of each
    batch."""

    def __init__(
        self,
        copies: Copies,
        voters: list[int],
        changed: Callable[[JudgedChange], None],
        registrations: Registrations,
        replayed: Callable[[CommittedBatch], None] = lambda batch: None,
    ) -> None:
        self._copies = copies
        self._voters = voters
        self._directories: dict[int, str] = {}  # of voters, as recorded
        self._changed = changed
        self._harms: dict[int, _Harm] = {}
        self._replays_from = 0  # what is committed from there on was not looked at
        self.registrations = registrations
        self._replayed = replayed
        self._log = OneLog[BatchHeader](lambda header: header.next_offset)
        self.states: dict[PartitionKey, records_pb2.PartitionRecord] = {}
        self.topics: dict[bytes, Topic] = {}
        self.next_producer_id = 0
        self._proof_key = b""
        self._led: dict[int, tuple[int, int]] = {}  # by quorum epoch: the leader, and when by its wall clock

    @property
    def batches(self) -> list[BatchHeader]:
        return self._log.entries

    @property
    def end(self) -> int:
        return self._log.end

    @property
    def written_end(self) -> int:
        """Where the longest log of a voter ends, committed or not."""
        return max(self._copies.of(voter, LOG_NAME).live.end for voter in self.voters)

    @property
    def voters(self) -> list[int]:
        return list(self._directories) or self._voters

    def voter_sets(self) -> list[list[int]]:
        """The voters, and those of changes that are not known to be committed."""
        changes = (record.voters for record in self.later_records() if record.HasField("voters"))
        return [self.voters, *([voter.broker_id for voter in change.voters] for change in changes)]

    def votes(self, number: int) -> bool:
        """Whether it runs on the disk that is recorded: with another one it is no voter."""
        return self._directories.get(number, "") in ("", self._directory(number))

    def log_name(self, key: PartitionKey) -> str | None:
        """Of its copies; None where the topic is not known, or not any more."""
        topic = self.topics.get(key.topic_id)
        return None if topic is None else f"{topic.name}-{key.partition}"

    # -- what is told

    def told(self, number: int, epoch: int, high_watermark: int) -> None:
        """The leader of quorum epoch `epoch` says what is committed."""
        copy = self._copies.of(number, LOG_NAME)
        if high_watermark <= self.end:
            return
        lacks = self._first_difference(copy, copy.live)
        new = self._log.told(number, high_watermark, lacks, copy.live.from_offset(self.end))
        for header in new:
            if header.is_control:
                change = decode_leader_change(copy.live.content(header.base_offset))
                self._led[header.partition_leader_epoch] = change.leader_id, header.base_timestamp_us
        self._check_held(number, epoch, copy.live.from_offset(new[0].base_offset))
        for header in new:
            self._replays_from = header.base_offset
            for batch in self._whole(header):
                self._replay(batch, header)
                self._replayed(batch)
        self._replays_from = self.end

    def _changes_of_voters(self, view: View, headers: Iterable[BatchHeader]) -> Iterator[dict[int, str]]:
        """The voters after each change in these batches. A change names a voter that is known."""
        directories = self._directories
        for header in headers:
            content = view.content(header.base_offset)
            if not any(bytes.fromhex(directory) in content for directory in directories.values()):
                continue
            for record in (record for batch in _decoded(view, header) for record in batch.records):
                if record.HasField("voters"):
                    directories = _directories_of(record.voters.voters)
                    yield directories

    def _whole(self, header: BatchHeader) -> list[CommittedBatch]:
        """A committed batch, from any disk where it did not rot."""
        for voter in self.voters:
            view = self._copies.of(voter, LOG_NAME).live
            if is_same(header, next(iter(view.from_offset(header.base_offset)), None)):
                found = _decoded(view, header)
                if found:
                    return found
        raise Violation("V12", f"what is committed at {header.base_offset} is whole on no disk")

    def _check_held(self, number: int, epoch: int, later: Iterable[BatchHeader]) -> None:
        """By the voters before it, or by those after a change in the leader's log, which `later` is: a change counts
        from when it is written."""
        newest = self.batches[-1]
        changes = self._changes_of_voters(self._copies.of(number, LOG_NAME).live, later)
        check_held(self.end, map(self._held_by, (self._directories, *changes)))
        led = self._led.get(newest.partition_leader_epoch, (-1, 0))[0] == number  # then, it was committed by counting
        is_entered = newest.partition_leader_epoch >= epoch or led or self._is_entered(epoch)
        check_entered(number, self.end, epoch, is_entered)

    def _is_entered(self, epoch: int) -> bool:
        """A majority has an entry of that epoch: what it tells may be less, where it told it to one who is behind."""
        last = {voter: self._copies.of(voter, LOG_NAME).durable.batches[-1:] for voter in self.voters}
        entered = [voter for voter, batches in last.items() if batches and batches[0].partition_leader_epoch >= epoch]
        return Holders(self.voters, entered).are_majority

    def _holders(self, voters: Iterable[int], directories: Mapping[int, str]) -> list[int]:
        """Voters, from their recorded disks, that have all that is committed."""
        return [
            voter
            for voter in voters
            if directories.get(voter, "") in ("", self._directory(voter))
            and self._first_difference(copy := self._copies.of(voter, LOG_NAME), copy.durable) is None
        ]

    def _directory(self, number: int) -> str:
        copy = self._copies.of(number, LOG_NAME)
        recorded = durable_json(copy.host.disk, f"{DATA_PATH}/broker.json")
        return "" if recorded is None else str(recorded.get("directory_id", ""))

    def _first_difference(self, copy: Copy, view: View) -> int | None:
        """The first committed offset that the log lacks, or has otherwise; None where it has all. What is below its
        start, or where it has none, is in a snapshot."""
        if view.agreed < self.end:
            view.agreed = max(view.agreed, min(self.end, view.start or copy.snapshot_end(durable=view.durable)))
        agreed = len(self.batches)
        while agreed and self.batches[agreed - 1].next_offset > view.agreed:
            agreed -= 1
        if agreed == len(self.batches):
            return None
        own = view.from_offset(view.agreed)
        for header in self.batches[agreed:]:
            if not is_same(header, next(own, None)):
                return header.base_offset
            view.agreed = header.next_offset
        return None

    def check_leader(self, number: int, epoch: int) -> None:
        """A leader of a new quorum epoch has all that was committed before."""
        copy = self._copies.of(number, LOG_NAME)
        check_leader(number, epoch, self._first_difference(copy, copy.live))

    def check_kept(self) -> None:
        """A majority goes on having what is committed."""
        sets = [_directories_of(record.voters.voters) for record in self.later_records() if record.HasField("voters")]
        if self.batches:
            check_held(self.end, map(self._held_by, (self._directories, *sets)))

    def _held_by(self, directories: Mapping[int, str]) -> Holders:
        """Voters that have all that is committed, or had it: of a harmed one nobody knows."""
        voters = list(directories) or self._voters
        harmed = {voter for voter in voters if self._is_harmed(voter)}
        return Holders(voters, {*self._holders(voters, directories), *harmed})

    def _is_harmed(self, number: int) -> bool:
        """A fault has taken what it had, and no later life is registered: that one has all again."""
        host = self._copies.of(number, LOG_NAME).host
        named = (LOG_NAME, "broker.json")  # the log, and which directory it belongs to
        count = host.disk.wipes + sum(any(name in path for name in named) for path, _, _ in host.disk.flips)
        if count == 0:
            return False
        harm = self._harms.get(number)
        if harm is None or harm.count != count:
            harm = self._harms[number] = _Harm(count, NextLife(self.written_end))
        return not harm.next_life.is_heard_of(self.registrations.broker_epoch(number), host.loop.now_s)

    # -- what it says

    def _replay(self, batch: CommittedBatch, header: BatchHeader) -> None:
        for index, record in enumerate(batch.records):
            which, offset = record.WhichOneof("record"), batch.base_offset + index
            if which == "partition":
                self._partition(record.partition, offset)
            elif which == "topic":
                made_with = {each.name: each.value for each in record.topic.defaults}
                self.topics[record.topic.topic_id] = Topic(
                    record.topic.name, made_with, effective_topic_config(made_with)
                )
            elif which == "topic_config":
                config = record.topic_config
                self.topics[config.topic_id].set(
                    config.name, config.value if config.HasField("value") else None, offset
                )
            elif which == "topic_deletion":
                self.topics.pop(record.topic_deletion.topic_id)
                for key in [key for key in self.states if key.topic_id == record.topic_deletion.topic_id]:
                    del self.states[key]
            elif which == "broker_registration":
                self.registrations.registered(record.broker_registration.broker_id, offset)
            elif which == "broker_state":
                self.registrations.changed(record.broker_state, self._decision(header))
            elif which == "producer_id_block":
                self._given(record.producer_id_block)
            elif which == "cluster":
                self._directories = _directories_of(record.cluster.voters)
            elif which == "voters":
                self._directories = _directories_of(record.voters.voters)
            elif which == "voter_replaced":
                replaced = record.voter_replaced
                self._directories[replaced.broker_id] = replaced.directory_id.hex()

    def _given(self, block: records_pb2.ProducerIdBlockRecord) -> None:
        """With another key nobody could show whose the ids are that were given before."""
        self.next_producer_id = block.next_producer_id
        if self._proof_key and block.proof_key not in (b"", self._proof_key):
            raise Violation("V14", f"the key of proofs is another one behind producer id {block.next_producer_id}")
        self._proof_key = self._proof_key or block.proof_key

    def _decision(self, header: BatchHeader) -> Decision | None:
        led = self._led.get(header.partition_leader_epoch)
        if led is None:
            return None
        number, elected_us = led
        return Decision(header.partition_leader_epoch, number, header.base_timestamp_us, elected_us)

    def later_of(self, number: int, voter: int) -> bool:
        """Whether a voter's log says something of a life of that broker that is not known to be committed."""
        view = self._copies.of(voter, LOG_NAME).live
        return any(
            number in (record.broker_registration.broker_id, record.broker_state.broker_id)
            for header in list(view.from_offset(self.end))
            for batch in _decoded(view, header)
            for record in batch.records
        )

    def _partition(self, state: records_pb2.PartitionRecord, offset: int) -> None:
        key = PartitionKey(state.topic_id, state.partition)
        before = self.states.get(key)
        self.states[key] = state
        check_state(f"{self.log_name(key)}", state, before, is_clean=False)
        members = set() if before is None else set(before.in_sync_replicas)
        self.registrations.check_joiners(key, set(state.in_sync_replicas) - members)
        self._changed(JudgedChange(key, before, state, offset))

    def later(self, key: PartitionKey) -> Iterator[records_pb2.PartitionRecord]:
        """States of a partition that are on voters' disks, and not known to be committed, or not looked at yet."""
        for record in self.later_records():
            state = record.partition
            if record.HasField("partition") and key == (state.topic_id, state.partition):
                yield state

    def later_records(self) -> Iterator[records_pb2.MetadataRecord]:
        """All that is on voters' disks, and not known to be committed, or not looked at yet."""
        for voter in self.voters:
            view = self._copies.of(voter, LOG_NAME).live
            for header in list(view.from_offset(self._replays_from)):
                for batch in _decoded(view, header):
                    yield from batch.records

    def later_min(self, topic_id: bytes) -> int:
        """The lowest min.insync.replicas of a topic that a majority of the voters has on disk, known to be committed or
        not: the controller goes by it as soon as it is."""
        known = self.topics[topic_id].config.min_in_sync_replicas
        return self._later_least(topic_id, "min.insync.replicas", known)

    def later_delete_retention_ms(self, topic_id: bytes) -> int:
        """The same of delete.retention.ms, of all values that the topic ever had: who leads may not have heard yet."""
        known = self.topics[topic_id].least_delete_retention_ms
        return self._later_least(topic_id, "delete.retention.ms", known)

    def _later_least(self, topic_id: bytes, name: str, known: int) -> int:
        found = [min((known, *map(int, said))) for said in self._later_values(topic_id, name)]
        return sorted(found)[len(self.voters) // 2]

    def later_unsynced(self, topic_id: bytes) -> bool:
        """Whether a majority of the voters has on disk that a topic is under flush.policy=os: the same."""
        found = ["os" in said for said in self._later_values(topic_id, "flush.policy")]
        return sum(found) > len(self.voters) // 2

    def later_deletes(self, topic_id: bytes) -> bool:
        """Whether a majority of the voters has on disk that retention deletes from a topic: the same."""
        found = [any(int(each) >= 0 for each in said) for said in self._later_values(topic_id, "retention.bytes")]
        if sum(found) > len(self.voters) // 2:
            return True
        built_in = range(BUILT_IN.retention_ms)
        found = [any(int(each) in built_in for each in said) for said in self._later_values(topic_id, "retention.ms")]
        return sum(found) > len(self.voters) // 2

    def _later_values(self, topic_id: bytes, name: str) -> Iterator[list[str]]:
        """Of each voter: what its disk says of a setting of a topic behind what is known to be committed."""
        for voter in self.voters:
            view = self._copies.of(voter, LOG_NAME).durable
            configs = (
                record.topic_config
                for header in list(view.from_offset(self.end))
                for batch in _decoded(view, header)
                for record in batch.records
                if record.HasField("topic_config")
            )
            yield [
                each.value
                for each in configs
                if (each.topic_id, each.name) == (topic_id, name) and each.HasField("value")
            ]

    def later_producer_ids(self) -> Iterator[int]:
        """Ends of blocks of producer ids that a majority of the voters has on disk."""
        found: list[int] = []
        for voter in self.voters:
            view = self._copies.of(voter, LOG_NAME).durable
            ends = [self.next_producer_id]
            for header in list(view.from_offset(self.end)):
                for batch in _decoded(view, header):
                    ends.extend(
                        record.producer_id_block.next_producer_id
                        for record in batch.records
                        if record.HasField("producer_id_block")
                    )
            found.append(max(ends))
        yield sorted(found, reverse=True)[len(self.voters) // 2]


def _decoded(view: View, header: BatchHeader) -> list[CommittedBatch]:
    """What a batch says; nothing where it rotted."""
    try:
        return list(decode_run(view.content(header.base_offset)))
    except CorruptMessage:
        return []


def _directories_of(voters: Iterable[records_pb2.Voter]) -> dict[int, str]:
    return {voter.broker_id: voter.directory_id.hex() for voter in voters}
