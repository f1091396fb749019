"""What is known of a simulated cluster from outside: by faults, that must leave a good copy, and by its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog_broker.quorum.records import METADATA_KEY

if TYPE_CHECKING:
    from minilog_broker.controller.image import MetadataImage
    from tests.simulation.cluster import Cluster


def unreplaced_voters(cluster: Cluster, image: MetadataImage) -> list[int]:
    """Voters whose disk was emptied and that are not voters again, as far as `image` knows."""
    recorded = {voter.broker_id: voter.directory_id.hex() for voter in image.voters}
    return [
        node_id
        for node_id in cluster.plan.voter_ids
        if METADATA_KEY in (node := cluster.nodes[node_id]).harmed
        and (node.directory_id is None or recorded.get(node_id) != node.directory_id)
    ]


def newest_image(cluster: Cluster) -> MetadataImage | None:
    """The image that has replayed most; None where nobody lives."""
    images = [node.life.image for node in cluster.nodes.values() if node.life is not None]
    return max(images, key=lambda image: image.end_offset, default=None)
