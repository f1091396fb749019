"""What a refusal teaches of the cluster: that our picture of it is old, and perhaps who leads."""

from __future__ import annotations

from minilog.errors import (
    FencedLeaderEpoch,
    MinilogError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.net.metadata_cache import LeaderAndEpoch, MetadataCache, TopicIdPartition
from minilog.v1 import data_pb2

_OLD_PICTURE = (NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicId, UnknownTopicOrPartition)


def learn(cache: MetadataCache, result: data_pb2.ProduceResult, error: MinilogError) -> bool:
    """Take in the leader that `result` names; True if metadata should be asked for at once."""
    if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch) and result.leader_id >= 0:
        key = TopicIdPartition(result.partition_id.topic_id, result.partition_id.partition)
        cache.learn_leader(key, LeaderAndEpoch(result.leader_id, result.leader_epoch))
    return isinstance(error, _OLD_PICTURE)
