"""The first metadata entry: which cluster this is and who votes; and the refusal of a start that says otherwise."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence

from minilog.errors import InconsistentClusterId, InconsistentVoters
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.quorum.records import CommittedBatch


def new_cluster_id(rng: random.Random) -> str:
    return str(uuid.UUID(bytes=rng.randbytes(16), version=4))


def cluster_record(
    cluster_id: str, voters: Sequence[peer_pb2.VoterAddress], directory_ids: dict[int, bytes]
) -> records_pb2.MetadataRecord:
    """The first entry of a new cluster's log."""
    recorded = [
        records_pb2.Voter(
            broker_id=voter.broker_id, directory_id=directory_ids[voter.broker_id], host=voter.host, port=voter.port
        )
        for voter in voters
    ]
    return records_pb2.MetadataRecord(cluster=records_pb2.ClusterRecord(cluster_id=cluster_id, voters=recorded))


def find_cluster_record(decisions: Iterable[CommittedBatch]) -> records_pb2.ClusterRecord | None:
    """It is the first MetadataRecord there is: nothing behind it is read."""
    for decision in decisions:
        for record in decision.records:
            return record.cluster if record.HasField("cluster") else None
    return None


def check_cluster(
    record: records_pb2.ClusterRecord,
    *,
    cluster_id: str | None,
    voters: Sequence[peer_pb2.VoterAddress],
    node_id: int,
    directory_id: bytes,
) -> None:
    """Raises InconsistentClusterId or InconsistentVoters unless this node belongs to the cluster so recorded.

    Voters are known by their ids and directory ids; their addresses may change.
    """
    if cluster_id is not None and cluster_id != record.cluster_id:
        raise InconsistentClusterId(
            f"the data directory of broker {node_id} belongs to cluster {cluster_id}, the metadata log is that of "
            f"cluster {record.cluster_id}: start it with the voters of its own cluster, or with an empty data directory"
        )
    recorded = sorted(voter.broker_id for voter in record.voters)
    given = sorted(voter.broker_id for voter in voters)
    if given != recorded:
        raise InconsistentVoters(
            f"broker {node_id} was started with voters {given}, cluster {record.cluster_id} was made with {recorded}: "
            f"give those"
        )
    for voter in record.voters:
        if voter.broker_id == node_id and voter.directory_id != directory_id:
            raise InconsistentVoters(
                f"broker {node_id} is a voter of cluster {record.cluster_id} with directory id "
                f"{voter.directory_id.hex()}, its data directory has {directory_id.hex()}: give it back the one it had"
            )
