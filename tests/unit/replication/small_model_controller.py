"""The small model's controller: the production's elections and its judgement of ISR proposals on a committed state."""

from __future__ import annotations

from collections.abc import Callable

from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.controller import election, in_sync
from minilog_broker.controller.election import Departure, ElectionRules
from minilog_broker.controller.image import BrokerRegistration, MetadataImage, TopicImage
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.topic_config import topic_config_values
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from tests.unit.replication.small_model_state import KEY, AskedProposal, Life, Partitions

_Decided = dict[tuple[int, tuple[Life, ...], int, int, AskedProposal], int]


class SmallController:
    """Decides at once: what it answers is committed. Equal cases are decided once."""

    def __init__(self, partitions: Partitions, min_in_sync: int) -> None:
        self._partitions = partitions
        self._config = TopicConfig(
            min_in_sync_replicas=min_in_sync,
            max_message_bytes=1 << 20,
            segment_bytes=1 << 30,
            segment_ms=1 << 30,
            flush_on_append=True,
            retention_ms=-1,
            retention_bytes=-1,
            unclean_leader_election=False,
        )
        self._made_with = tuple(topic_config_values(self._config).items())
        self._decided: _Decided = {}
        self._elected: dict[tuple[int, tuple[Life, ...], int | None, Departure | None], int] = {}

    def _rules(self, lives: tuple[Life, ...]) -> ElectionRules:
        return ElectionRules(
            min_in_sync_replicas=self._config.min_in_sync_replicas,
            unclean_election=False,
            electable=lambda broker_id: not lives[broker_id][1],
            is_current_incarnation=lambda broker_id, epoch: lives[broker_id] == (epoch, False),
            broker_epoch=lambda broker_id: lives[broker_id][0],
        )

    def depart(self, partition: int, lives: tuple[Life, ...], broker_id: int, departure: Departure) -> int:
        """The state after `departure` befell a broker, whose life is `lives`' already."""
        case = (partition, lives, broker_id, departure)
        if case not in self._elected:
            state, rules = self._partitions[partition], self._rules(lives)
            outcome = election.depart(state, broker_id, departure, rules)
            self._elected[case] = self._partitions.number(outcome.state)
        return self._elected[case]

    def reconsider(self, partition: int, lives: tuple[Life, ...]) -> int:
        """The state after a broker came back."""
        case = (partition, lives, None, None)
        if case not in self._elected:
            outcome = election.reconsider(self._partitions[partition], self._rules(lives))
            self._elected[case] = self._partitions.number(outcome.state)
        return self._elected[case]

    def judge(
        self, partition: int, lives: tuple[Life, ...], leader_id: int, leader_life: int, asked: AskedProposal
    ) -> int:
        """The state after a proposal was judged: the same where it was refused for what may pass."""
        if lives[leader_id][0] != leader_life:
            return partition
        case = (partition, lives, leader_id, leader_life, asked)
        if case not in self._decided:
            self._decided[case] = self._partitions.number(self._judge(self._partitions[partition], *case[1:]))
        return self._decided[case]

    def _judge(
        self, state: PartitionState, lives: tuple[Life, ...], leader_id: int, leader_life: int, asked: AskedProposal
    ) -> PartitionState:
        image = MetadataImage()
        for broker_id, (epoch, fenced) in enumerate(lives):
            image.brokers[broker_id] = BrokerRegistration(broker_id, epoch, b"", "", 0, None, "", "", fenced=fenced)
        image.topics[KEY.topic_id] = TopicImage(
            state.topic_name, KEY.topic_id, internal=False, partition_count=1, defaults=self._made_with
        )
        image.partitions[KEY] = state
        append: Callable[[object], int] = lambda records: 0  # noqa: E731
        ledger = Ledger(image, 0, append, [], has_spoken=lambda _: True)
        in_sync.propose_in_sync_replicas(
            ledger,
            peer_pb2.ProposeInSyncReplicasRequest(
                broker_id=leader_id,
                broker_epoch=leader_life,
                proposals=[
                    peer_pb2.InSyncReplicasProposal(
                        partition_id=common_pb2.PartitionId(topic_id=KEY.topic_id, partition=KEY.partition),
                        leader_epoch=asked.leader_epoch,
                        partition_epoch=asked.partition_epoch,
                        in_sync_replicas=[
                            peer_pb2.InSyncReplica(broker_id=member, broker_epoch=epoch)
                            for member, epoch in asked.members
                        ],
                    )
                ],
            ),
        )
        return image.partitions[KEY]
