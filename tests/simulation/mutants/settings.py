"""Wrong rules of what topics have: whose value counts, from when on, and what unclean election asks of leaders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minilog_broker.controller import election
from minilog_broker.controller.controller import Controller
from minilog_broker.controller.image import ALL_BROKERS, MetadataImage
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.topic_config import effective_topic_config, topic_config_values
from minilog_broker.replication.leader import partition
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from minilog_broker.replication.rules import fencing
from minilog_broker.server.broker import Broker
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.running_config import Kept, RunningConfig
from minilog_broker.server.shells.controller_shell import default_topic_config
from tests.rules import Patches
from tests.world.loop import PROCESS, Process


def own_default_counts() -> Patches:
    """What a topic does not set has each broker from its own configuration."""
    activate = Controller.activate

    def activated(self: Controller, *given: Any, **named: Any) -> None:
        activate(self, *given, **named)
        assert self._term is not None
        self._term.ledger.own = topic_config_values(self._settings.defaults)  # type: ignore[attr-defined]

    def of_ledger(self: Ledger, topic_id: bytes) -> TopicConfig:
        return effective_topic_config({**self.own, **self.image.topic_config(topic_id)})  # type: ignore[attr-defined]

    return [
        (Controller, "activate", activated),
        (Ledger, "config", of_ledger),
        *_own_default_of_a_process(),
    ]


def _own_default_of_a_process() -> Patches:
    """The same of whole brokers: each process has its own."""
    own: dict[Process | None, dict[str, str]] = {}
    made, true = Broker.__init__, MetadataImage.effective_config

    def make(self: Broker, options: BrokerOptions, *given: Any, **named: Any) -> None:
        own[PROCESS.get()] = topic_config_values(default_topic_config(options.config))
        made(self, options, *given, **named)

    def effective_config(self: MetadataImage, topic_id: bytes) -> TopicConfig:
        if (values := own.get(PROCESS.get())) is None:
            return true(self, topic_id)
        return effective_topic_config({**values, **self.topic_config(topic_id)})

    return [(Broker, "__init__", make), (MetadataImage, "effective_config", effective_config)]


def eligible_stay() -> Patches:
    settled = election._settle

    def settle(before: PartitionState, state: PartitionState, *given: Any) -> Any:
        outcome = settled(before, state, *given)
        lost = set(state.eligible_leaders) - set(outcome.state.eligible_leaders) - set(outcome.state.in_sync_replicas)
        if not lost or outcome.state == before:
            return outcome
        kept = tuple(b for b in state.replicas if b in lost or b in outcome.state.eligible_leaders)
        return election.ElectionOutcome(replace(outcome.state, eligible_leaders=kept), outcome.unclean)

    return [(election, "_settle", settle)]


def cut_off_leader_goes_on() -> Patches:
    def never(*given: Any) -> bool:
        return False

    return [(partition, "is_cut_off", never), (fencing, "is_cut_off", never)]


def unsynced_word_is_dropped() -> Patches:
    """What a follower told under flush.policy=os is not counted under fsync, and not kept for when we turn to os."""

    def drop(self: IsrState, log_end: int, now_ms: float) -> None:
        return None

    return [(IsrState, "count_unsynced", drop)]


def that_of_all_counts_first() -> Patches:
    """A setting of all brokers counts before that of one."""

    def taken(self: RunningConfig, kept: Kept) -> Any:
        return true(self, {**kept, self._broker_id: {**kept.get(self._broker_id, {}), **kept.get(ALL_BROKERS, {})}})

    true = RunningConfig._taken
    return [(RunningConfig, "_taken", taken)]


def a_snapshot_tells_nobody() -> Patches:
    """What a snapshot has of brokers' settings is in the image, and no part hears of it."""
    true = MetadataImage.become

    def become(self: MetadataImage, other: MetadataImage) -> None:
        before = self.changes.broker_settings
        true(self, other)
        self.changes.broker_settings = before

    return [(MetadataImage, "become", become)]
