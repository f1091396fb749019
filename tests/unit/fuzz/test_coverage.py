"""Every request of every service of the proto files is fuzzed here, or is named with why not."""

from __future__ import annotations

import pathlib
import re

from google.protobuf.message import Message

import tests.unit.fuzz
from minilog.v1 import authentication_pb2, data_pb2, metadata_pb2, peer_pb2
from minilog_broker.server.ingress.rules.admission import methods
from tests.unit.fuzz import test_controller_core, test_coordinator_cores

PROTO = pathlib.Path(__file__).parents[3] / "proto"

BY_HAND: dict[type[Message], str] = {
    data_pb2.FetchRequest: "test_replication_core",
    data_pb2.ProduceRequest: "test_replication_core",
    data_pb2.DeleteRecordsRequest: "test_replication_core",
    metadata_pb2.ListOffsetsRequest: "test_replication_core",
    peer_pb2.ReplicateRequest: "test_replication_core",
    peer_pb2.VoteRequest: "test_quorum_core",
    peer_pb2.BeginQuorumEpochRequest: "test_quorum_core",
    peer_pb2.FetchSnapshotRequest: "test_quorum_core",
}
"""Fuzzed by tests that are not a table."""

NO_CORE: dict[type[Message], str] = {
    authentication_pb2.AuthenticateRequest: "its content is: unit/security/test_scram, test_bearer",
    metadata_pb2.GetMetadataRequest: "names and ids are looked up in the image; integration: test_bad_peers",
    metadata_pb2.InitProducerIdRequest: "nothing is read from it",
    peer_pb2.DigestRecordsRequest: "a range of offsets is looked up in a log: unit/storage/test_range_digest",
    peer_pb2.SetCopyAsideRequest: "the same range, and a digest that is compared",
    peer_pb2.AwaitStableOffsetsRequest: "numbers that are compared: unit/replication/test_stable_offsets",
    metadata_pb2.GetBrokerConfigRequest: "its number is compared with the broker's own",
}


def test_every_request_of_every_service_is_fuzzed() -> None:
    cores = [*test_controller_core.ASK, *test_coordinator_cores.TRANSACTIONS, *test_coordinator_cores.GROUPS]
    cores += test_coordinator_cores.QUEUES
    covered = {kind.DESCRIPTOR.full_name for kind in [*cores, *BY_HAND, *NO_CORE]}
    asked = {method.input_type.full_name for method in methods()}
    assert covered == asked


def test_every_service_of_the_proto_files_is_one_that_brokers_bound_and_tests_fuzz() -> None:
    written = {
        name
        for path in PROTO.rglob("*.proto")
        for name in re.findall(r"^service (\w+)", path.read_text(), flags=re.MULTILINE)
    }
    assert written == {method.containing_service.name for method in methods()}
    assert len(written) >= 7


def test_messages_fuzzed_by_hand_are_named_there() -> None:
    folder = pathlib.Path(tests.unit.fuzz.__path__[0])
    for kind, module in BY_HAND.items():
        text = (folder / f"{module}.py").read_text()
        entry = kind.DESCRIPTOR.name.removesuffix("Request")
        assert re.search(rf"{kind.DESCRIPTOR.name}|{entry}Entry|\btest_{_snake(entry)}\b", text), kind.DESCRIPTOR.name


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
