"""The first metadata entry: the id of the cluster and its voters. A broker whose directory does not fit it refuses to
start."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minilog.errors import InconsistentClusterId, InconsistentVoters, UnsupportedVersion
from minilog.v1 import peer_pb2, records_pb2
from minilog.versions import VersionRange
from minilog_broker.quorum.member import QuorumMember
from minilog_broker.quorum.voters import Voter


class NewVoter(NamedTuple):
    """What a voter says about itself while no cluster is recorded."""

    directory_id: bytes
    levels: VersionRange


def new_cluster_id(rng: random.Random) -> str:
    return str(uuid.UUID(bytes=rng.randbytes(16), version=4))


def cluster_record(
    cluster_id: str, voters: Sequence[peer_pb2.VoterAddress], new_voters: Mapping[int, NewVoter]
) -> records_pb2.MetadataRecord:
    """The first entry of a new cluster's log."""
    recorded = [
        records_pb2.Voter(
            broker_id=voter.broker_id,
            directory_id=new_voters[voter.broker_id].directory_id,
            host=voter.host,
            port=voter.port,
        )
        for voter in voters
    ]
    return records_pb2.MetadataRecord(cluster=records_pb2.ClusterRecord(cluster_id=cluster_id, voters=recorded))


def level_record(level: int) -> records_pb2.MetadataRecord:
    """From this record on the cluster is at `level`."""
    return records_pb2.MetadataRecord(cluster_level=records_pb2.ClusterLevelRecord(level=level))


def founding_level(voters: Mapping[int, NewVoter]) -> int:
    """The highest level that all voters of a new cluster support. Raises UnsupportedVersion if there is none."""
    level = min(voter.levels.highest for voter in voters.values())
    if all(level in voter.levels for voter in voters.values()):
        return level
    ranges = ", ".join(f"broker {voter_id} supports {voter.levels}" for voter_id, voter in sorted(voters.items()))
    raise UnsupportedVersion(f"the cluster cannot be founded, because its voters have no level in common: {ranges}")


def check_cluster(member: QuorumMember, cluster_id: str, voters: Iterable[Voter]) -> None:
    """Raises InconsistentClusterId or InconsistentVoters if this node does not belong to the recorded cluster.

    The recorded voters count, and not the voters that the broker was started with. A recorded voter whose broker has
    another directory is an observer until an operator replaces it. If it is the only voter, nobody is left to take that
    command.
    """
    own_cluster_id, node_id = member.known_cluster_id, member.node_id
    if own_cluster_id and own_cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"the data directory of broker {node_id} belongs to cluster {own_cluster_id}, the metadata log is that of "
            f"cluster {cluster_id}: start it with the voters of its own cluster, or with an empty data directory"
        )
    recorded = {voter.broker_id: voter for voter in voters}
    own = recorded.get(node_id)
    if own is not None and len(recorded) == 1 and own.directory_id != member.directory_id:
        raise InconsistentVoters(
            f"broker {node_id} is the voter of cluster {cluster_id} with directory id {own.directory_id.hex()}, its "
            f"data directory has {member.directory_id.hex()}: give the broker its former data directory back"
        )


def check_new(member: QuorumMember) -> None:
    """A voter without metadata must be new. Raises InconsistentClusterId if its directory names a cluster."""
    if member.is_voter and member.known_cluster_id:
        raise InconsistentClusterId(
            f"the data directory of broker {member.node_id} belongs to cluster {member.known_cluster_id}, but its "
            f"metadata log is empty: restore __cluster_metadata-0, or start a new cluster in an empty directory; where "
            f"other voters have the log, empty the whole directory and replace the voter by command"
        )
