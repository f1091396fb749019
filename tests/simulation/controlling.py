"""The shell of the controller in a life: as server/shells/controller_shell.py. Tickets are functions that take the
answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog_broker.controller.controller import Controller, ControllerSettings
from minilog_broker.controller.controller_effects import (
    ControllerAnswer,
    ControllerEffect,
    PartitionWaits,
    ProbeBroker,
    UncleanElection,
)
from minilog_broker.replication.partition_state import TopicConfig
from tests.simulation.clients import node_at
from tests.simulation.network import Failure, Respond
from tests.simulation.process import CoreTimer

if TYPE_CHECKING:
    from tests.simulation.life import Life

PROBES = 10
PROBE_PAUSE_MS = 50.0
PROBE_TIMEOUT_MS = 1_000.0

# Methods of the services that the controller answers, and the method of the core; True: it takes the time.
CALLS: dict[str, tuple[str, bool]] = {
    "Register": ("register", True),
    "ProposeInSyncReplicas": ("propose_isr", False),
    "AllocateProducerIds": ("allocate_producer_ids", False),
    "CreateInternalTopic": ("create_internal_topic", False),
    "CreateTopics": ("create_topics", False),
    "DeleteTopics": ("delete_topics", False),
    "AlterTopics": ("alter_topics", False),
    "ElectLeaders": ("elect_leaders", False),
    "AlterPartitionReassignments": ("alter_reassignments", False),
    "ReplaceVoter": ("replace_voter", False),
}


class Controlling:
    """See the module's text."""

    def __init__(self, life: Life, defaults: TopicConfig, session_timeout_ms: float, rng: random.Random) -> None:
        self._life = life
        settings = ControllerSettings(
            defaults=defaults, broker_session_timeout_ms=session_timeout_ms, broker_id=life.node.node_id
        )
        self.controller = Controller(settings, life.quorum_part.append_records, rng)
        self.timer = CoreTimer(life.process, lambda: self.controller.next_tick_ms, self._tick)
        self.timer.start()

    # -- calls

    def ask(self, method: str, request: Any, respond: Respond) -> None:
        """One call of the services; `respond` is called when what it says is committed."""
        name, timed = CALLS[method]
        ask: Callable[..., None] = getattr(self.controller, name)
        if timed:
            ask(respond, request, self._life.now_ms)
        else:
            ask(respond, request)
        self.run()

    def heartbeat(self, request: Any, respond: Respond) -> None:
        if self.controller.is_active:
            self._life.touched.heartbeats.append((self._life.node.node_id, request.broker_id, request.broker_epoch))
        self.controller.heartbeat(respond, request, self._life.now_ms)
        self.run()

    def heartbeat_stream_broke(self, broker_id: int, broker_epoch: int) -> None:
        self.controller.heartbeat_stream_broken(broker_id, broker_epoch, self._life.now_ms)
        self.run()

    # -- the quorum's word

    def activated(self, epoch: int) -> None:
        life = self._life
        life.note(f"is the active controller of epoch {epoch}")
        self.controller.activate(epoch, life.image, life.image.end_offset, life.now_ms)
        self.run()

    def deposed(self, controller_id: int) -> None:
        self._life.note(f"is the active controller no more, {controller_id} is")
        self.controller.deactivate(controller_id)
        self.run()

    def committed(self, end_offset: int) -> None:
        self.controller.committed(end_offset)
        self.run()

    def _tick(self) -> None:
        self.controller.tick(self._life.now_ms)
        self.run()

    # -- effects

    def run(self) -> None:
        """What was decided goes to the log first."""
        life = self._life
        life.touched.decided[life.node.node_id] = None
        life.quorum_part.run()
        for effect in self.controller.take_effects():
            if life.effects_left is not None:
                life.count_effect()
            self._carry_out(effect)
        self.timer.arm()

    def _carry_out(self, effect: ControllerEffect) -> None:
        match effect:
            case ControllerAnswer(ticket=ticket, message=message):
                error = getattr(message, "error", None)
                if error is None or not error.code:
                    self._life.touched.controlled.append(self._life.node.node_id)
                assert callable(ticket)
                ticket(message)
            case ProbeBroker():
                self._probe((effect, PROBES))
            case UncleanElection(topic_name=topic, key=key, leader_id=leader):
                self._life.cluster.count("unclean election")
                self._life.note(f"unclean election: {topic}-{key.partition} led by {leader}")
            case PartitionWaits(reason=reason):
                self._life.note(reason)

    def _probe(self, argument: tuple[ProbeBroker, int]) -> None:
        effect, tries = argument
        life = self._life

        def result(failure: Failure | None) -> None:
            if failure is Failure.REFUSED:
                self.controller.broker_refused_connection(effect.broker_id, effect.broker_epoch, life.now_ms)
                self.run()
            elif tries > 1:
                life.process.after(PROBE_PAUSE_MS, self._probe, (effect, tries - 1))

        life.network.probe(life.process, node_at(effect.host), result, PROBE_TIMEOUT_MS)
