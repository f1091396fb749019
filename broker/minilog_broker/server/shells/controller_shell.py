"""The shell around the controller: calls wait here for their answers, probes go out, the timer ticks.

The controller is active where the quorum node leads and has replayed an entry of its own epoch. Elsewhere the core
answers every call with NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from minilog.v1 import admin_pb2, peer_pb2, security_pb2
from minilog_broker.controller.controller import Controller, ControllerSettings
from minilog_broker.controller.controller_effects import (
    ControllerAnswer,
    ControllerEffect,
    PartitionWaits,
    ProbeBroker,
    UncleanElection,
)
from minilog_broker.controller.delegation_tokens import TokenSettings
from minilog_broker.controller.ledger import Reported
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.running_config import check_dynamic
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.server.runtime.observer import UNOBSERVED, BrokerObserver
from minilog_broker.server.runtime.timer import CoreTimer, now_ms
from minilog_broker.server.runtime.turns import Turns
from minilog_broker.server.shells.quorum_shell import QuorumShell

logger = structlog.get_logger()

PROBES = 10
PROBE_PAUSE_S = 0.05
PROBE_TIMEOUT_S = 1.0
_Response = TypeVar("_Response")
Decision = TypeVar(
    "Decision",
    admin_pb2.ElectLeadersResponse,
    admin_pb2.AlterPartitionReassignmentsResponse,
    admin_pb2.ReplaceVoterResponse,
    admin_pb2.AlterVoterResponse,
    admin_pb2.UpgradeLevelResponse,
    admin_pb2.AlterBrokerSettingsResponse,
    admin_pb2.DescribeBrokerSettingsResponse,
    admin_pb2.AlterBrokerResponse,
    security_pb2.AlterUsersResponse,
    security_pb2.DescribeUsersResponse,
    security_pb2.CreateAccessRulesResponse,
    security_pb2.DeleteAccessRulesResponse,
    security_pb2.DescribeAccessRulesResponse,
    security_pb2.AlterQuotasResponse,
    security_pb2.DescribeQuotasResponse,
    security_pb2.CreateDelegationTokenResponse,
    security_pb2.RenewDelegationTokenResponse,
    security_pb2.ExpireDelegationTokenResponse,
    security_pb2.DescribeDelegationTokensResponse,
)
TopicsRequest = TypeVar(
    "TopicsRequest", admin_pb2.CreateTopicsRequest, admin_pb2.DeleteTopicsRequest, admin_pb2.AlterTopicsRequest
)
OfTopics = TypeVar(
    "OfTopics", admin_pb2.CreateTopicsResponse, admin_pb2.DeleteTopicsResponse, admin_pb2.AlterTopicsResponse
)


def default_topic_config(config: BrokerConfig) -> TopicConfig:
    """The settings of new topics, where this broker's controller makes them."""
    return TopicConfig(
        min_in_sync_replicas=config.min_insync_replicas,
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        flush_on_append=config.flush_on_append,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        unclean_leader_election=config.unclean_leader_election_enable,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
    )


class ControllerShell:
    """The shell of one broker's controller. Each call goes to the controller, and waits for its answer."""

    def __init__(
        self,
        quorum: QuorumShell,
        options: BrokerOptions,
        turns: Turns,
        runtime: BrokerRuntime,
        observer: BrokerObserver = UNOBSERVED,
    ) -> None:
        self._options = options
        self._observer = observer
        self._wall_us = runtime.wall_us
        self._quorum = quorum
        self._turns = turns
        self._controller = Controller(
            self._settings(options.config), quorum.append_records, runtime.chance(), runtime.unique_bytes, quorum
        )
        self._probes: set[asyncio.Task[None]] = set()
        self._timer = CoreTimer(lambda: self._controller.next_tick_ms, self._tick)

    def _settings(self, config: BrokerConfig) -> ControllerSettings:
        return ControllerSettings(
            defaults=default_topic_config(config),
            check_setting=check_dynamic,
            broker_id=self._options.broker_id,
            levels=self._options.levels,
            broker_session_timeout_ms=config.broker_session_timeout_ms,
            num_partitions=config.num_partitions,
            default_replication_factor=config.default_replication_factor,
            leader_imbalance_check_interval_ms=(
                config.leader_imbalance_check_interval_ms if config.auto_leader_rebalance_enable else math.inf
            ),
            tokens=TokenSettings(
                max_lifetime_ms=config.delegation_token_max_lifetime_ms,
                expiry_time_ms=config.delegation_token_expiry_time_ms,
                expiry_check_interval_ms=config.delegation_token_expiry_check_interval_ms,
            ),
        )

    def reconfigured(self, config: BrokerConfig) -> None:
        """Take a new configuration of the running broker."""
        self._controller.reconfigured(self._settings(config), now_ms())
        self._timer.arm()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self._controller.is_active

    def wall_ms(self) -> int:
        """The time since 1970, for the begin and the end of tokens."""
        return self._wall_us() // 1000

    def reported(self) -> Reported:
        """The brokers' reports on themselves; nothing where this is not the active controller."""
        return self._controller.reported(now_ms())

    # -- calls

    async def register(self, request: peer_pb2.RegisterRequest) -> peer_pb2.RegisterResponse:
        return await self.ask(peer_pb2.RegisterResponse, lambda core, ticket: core.register(ticket, request, now_ms()))

    async def heartbeat(self, request: peer_pb2.HeartbeatRequest) -> peer_pb2.HeartbeatResponse:
        return await self.ask(
            peer_pb2.HeartbeatResponse, lambda core, ticket: core.heartbeat(ticket, request, now_ms())
        )

    async def decide_each_topic(
        self, kind: type[OfTopics], request: TopicsRequest, ask: Callable[[Controller, object, TopicsRequest], None]
    ) -> OfTopics:
        """`decide` for many topics. Each is a decision by itself, and other work has the loop after each slice."""
        alone = type(request)()
        alone.CopyFrom(request)
        piece = await self._turns.take()
        tickets: list[asyncio.Future[Any]] = []
        for topic in request.topics:
            del alone.topics[:]
            alone.topics.append(topic)
            piece = await piece.next() if piece.is_over() else piece
            tickets.append(asyncio.get_running_loop().create_future())
            ask(self._controller, tickets[-1], alone)
            self._run()
        results = [result for answer in await asyncio.gather(*tickets) for result in answer.results]
        return kind(results=results, metadata_offset=self._quorum.image.end_offset)

    async def decide(self, kind: type[Decision], ask: Callable[[Controller, object], None]) -> Decision:
        """`ask` for a client, which also gets the end of the committed log behind the decision."""
        answer = await self.ask(kind, ask)
        answer.metadata_offset = self._quorum.image.end_offset
        return answer

    async def ask(self, kind: type[_Response], ask: Callable[[Controller, object], None]) -> _Response:
        """Give a call to the core under a ticket of its own, and wait until the answer is committed."""
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ask(self._controller, ticket)
        self._run()
        answer = await ticket
        assert isinstance(answer, kind)
        return answer

    def heartbeat_stream_broke(self, broker_id: int, broker_epoch: int) -> None:
        self._controller.heartbeat_stream_broken(broker_id, broker_epoch, now_ms())
        self._run()

    # -- events of the quorum

    def activated(self, epoch: int) -> None:
        image = self._quorum.image
        logger.info("this broker is the active controller", epoch=epoch)
        self._controller.activate(epoch, image, image.end_offset, now_ms(), lost_controller=self._quorum.lost_leader())
        self._timer.start()
        self._run()

    def deposed(self, controller_id: int) -> None:
        if self._controller.is_active:
            logger.info("this broker is no longer the active controller", controller=controller_id)
        self._controller.deactivate(controller_id)
        self._run()

    def committed(self, end_offset: int) -> None:
        self._controller.committed(end_offset)
        self._run()

    def _tick(self) -> None:
        self._controller.tick(now_ms(), self.wall_ms())
        self._run()

    # -- effects

    def _run(self) -> None:
        self._quorum.run()  # decisions go to the log first
        for effect in self._controller.take_effects():
            self._carry_out(effect)
        self._timer.arm()

    def _carry_out(self, effect: ControllerEffect) -> None:
        match effect:
            case ControllerAnswer(ticket=asyncio.Future() as ticket, message=message):
                if not ticket.done():
                    ticket.set_result(message)
            case ProbeBroker():
                probe = asyncio.get_running_loop().create_task(self._probe(effect))
                self._probes.add(probe)
                probe.add_done_callback(self._probes.discard)
            case UncleanElection(topic_name=topic, key=key, leader_id=leader):
                self._observer.unclean_election()
                logger.error(
                    "unclean election: acknowledged records may be lost",
                    topic=topic,
                    partition=key.partition,
                    leader=leader,
                )
            case PartitionWaits(reason=reason):
                logger.error(reason)

    async def _probe(self, effect: ProbeBroker) -> None:
        """Probe a broker. A dead process refuses the connection. One that hangs or is cut off is left to its silence.

        The kernel closes a killed process's connections one by one, and the listening one not always first. So the
        probe comes again after a connection that was taken. A live broker is heard meanwhile, which ends the matter.
        """
        for _ in range(PROBES):
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    _, writer = await asyncio.open_connection(effect.host, effect.port)
                writer.close()
            except ConnectionRefusedError:
                if effect.is_stopping:
                    logger.info("a broker has stopped", broker=effect.broker_id)
                else:
                    logger.warning("a broker died", broker=effect.broker_id)
                self._controller.broker_refused_connection(effect.broker_id, effect.broker_epoch, now_ms())
                self._run()
                return
            except (OSError, ValueError, OverflowError) as error:  # also TimeoutError, and an invalid host or port
                logger.debug("a probe had no result", broker=effect.broker_id, error=str(error))
            await asyncio.sleep(PROBE_PAUSE_S)

    def stop(self) -> None:
        self._timer.stop()
        for probe in list(self._probes):
            probe.cancel()
