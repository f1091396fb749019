"""What an operator does in the safety phase: topics `x<n>` come and go, topics grow, leaders go home, replicas move.

Like any client he reaches brokers over the network only, and does not wait for answers: what he asks may be lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.v1 import admin_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from tests.simulation.known import newest_image, unreplaced_voters

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

REPLACE_MS = 700.0
MOST_TOPICS = 4
MOST_PARTITIONS = 5


class Operator:
    """See the module's text."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = random.Random(f"operator {cluster.seed}")
        self._client = cluster.add_client()
        self._created = 0
        for name, rate in cluster.plan.operations.active():
            self._next(name, rate)
        if cluster.plan.faults.wipe:
            cluster.scheduler.after(REPLACE_MS, self._replace_voters)

    def _next(self, name: str, rate: float) -> None:
        delay_ms = self._random.expovariate(rate) * 1_000.0
        self._cluster.scheduler.after(delay_ms, self._act, (name, rate))

    def _act(self, argument: tuple[str, float]) -> None:
        name, rate = argument
        if not self._cluster.is_safety_phase:
            return
        image = newest_image(self._cluster)
        if image is not None and getattr(self, name)(image):
            self._cluster.count(f"operator: {name}")
        self._next(name, rate)

    def _ask(self, method: str, request: Any, on_answer: Callable[[Any], None] | None = None) -> None:
        """Of the controller, mostly; of anybody, sometimes."""
        nodes = self._cluster.nodes
        active = [node_id for node_id, node in nodes.items() if node.life and node.life.controller.is_active]
        target_id = self._random.choice(active if active and self._random.random() < 0.9 else list(nodes))
        self._cluster.note(f"operator asks node {target_id} to {method} {str(request).replace(chr(10), ' ')[:120]}")
        self._client.call(target_id, method, request, on_answer or _unheard)

    def _replace_voters(self, _: object) -> None:
        """A voter that lost its disk is replaced, in both phases: the command is given again until metadata says so."""
        image = newest_image(self._cluster)
        lost = [] if image is None else unreplaced_voters(self._cluster, image)
        for node_id in lost:
            self._cluster.count("operator: replace_voter")
            self._ask("ReplaceVoter", admin_pb2.ReplaceVoterRequest(broker_id=node_id))
        self._cluster.scheduler.after(REPLACE_MS, self._replace_voters)

    def heal(self, _: object = None) -> None:
        """The liveness phase: reassignments that are under way lose their throttles, which may outlast the phase."""
        image = newest_image(self._cluster)
        slow = (
            [] if image is None else [state for state in image.partitions.values() if state.throttle_bytes_per_second]
        )
        for state in sorted(slow, key=lambda state: state.key):
            target = [node_id for node_id in state.replicas if node_id not in state.removing_replicas]
            wanted = admin_pb2.PartitionReassignment(
                name=state.topic_name, partition=state.key.partition, replicas=target
            )
            self._ask(
                "AlterPartitionReassignments", admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[wanted])
            )
        self._cluster.scheduler.after(REPLACE_MS, self.heal)

    def _topic(self, image: MetadataImage) -> TopicImage | None:
        topics = [image.topics[topic_id] for _, topic_id in sorted(image.topic_ids.items())]
        return self._random.choice(topics) if topics else None

    # -- operations, by the names they have in plan.OperationRates

    def create_topic(self, image: MetadataImage) -> bool:
        if len(image.topics) >= MOST_TOPICS:
            return False
        self._created += 1
        name = f"x{self._random.randint(1, 3)}"  # names come again: another topic under a former one's name
        topic = admin_pb2.NewTopic(
            name=name,
            num_partitions=self._random.randint(1, 2),
            replication_factor=self._random.randint(1, min(3, self._cluster.plan.nodes)),
        )
        self._ask("CreateTopics", admin_pb2.CreateTopicsRequest(topics=[topic]))
        return True

    def delete_topic(self, image: MetadataImage) -> bool:
        names = sorted(name for name in image.topic_ids if name.startswith("x"))
        if not names:
            return False
        deletion = admin_pb2.TopicDeletion(name=self._random.choice(names))
        self._ask("DeleteTopics", admin_pb2.DeleteTopicsRequest(topics=[deletion]))
        return True

    def grow_topic(self, image: MetadataImage) -> bool:
        topic = self._topic(image)
        if topic is None or topic.partition_count >= MOST_PARTITIONS:
            return False
        grown = admin_pb2.TopicAlteration(name=topic.name, num_partitions=topic.partition_count + 1)
        self._ask("AlterTopics", admin_pb2.AlterTopicsRequest(topics=[grown]))
        return True

    def alter_min(self, image: MetadataImage) -> bool:
        """Up or down, or back to what the topic was made with."""
        return self._alter(image, "min.insync.replicas", ("1", "2", None))

    def alter_flush(self, image: MetadataImage) -> bool:
        return self._alter(image, "flush.policy", ("os", "fsync", None))

    def _alter(self, image: MetadataImage, name: str, values: tuple[str | None, ...]) -> bool:
        topic, value = self._topic(image), self._random.choice(values)
        if topic is None or topic.internal:
            return False
        altered = admin_pb2.TopicAlteration(name=topic.name)
        if value is None:
            altered.unset_configs.append(name)
        else:
            altered.set_configs[name] = value
        self._ask("AlterTopics", admin_pb2.AlterTopicsRequest(topics=[altered]))
        return True

    def move_leader(self, image: MetadataImage) -> bool:
        """The preferred replica leads again; where it does, the preference is changed by a reassignment."""
        topic = self._topic(image)
        if topic is None:
            return False
        self._ask("ElectLeaders", admin_pb2.ElectLeadersRequest(topics=[admin_pb2.TopicPartitions(name=topic.name)]))
        return True

    def lead_elsewhere(self, image: MetadataImage) -> bool:
        """One of the others in the ISR becomes the preferred replica; when that is answered, it is elected."""
        states = [state for _, state in sorted(image.partitions.items()) if len(state.in_sync_replicas) > 1]
        if not states:
            return False
        state = self._random.choice(states)
        chosen = self._random.choice([member for member in state.in_sync_replicas if member != state.leader_id])
        number, name = state.key.partition, state.topic_name
        wanted = admin_pb2.PartitionReassignment(
            name=name, partition=number, replicas=sorted(state.replicas, key=lambda other: other != chosen)
        )
        elected = admin_pb2.TopicPartitions(name=name, partitions=[number])
        self._ask(
            "AlterPartitionReassignments",
            admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[wanted]),
            lambda _: self._ask("ElectLeaders", admin_pb2.ElectLeadersRequest(topics=[elected])),
        )
        return True

    def reassign(self, image: MetadataImage) -> bool:
        topic = self._topic(image)
        if topic is None or not topic.partition_count:
            return False
        nodes = list(self._cluster.nodes)
        replicas = self._random.sample(nodes, self._random.randint(1, min(3, len(nodes))))
        if self._random.random() < 0.2:
            replicas = []  # cancels
        wanted = admin_pb2.PartitionReassignment(
            name=topic.name,
            partition=self._random.randrange(topic.partition_count),
            replicas=replicas,
            throttle_bytes_per_second=self._random.choice((0, 0, 20_000)),
        )
        self._ask("AlterPartitionReassignments", admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[wanted]))
        return True


def _unheard(_: Any) -> None:
    """Whatever the answer is: metadata tells."""
