"""The judge of whole brokers finds a snapshot that is not the replay of what is committed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import rename_column
from minilog.typed.schema.wire import schema_to_wire
from minilog.v1 import common_pb2, records_pb2, security_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision
from minilog_broker.controller.security_records import rule_record, token_record, token_removal
from minilog_broker.controller.snapshot import encode_snapshot
from minilog_broker.quorum.records import CommittedBatch
from minilog_broker.security.delegation_token import IssuedToken
from tests.judges.images import Images
from tests.judges.violation import Violation
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge.metadata import LOG_NAME
from tests.simulation.plan import Plan

DIRECTORY = f"/data/{LOG_NAME}"
TOPIC_ID, OTHER_ID = bytes(16), bytes(15) + b"\x07"
EPOCH = 3
Record = records_pb2.MetadataRecord
FLIGHTS = schema_from_ddl("carrier string, delay int")


def _partition(topic_id: bytes, epoch: int) -> Record:
    members = [1, 2]
    return Record(
        partition=records_pb2.PartitionRecord(
            topic_id=topic_id, replicas=members, in_sync_replicas=members, leader_id=1, partition_epoch=epoch
        )
    )


def _topic(name: str, topic_id: bytes) -> Record:
    return Record(topic=records_pb2.TopicRecord(name=name, topic_id=topic_id))


def _voter(number: int) -> records_pb2.Voter:
    return records_pb2.Voter(broker_id=number, directory_id=bytes([number]) * 16, host=f"b{number}", port=9092)


_VERIFIER = security_pb2.ScramVerifier(salt=bytes(16), iterations=4_096, stored_key=bytes(32), server_key=bytes(32))
_CREDENTIAL = records_pb2.UserScramCredentialRecord(
    user="alice", mechanism=security_pb2.SCRAM_MECHANISM_SCRAM_SHA_256, verifier=_VERIFIER
)
_OTHER_CREDENTIAL, _REMOVED_CREDENTIAL = (
    records_pb2.UserScramCredentialRecord(
        user="bob", mechanism=security_pb2.SCRAM_MECHANISM_SCRAM_SHA_256, verifier=verifier
    )
    for verifier in (_VERIFIER, None)
)
_READ, _ALTER = (
    AccessRule("User:alice", "*", operation, ResourceKind.TOPIC, "t", Pattern.LITERAL, Permission.ALLOW)
    for operation in (Operation.READ, Operation.ALTER)
)

_TOKEN, _OTHER_TOKEN = (IssuedToken(name, "User:alice", ("User:bob",), 1, 2, 3, {}) for name in ("0f", "1e"))

COMMITTED = [
    Record(cluster=records_pb2.ClusterRecord(cluster_id="c", voters=[_voter(1), _voter(2)])),
    Record(cluster_level=records_pb2.ClusterLevelRecord(level=2)),
    Record(
        broker_registration=records_pb2.BrokerRegistrationRecord(
            broker_id=1, directory_id=bytes(16), rack="r", levels=common_pb2.VersionRange(lowest=1, highest=2)
        )
    ),
    Record(
        broker_registration=records_pb2.BrokerRegistrationRecord(
            broker_id=2,
            directory_id=bytes(16),
            failure_domain="m",
            host_label="m",
            listeners=[common_pb2.ListenerAddress(name="inside", host="b2", port=1)],
        )
    ),
    Record(broker_state=records_pb2.BrokerStateRecord(broker_id=1, broker_epoch=2)),
    _topic("t", TOPIC_ID),
    _partition(TOPIC_ID, 0),
    _partition(TOPIC_ID, 1),
    Record(topic_config=records_pb2.TopicConfigRecord(topic_id=TOPIC_ID, name="retention.ms", value="7")),
    Record(topic_config=records_pb2.TopicConfigRecord(topic_id=TOPIC_ID, name="retention.bytes", value="7")),
    Record(topic_config=records_pb2.TopicConfigRecord(topic_id=TOPIC_ID, name="retention.bytes")),
    Record(topic_schema=records_pb2.TopicSchemaRecord(topic_id=TOPIC_ID, schema=schema_to_wire(FLIGHTS))),
    Record(
        topic_schema=records_pb2.TopicSchemaRecord(
            topic_id=TOPIC_ID, schema=schema_to_wire(rename_column(FLIGHTS, "delay", "late"))
        )
    ),
    _topic("u", OTHER_ID),
    _partition(OTHER_ID, 0),
    Record(topic_deletion=records_pb2.TopicDeletionRecord(topic_id=OTHER_ID)),
    Record(producer_id_block=records_pb2.ProducerIdBlockRecord(broker_id=1, next_producer_id=1_000)),
    Record(
        producer_id_block=records_pb2.ProducerIdBlockRecord(
            broker_id=1, next_producer_id=2_000, proof_key=b"k" * 32, first_proven_id=1_000
        )
    ),
    Record(user_scram_credential=_CREDENTIAL),
    Record(user_scram_credential=_OTHER_CREDENTIAL),
    Record(user_scram_credential=_REMOVED_CREDENTIAL),
    rule_record(_READ),
    rule_record(_ALTER),
    rule_record(_ALTER, removed=True),
    Record(quota=records_pb2.QuotaRecord(entity="default", key="connections", value=0)),
    Record(quota=records_pb2.QuotaRecord(entity="User:bob", key="connections", value=7)),
    Record(quota=records_pb2.QuotaRecord(entity="User:bob", key="connections")),
    token_record(_TOKEN),
    token_record(_OTHER_TOKEN),
    token_removal(_OTHER_TOKEN.token_id),
    Record(
        voter_replaced=records_pb2.VoterReplacedRecord(
            broker_id=2, lost_directory_id=bytes([2]) * 16, directory_id=bytes([9]) * 16
        )
    ),
]
END = len(COMMITTED)


class TestImages:
    @pytest.fixture(autouse=True)
    def world(self) -> None:
        cluster = SimulatedCluster(1, Plan())
        cluster.loop.close()
        self.images, self.disk = Images(), cluster.hosts[1].disk
        for name in ("/data", DIRECTORY):
            self.disk.make_dir(name)
        self.disk.replaced = lambda path: self.images.written(1, path, self.disk)

    def _commit(self, records: Sequence[Record]) -> None:
        for offset, record in enumerate(records):
            self.images.committed(CommittedBatch(offset, offset + 1, EPOCH, (record,)))

    def _snapshot(self, left_out: int | None = None, *, end: int = END, epoch: int = EPOCH) -> None:
        """A broker writes its image; `left_out`: the record that it did not replay."""
        image = MetadataImage()
        for offset, record in enumerate(COMMITTED[:end]):
            apply_decision(image, offset, offset + 1, () if offset == left_out else (record,))
        path = f"{DIRECTORY}/{end:020d}-{epoch:010d}.snapshot"
        file = self.disk.open(path + ".tmp", create=True)
        file.write([encode_snapshot(image, epoch)], 0)
        file.close()
        self.disk.rename(path + ".tmp", path)

    def test_the_replay_of_what_is_committed_is_found_right_at_any_end_in_any_order(self) -> None:
        for end in (END, 5, END, 8):
            self._snapshot(end=end)
        self.images.look()
        self._commit(COMMITTED)
        self.images.look()

    @pytest.mark.parametrize("left_out", [0, 1, 3, 4, 7, 8, 10, 12, 15, 17, 18, 20, 21, 23, 24, 26, 27])
    def test_a_record_that_was_not_replayed_is_missed(self, left_out: int) -> None:
        self._commit(COMMITTED)
        self._snapshot(left_out)
        with pytest.raises(Violation, match=f"V13: the snapshot of b1 at {END} says of"):
            self.images.look()

    def test_uncommitted_images_are_judged_at_the_next_commit(self) -> None:
        self._snapshot()
        other = [*COMMITTED[:-2], _partition(TOPIC_ID, 2), COMMITTED[-1]]
        self._commit(other[:-1])
        self.images.look()
        self.images.committed(CommittedBatch(END - 1, END, EPOCH, (other[-1],)))
        with pytest.raises(Violation, match="V13"):
            self.images.look()

    def test_a_snapshot_of_another_epoch_is_wrong(self) -> None:
        self._commit(COMMITTED)
        self._snapshot(epoch=EPOCH - 1)
        with pytest.raises(Violation, match="is of epoch 2; before it 3 is committed"):
            self.images.look()
