"""The image that a broker acts on is the replay of what is committed. V13.

Each snapshot says what the committed log says below its end: one that comes to lie on a disk, written there or fetched,
and what a core has as its image.

Both are replayed here, not by the product: what stands in one record is put under one name, and what is put under a
name later counts. A snapshot whose end is not known to be committed yet is compared when it is.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from minilog.record_batch.header import iterate_headers
from minilog.v1 import records_pb2
from minilog.versions import range_from_wire
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, CommittedBatch, decode_run
from tests.judges.violation import Violation, hold
from tests.world.disk import MemoryDisk

_PATH = re.compile(rf".*/{CLUSTER_METADATA_TOPIC_NAME}-0/(\d{{20}})-(\d{{10}})\.snapshot")
_Name = tuple[Any, ...]


class Replayed:
    """What a run of records says, by name."""

    def __init__(self) -> None:
        self.said: dict[_Name, Any] = {("level",): 1, ("producer ids",): 0}

    def take(self, batch: CommittedBatch) -> None:
        for index, record in enumerate(batch.records):
            self._take(batch.base_offset + index, record)

    def _take(self, offset: int, record: records_pb2.MetadataRecord) -> None:
        which = record.WhichOneof("record")
        value = getattr(record, str(which))
        if which == "broker_registration":
            self._register(offset, value)
        elif which == "broker_state":
            self._state(value)
        elif which == "topic":
            self.said["topic", value.topic_id] = value
        elif which == "partition":
            self.said["partition", value.topic_id, value.partition] = value
        elif which == "topic_config":
            name = "config", value.topic_id, value.name
            self.said.pop(name, None)
            if value.HasField("value"):
                self.said[name] = value.value
        elif which == "topic_schema":
            self.said["schema", value.topic_id, value.schema.version] = value.schema
        elif which in ("user_scram_credential", "access_rule", "quota", "delegation_token"):
            self._secure(which, value)
        elif which == "broker_setting":
            setting = which, value.broker_id if value.HasField("broker_id") else None, value.name
            self.said.pop(setting, None)
            if value.HasField("value"):
                self.said[setting] = value.value
        elif which == "topic_deletion":
            self.said = {name: each for name, each in self.said.items() if value.topic_id not in name[1:2]}
        elif which == "producer_id_block":
            self.said["producer ids",] = value.next_producer_id
            if value.proof_key:
                self.said["key of proofs",] = value.proof_key, value.first_proven_id
        elif which == "broker_cordon":
            self.said.pop(("cordon", value.broker_id), None)
            if value.cordoned:
                self.said["cordon", value.broker_id] = value
        elif which == "unregister_broker":
            for what in ("broker", "state", "cordon"):
                self.said.pop((what, value.broker_id), None)
        elif which == "cluster_level":
            self.said["level",] = value.level
        elif which == "cluster":
            self.said["cluster",] = value.cluster_id
            self.said |= {("voter", each.broker_id): each for each in value.voters}
        elif which == "voters":
            self.said = {name: held for name, held in self.said.items() if name[0] != "voter"}
            self.said |= {("voter", voter.broker_id): voter for voter in value.voters}
            self.said["voter addresses",] = True
        elif which == "voter_replaced":
            former = self.said["voter", value.broker_id]
            self.said["voter", value.broker_id] = records_pb2.Voter(
                broker_id=former.broker_id, directory_id=value.directory_id, host=former.host, port=former.port
            )

    def _secure(self, which: str, value: Any) -> None:
        """A rule is named by all of it."""
        name: _Name
        said: Any
        if which == "user_scram_credential":
            name, said = (value.user, value.mechanism), value.verifier if value.HasField("verifier") else None
        elif which == "access_rule":
            name, said = (value.rule.SerializeToString(deterministic=True),), None if value.removed else True
        elif which == "delegation_token":
            name, said = (value.token.token_id,), None if value.removed else value
        else:
            name, said = (value.entity, value.key), value.value if value.HasField("value") else None
        self.said.pop((which, *name), None)
        if said is not None:
            self.said[(which, *name)] = said

    def _state(self, value: records_pb2.BrokerStateRecord) -> None:
        self.said["state", value.broker_id] = value.broker_epoch, value.fenced, value.stopping
        life = self.said.get(("broker", value.broker_id))
        if life is not None and life.broker_epoch == value.broker_epoch and not value.fenced:
            self.said["broker", value.broker_id] = let_in = records_pb2.BrokerRegistrationRecord()
            let_in.CopyFrom(life)
            let_in.ClearField("clean_stop_broker_epoch")

    def _register(self, offset: int, value: records_pb2.BrokerRegistrationRecord) -> None:
        """A life begins, fenced."""
        life = records_pb2.BrokerRegistrationRecord()
        life.CopyFrom(value)
        life.broker_epoch = value.broker_epoch if value.HasField("broker_epoch") else offset
        life.levels.CopyFrom(range_from_wire(value.levels).to_wire())
        self.said["broker", value.broker_id] = life
        self.said["state", value.broker_id] = life.broker_epoch, True, False


class _Snapshot(NamedTuple):
    """Of a broker. `epoch`: None where the world does not know it."""

    number: int
    end_offset: int
    epoch: int | None
    content: bytes


class Images:
    """Replays what is committed, and compares each snapshot."""

    def __init__(self) -> None:
        self._log: list[CommittedBatch] = []
        self._replayed, self._taken = Replayed(), 0  # so many batches
        self._waiting: list[_Snapshot] = []

    def committed(self, batch: CommittedBatch) -> None:
        self._log.append(batch)

    @property
    def _end(self) -> int:
        return self._log[-1].end_offset if self._log else 0

    def written(self, number: int, path: str, disk: MemoryDisk) -> None:
        """A file of a broker took this name."""
        named = _PATH.fullmatch(path)
        if named is not None:
            self._waiting.append(_Snapshot(number, int(named[1]), int(named[2]), disk.content(path)))

    def shown(self, number: int, end_offset: int, content: bytes) -> None:
        """A broker acts on this image."""
        hold(end_offset <= self._end, "V13", f"b{number} has replayed {end_offset}, {self._end} is committed")
        if end_offset:
            self._compare(_Snapshot(number, end_offset, None, content))

    def look(self) -> None:
        """At the snapshots whose ends are committed."""
        for each in [snapshot for snapshot in self._waiting if snapshot.end_offset <= self._end]:
            self._waiting.remove(each)
            self._compare(each)

    def _compare(self, snapshot: _Snapshot) -> None:
        last = self._replay_to(snapshot.end_offset)
        where = f"the snapshot of b{snapshot.number} at {snapshot.end_offset}"
        if last is None or last.end_offset != snapshot.end_offset or snapshot.epoch not in (None, last.epoch):
            epoch = None if last is None else last.epoch
            raise Violation("V13", f"{where} is of epoch {snapshot.epoch}; before it {epoch} is committed")
        said = decoded(snapshot.content).said
        for name in [*self._replayed.said, *said]:
            if said.get(name) != self._replayed.said.get(name):
                text = f"{where} says of {name}: {said.get(name)}; committed is {self._replayed.said.get(name)}"
                raise Violation("V13", text.replace("\n", " "))

    def _replay_to(self, end_offset: int) -> CommittedBatch | None:
        """The last committed batch below."""
        if self._taken and self._log[self._taken - 1].end_offset > end_offset:
            self._replayed, self._taken = Replayed(), 0
        while self._taken < len(self._log) and self._log[self._taken].end_offset <= end_offset:
            self._replayed.take(self._log[self._taken])
            self._taken += 1
        return self._log[self._taken - 1] if self._taken else None


def decoded(content: bytes) -> Replayed:
    """What a snapshot says."""
    found = Replayed()
    for position, header in iterate_headers(content):
        if not header.is_control:
            for batch in decode_run(content[position : position + header.length]):
                found.take(batch)
    return found
