"""The active controller. It decides on an image ahead of the committed end, and answers after the commit.

    method                                             answer (ControllerAnswer) or effect
    activate(epoch, image, end_offset, now_ms)         decides from now on; each broker has a full session time-out, but
                                                       ProbeBroker finds those that died with the former controller
    deactivate(controller_id)                          NOT_CONTROLLER to all waiting calls; the image is dropped
    register(ticket, RegisterRequest, now_ms)          RegisterResponse; the broker epoch is the record's offset
    heartbeat(ticket, HeartbeatRequest, now_ms)        HeartbeatResponse
    heartbeat_stream_broken(id, epoch, now_ms)         ProbeBroker, where that life is current and unfenced
    broker_refused_connection(id, epoch, now_ms)       fenced at once, unless it was heard since the probe
    propose_isr(ticket, ProposeInSyncReplicasRequest)  ProposeInSyncReplicasResponse
    create_topics, delete_topics, alter_topics         their responses
    create_internal_topic(ticket, request)             CreateInternalTopicResponse
    elect_leaders, alter_reassignments, replace_voter, alter_voter, upgrade_level
                                                       their responses
    alter_broker(ticket, AlterBrokerRequest, now_ms)   AlterBrokerResponse
    alter_broker_settings, describe_broker_settings    their responses
    reconfigured(ControllerSettings, now_ms)           decides by these from now on, in this term and later ones
    alter_users, describe_users, and the same of access rules and quotas
                                                       their responses
    create_token, renew_token, expire_token, describe_tokens
                                                       their responses; wall_ms comes in
    allocate_producer_ids(ticket, request)             AllocateProducerIdsResponse
    tick(now_ms, wall_ms), next_tick_ms                silence fences; preferred leaders lead again; brokers and
                                                       expired tokens go
    committed(offset)                                  the answers that waited for this committed end

Each decision is one batch, appended by `append(records) -> end offset`, which the constructor takes. An answer waits
until its basis is committed: the log's end at the time of the answer. `take_effects` gives the outputs. `append` raises
NotController where the quorum has deposed this broker without notice: the term ends there.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from minilog.errors import MinilogError, NotController, wire_error
from minilog.v1 import admin_pb2, peer_pb2, records_pb2, security_pb2
from minilog.versions import VersionRange
from minilog_broker.controller.broker_settings import BrokerSettings, CheckSetting
from minilog_broker.controller.brokers import BrokerRegistrations, require_incarnation
from minilog_broker.controller.controller_effects import ControllerAnswer, ControllerEffect, ProbeBroker, Response
from minilog_broker.controller.delegation_tokens import DelegationTokens, NewToken, Requester, TokenSettings
from minilog_broker.controller.image import BrokerRegistration, MetadataImage
from minilog_broker.controller.in_sync import propose_in_sync_replicas
from minilog_broker.controller.ledger import NOTHING_REPORTED, AppendRecords, Ledger, Reported
from minilog_broker.controller.levels import Levels
from minilog_broker.controller.liveness import Liveness
from minilog_broker.controller.preferred import PreferredLeaders
from minilog_broker.controller.reassignment import alter_reassignments
from minilog_broker.controller.retirement import Retirement
from minilog_broker.controller.security import Security
from minilog_broker.controller.topic_config import topic_config_values
from minilog_broker.controller.topics import NewTopics, Topics
from minilog_broker.controller.voters import QuorumView, VoterChanges
from minilog_broker.levels import PROVEN_PRODUCERS_LEVEL, SUPPORTED_LEVELS
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.security.producer_proof import KEY_BYTES

_TOKENS = TokenSettings()
PRODUCER_ID_BLOCK = 1000  # as in Kafka: a broker asks again after so many producers
NO_CONTROLLER = -1

_TOPIC_RESPONSES = (admin_pb2.CreateTopicsResponse, admin_pb2.DeleteTopicsResponse, admin_pb2.AlterTopicsResponse)
_Entry = TypeVar("_Entry", admin_pb2.NewTopic, admin_pb2.TopicDeletion, admin_pb2.TopicAlteration)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The part of the broker's configuration for the controller. `defaults`: the settings of new topics.

    `broker_id`: the broker of this controller, which needs no probe; -1 without one. `check_setting`: the check of
    settings of running brokers.
    """

    defaults: TopicConfig
    check_setting: CheckSetting
    broker_id: int = -1
    levels: VersionRange = SUPPORTED_LEVELS
    broker_session_timeout_ms: float = 3_000
    num_partitions: int = 1
    default_replication_factor: int | None = None
    leader_imbalance_check_interval_ms: float = 300_000  # infinity: leaders move back by command only
    tokens: TokenSettings = _TOKENS


@dataclass(frozen=True, slots=True)
class _Term:
    """The time of being active. All of it is dropped at its end."""

    epoch: int
    ledger: Ledger
    liveness: Liveness
    incarnations: BrokerRegistrations
    topics: Topics
    preferred: PreferredLeaders
    voters: VoterChanges
    levels: Levels
    retirement: Retirement
    security: Security
    tokens: DelegationTokens
    broker_settings: BrokerSettings


class Controller:
    """Answers each call once, by its ticket: after its decision is committed, or with the reason for none. One per
    broker."""

    def __init__(
        self,
        settings: ControllerSettings,
        append: AppendRecords,
        rng: random.Random,
        random_bytes: Callable[[int], bytes],
        quorum: QuorumView,
    ) -> None:
        """`random_bytes`: a source of bytes that cannot be guessed. `quorum`: asked while the controller is active."""
        self._quorum = quorum
        self._random_bytes = random_bytes
        self._settings = settings
        self._append = append
        self._random = rng
        self._term: _Term | None = None
        self._effects: list[ControllerEffect] = []
        self._waiting: deque[tuple[int, object, Response]] = deque()
        self._committed = 0
        self._controller_id = NO_CONTROLLER

    def take_effects(self) -> list[ControllerEffect]:
        taken = list(self._effects)
        self._effects.clear()
        return taken

    # -- the term

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def image(self) -> MetadataImage | None:
        """The image of all decisions while active, committed or not. Callers do not change it."""
        return self._term.ledger.image if self._term else None

    def reported(self, now_ms: float) -> Reported:
        """The brokers' reports on themselves; nothing where this is not the active controller."""
        late_ms = self._settings.broker_session_timeout_ms
        return self._term.ledger.reported(late_ms, now_ms) if self._term else NOTHING_REPORTED

    @property
    def unclean_elections(self) -> int:
        """The number of unclean elections in this term."""
        return self._term.ledger.unclean_elections if self._term else 0

    def activate(
        self,
        epoch: int,
        image: MetadataImage,
        end_offset: int,
        now_ms: float,
        *,
        lost_controller: tuple[int, float] | None = None,
    ) -> None:
        """Begin a term, once an entry of its epoch is committed, and replayed into `image` up to `end_offset`. `image`
        is copied.

        `lost_controller`: the former one, and the milliseconds in which no majority heard it. Its session time-out
        began then, by a third of it at most. The time-out of each other broker begins now.
        """
        self.deactivate(NO_CONTROLLER)
        own = image.copy()
        settings = self._settings
        unfenced = [broker for broker in own.brokers.values() if not broker.fenced]
        liveness = Liveness(settings.broker_session_timeout_ms, now_ms, [broker.broker_id for broker in unfenced])
        ledger = Ledger(own, end_offset, self._append, self._effects, liveness.has_spoken)
        if lost_controller is not None:
            liveness.silent_before(*lost_controller, now_ms)
        topics = Topics(ledger, self._random, _new_topics(settings))
        self._committed = end_offset
        preferred = PreferredLeaders(ledger, settings.leader_imbalance_check_interval_ms, now_ms)
        incarnations, voters = BrokerRegistrations(ledger, liveness), VoterChanges(ledger, self._quorum)
        levels, security = Levels(ledger, settings.levels), Security(ledger)
        retirement = Retirement(ledger, liveness, now_ms)
        tokens = DelegationTokens(ledger, settings.tokens, now_ms)
        kept = BrokerSettings(ledger, settings.check_setting)
        parts = incarnations, topics, preferred, voters, levels, retirement, security, tokens, kept
        self._term = _Term(epoch, ledger, liveness, *parts)
        for broker in unfenced:
            if broker.broker_id != settings.broker_id:
                self._probe(broker, now_ms)

    def reconfigured(self, settings: ControllerSettings, now_ms: float) -> None:
        """Decide by these settings from now on, after a change to the running broker."""
        self._settings = settings
        if self._term is not None:
            self._term.topics.new_topics = _new_topics(settings)
            self._term.preferred.reconfigured(settings.leader_imbalance_check_interval_ms, now_ms)
            self._term.tokens.reconfigured(settings.tokens, now_ms)

    def deactivate(self, controller_id: int = NO_CONTROLLER) -> None:
        """End the term. Decisions that were not committed are not answered. `controller_id`: the new controller, -1
        unknown."""
        self._term = None
        self._controller_id = controller_id
        waiting, self._waiting = self._waiting, deque()
        for _, ticket, response in waiting:
            self._effects.append(ControllerAnswer(ticket, self._refused(response, self._not_controller())))

    def committed(self, offset: int) -> None:
        """Note that the metadata log is committed and replayed up to `offset` (exclusive)."""
        self._committed = max(self._committed, offset)
        if self._term is not None:
            self._term.ledger.committed(self._committed)
        while self._waiting and self._waiting[0][0] <= self._committed:
            _, ticket, response = self._waiting.popleft()
            self._effects.append(ControllerAnswer(ticket, response))

    def tick(self, now_ms: float, wall_ms: int) -> None:
        """Let time pass. `wall_ms`: since 1970, for the expiry of tokens."""
        if self._term is None:
            return
        term = self._term
        unfenced = [broker.broker_id for broker in term.ledger.image.brokers.values() if not broker.fenced]
        silent = [term.ledger.image.brokers[broker_id] for broker_id in term.liveness.tick(unfenced, now_ms)]
        term.incarnations.fence(*silent)
        term.incarnations.trust_torn_tails(now_ms)
        if not self._seal():
            return
        term.preferred.tick(now_ms)
        if not self._seal():
            return
        term.retirement.tick(now_ms)
        if self._seal():
            term.tokens.tick(now_ms, wall_ms)
            self._seal()
        self._effects.extend(term.ledger.leaderless.tick(now_ms))

    @property
    def next_tick_ms(self) -> float:
        if (term := self._term) is None:
            return float("inf")
        parts = (term.liveness, term.preferred, term.retirement, term.tokens)
        return min(part.next_tick_ms for part in parts)

    # -- lives of brokers

    def register(self, ticket: object, request: peer_pb2.RegisterRequest, now_ms: float) -> None:
        def decide(term: _Term) -> peer_pb2.RegisterResponse:
            broker_epoch = term.incarnations.register(request, now_ms)
            return peer_pb2.RegisterResponse(
                cluster_id=term.ledger.image.cluster_id or "",
                broker_epoch=broker_epoch,
                committed_end_offset=term.ledger.next_offset,  # committed by the time of the answer
            )

        self._decide(ticket, decide, peer_pb2.RegisterResponse(broker_epoch=-1))

    def heartbeat(self, ticket: object, request: peer_pb2.HeartbeatRequest, now_ms: float) -> None:
        def decide(term: _Term) -> peer_pb2.HeartbeatResponse:
            response = term.incarnations.heartbeat(request, now_ms)
            response.controller_epoch = term.epoch
            response.session_timeout_ms = self._session_ms(request.broker_id)
            response.committed_end_offset = term.ledger.next_offset  # committed by the time of the answer
            return response

        self._decide(ticket, decide, peer_pb2.HeartbeatResponse(fenced=True))

    def _session_ms(self, broker_id: int) -> int:
        """The time after a heartbeat in which the life is not fenced for silence, by this controller and by the next
        one. For the next one a third of the time-out of this broker may be over at its begin
        (liveness.silent_before)."""
        timeout_ms = self._settings.broker_session_timeout_ms
        return int(timeout_ms * 2 / 3 if broker_id == self._settings.broker_id else timeout_ms)

    def heartbeat_stream_broken(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        broker = self._unfenced_incarnation(broker_id, broker_epoch)
        if broker is not None:
            self._probe(broker, now_ms)

    def _probe(self, broker: BrokerRegistration, now_ms: float) -> None:
        assert self._term is not None
        self._term.liveness.probed(broker.broker_id, now_ms)
        address = broker.peer_address
        self._effects.append(ProbeBroker(broker.broker_id, broker.broker_epoch, *address, is_stopping=broker.stopping))

    def broker_refused_connection(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """Nothing listens at the address of this life: its process is dead."""
        broker = self._unfenced_incarnation(broker_id, broker_epoch)
        if self._term is not None and broker is not None and self._term.liveness.take_probe(broker_id, now_ms):
            self._term.liveness.died(broker_id)
            self._fence(broker)

    def _unfenced_incarnation(self, broker_id: int, broker_epoch: int) -> BrokerRegistration | None:
        broker = self._term.ledger.image.brokers.get(broker_id) if self._term else None
        return broker if broker and broker.broker_epoch == broker_epoch and not broker.fenced else None

    def _fence(self, broker: BrokerRegistration) -> bool:
        """Fence a broker. False where this controller was deposed."""
        assert self._term is not None
        self._term.incarnations.fence(broker)
        return self._seal()

    def _seal(self) -> bool:
        """Append the decision. False: the quorum has deposed this controller, the term is over, and the decision is
        void."""
        if self._term is None:
            return False
        try:
            self._term.ledger.seal()
        except NotController:
            self.deactivate()
            return False
        return True

    # -- proposals and producer ids

    def propose_isr(self, ticket: object, request: peer_pb2.ProposeInSyncReplicasRequest) -> None:
        self._decide(
            ticket,
            lambda term: propose_in_sync_replicas(term.ledger, request),
            peer_pb2.ProposeInSyncReplicasResponse(),
        )

    def allocate_producer_ids(self, ticket: object, request: peer_pb2.AllocateProducerIdsRequest) -> None:
        def decide(term: _Term) -> peer_pb2.AllocateProducerIdsResponse:
            require_incarnation(term.ledger, request.broker_id, request.broker_epoch)
            image = term.ledger.image
            first = image.next_producer_id
            block = records_pb2.ProducerIdBlockRecord(
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                next_producer_id=first + PRODUCER_ID_BLOCK,
            )
            if image.level >= PROVEN_PRODUCERS_LEVEL and image.producer_key is None:
                block.proof_key, block.first_proven_id = self._random_bytes(KEY_BYTES), first
            term.ledger.write(records_pb2.MetadataRecord(producer_id_block=block))
            return peer_pb2.AllocateProducerIdsResponse(
                first_producer_id=first,
                count=PRODUCER_ID_BLOCK,
                committed_end_offset=term.ledger.next_offset,  # committed by the time of the answer
            )

        self._decide(ticket, decide, peer_pb2.AllocateProducerIdsResponse())

    # -- leaders

    def elect_leaders(self, ticket: object, request: admin_pb2.ElectLeadersRequest) -> None:
        self._decide(ticket, lambda term: term.preferred.elect(request), admin_pb2.ElectLeadersResponse())

    def alter_reassignments(self, ticket: object, request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
        self._decide(
            ticket,
            lambda term: alter_reassignments(term.ledger, request),
            admin_pb2.AlterPartitionReassignmentsResponse(),
        )

    def replace_voter(self, ticket: object, request: admin_pb2.ReplaceVoterRequest) -> None:
        self._decide(
            ticket, lambda term: term.voters.replace(request, self._committed), admin_pb2.ReplaceVoterResponse()
        )

    def alter_voter(self, ticket: object, request: admin_pb2.AlterVoterRequest) -> None:
        self._decide(ticket, lambda term: term.voters.alter(request, self._committed), admin_pb2.AlterVoterResponse())

    def upgrade_level(self, ticket: object, request: admin_pb2.UpgradeLevelRequest) -> None:
        self._decide(ticket, lambda term: term.levels.upgrade(request), admin_pb2.UpgradeLevelResponse())

    def alter_broker_settings(self, ticket: object, request: admin_pb2.AlterBrokerSettingsRequest) -> None:
        refusal = admin_pb2.AlterBrokerSettingsResponse()
        self._decide(ticket, lambda term: term.broker_settings.alter(request), refusal)

    def describe_broker_settings(self, ticket: object, request: admin_pb2.DescribeBrokerSettingsRequest) -> None:
        refusal = admin_pb2.DescribeBrokerSettingsResponse()
        self._decide(ticket, lambda term: term.broker_settings.describe(request), refusal)

    def alter_broker(self, ticket: object, request: admin_pb2.AlterBrokerRequest, now_ms: float) -> None:
        self._decide(ticket, lambda term: term.retirement.alter(request, now_ms), admin_pb2.AlterBrokerResponse())

    # -- users, access rules, quotas

    def alter_users(self, ticket: object, request: security_pb2.AlterUsersRequest) -> None:
        self._decide(ticket, lambda term: term.security.alter_users(request), security_pb2.AlterUsersResponse())

    def describe_users(self, ticket: object, request: security_pb2.DescribeUsersRequest) -> None:
        self._decide(ticket, lambda term: term.security.describe_users(request), security_pb2.DescribeUsersResponse())

    def create_access_rules(self, ticket: object, request: security_pb2.CreateAccessRulesRequest) -> None:
        refusal = security_pb2.CreateAccessRulesResponse()
        self._decide(ticket, lambda term: term.security.create_access_rules(request), refusal)

    def delete_access_rules(self, ticket: object, request: security_pb2.DeleteAccessRulesRequest) -> None:
        refusal = security_pb2.DeleteAccessRulesResponse()
        self._decide(ticket, lambda term: term.security.delete_access_rules(request), refusal)

    def describe_access_rules(self, ticket: object, request: security_pb2.DescribeAccessRulesRequest) -> None:
        refusal = security_pb2.DescribeAccessRulesResponse()
        self._decide(ticket, lambda term: term.security.describe_access_rules(request), refusal)

    def alter_quotas(self, ticket: object, request: security_pb2.AlterQuotasRequest) -> None:
        self._decide(ticket, lambda term: term.security.alter_quotas(request), security_pb2.AlterQuotasResponse())

    def describe_quotas(self, ticket: object, request: security_pb2.DescribeQuotasRequest) -> None:
        self._decide(ticket, lambda term: term.security.describe_quotas(request), security_pb2.DescribeQuotasResponse())

    # -- delegation tokens

    def create_token(self, ticket: object, wanted: NewToken, wall_ms: int) -> None:
        refusal = security_pb2.CreateDelegationTokenResponse()
        self._decide(ticket, lambda term: term.tokens.create(wanted, wall_ms), refusal)

    def renew_token(
        self, ticket: object, request: security_pb2.RenewDelegationTokenRequest, requester: Requester, wall_ms: int
    ) -> None:
        refusal = security_pb2.RenewDelegationTokenResponse()
        self._decide(ticket, lambda term: term.tokens.renew(request, requester, wall_ms), refusal)

    def expire_token(
        self, ticket: object, request: security_pb2.ExpireDelegationTokenRequest, requester: Requester, wall_ms: int
    ) -> None:
        refusal = security_pb2.ExpireDelegationTokenResponse()
        self._decide(ticket, lambda term: term.tokens.expire(request, requester, wall_ms), refusal)

    def describe_tokens(
        self, ticket: object, request: security_pb2.DescribeDelegationTokensRequest, requester: Requester, wall_ms: int
    ) -> None:
        refusal = security_pb2.DescribeDelegationTokensResponse()
        self._decide(ticket, lambda term: term.tokens.describe(request, requester, wall_ms), refusal)

    # -- topics

    def create_topics(self, ticket: object, request: admin_pb2.CreateTopicsRequest) -> None:
        def create(term: _Term, entry: admin_pb2.NewTopic) -> bytes:
            return term.topics.create(entry, validate_only=request.validate_only)

        self._each_topic(ticket, request.topics, create, admin_pb2.CreateTopicsResponse)

    def delete_topics(self, ticket: object, request: admin_pb2.DeleteTopicsRequest) -> None:
        self._each_topic(ticket, request.topics, lambda t, e: t.topics.delete(e), admin_pb2.DeleteTopicsResponse)

    def alter_topics(self, ticket: object, request: admin_pb2.AlterTopicsRequest) -> None:
        self._each_topic(ticket, request.topics, lambda t, e: t.topics.alter(e), admin_pb2.AlterTopicsResponse)

    def create_internal_topic(self, ticket: object, request: peer_pb2.CreateInternalTopicRequest) -> None:
        def decide(term: _Term) -> peer_pb2.CreateInternalTopicResponse:
            require_incarnation(term.ledger, request.broker_id, request.broker_epoch)
            return peer_pb2.CreateInternalTopicResponse(topic_id=term.topics.create_internal(request.name))

        self._decide(ticket, decide, peer_pb2.CreateInternalTopicResponse())

    def _each_topic(
        self,
        ticket: object,
        entries: Iterable[_Entry],
        change: Callable[[_Term, _Entry], bytes],
        response_type: Callable[..., Response],
    ) -> None:
        """Make one decision for each topic: a refusal of one does not affect the others."""
        term = self._term
        response = response_type(results=[self._topic_result(entry, change) for entry in entries])
        if self._term is not term:  # decisions from before the deposition are not promised either
            response = self._refused(response, self._not_controller())
        self._answer(ticket, response)

    def _topic_result(self, entry: _Entry, change: Callable[[_Term, _Entry], bytes]) -> admin_pb2.TopicResult:
        try:
            if self._term is None:
                raise self._not_controller()
            topic_id = change(self._term, entry)
        except MinilogError as error:
            return admin_pb2.TopicResult(error=wire_error(error), name=entry.name)
        self._seal()
        return admin_pb2.TopicResult(name=entry.name, topic_id=topic_id)

    # -- answers

    def _decide(self, ticket: object, decide: Callable[[_Term], Response], refusal: Response) -> None:
        """Answer with the response of `decide`, or with `refusal` and the raised error."""
        try:
            if self._term is None:
                raise self._not_controller()
            response = decide(self._term)
        except MinilogError as error:
            response = self._refused(refusal, error)
        if self._term is not None and not self._seal():
            response = self._refused(refusal, self._not_controller())
        self._answer(ticket, response)

    def _answer(self, ticket: object, response: Response) -> None:
        """Answer now, or when the basis of the answer is committed."""
        if self._term is None or self._term.ledger.end_offset <= self._committed:
            self._effects.append(ControllerAnswer(ticket, response))
        else:
            self._waiting.append((self._term.ledger.end_offset, ticket, response))

    def _not_controller(self) -> NotController:
        other = "it does not know which one is" if self._controller_id < 0 else f"broker {self._controller_id} is"
        return NotController(f"this broker is not the active controller, {other}: ask for metadata and try there")

    def _refused(self, response: Response, error: MinilogError) -> Response:
        """`response` with the error, and without its promises."""
        if isinstance(response, _TOPIC_RESPONSES):
            for result in response.results:
                result.topic_id = b""
                result.error.CopyFrom(wire_error(error))
            return response
        refused = type(response)(error=wire_error(error))
        if isinstance(refused, peer_pb2.RegisterResponse):
            refused.broker_epoch, refused.controller_id = -1, self._controller_id
        if isinstance(refused, peer_pb2.HeartbeatResponse):
            refused.fenced = True
        return refused


def _new_topics(settings: ControllerSettings) -> NewTopics:
    return NewTopics(
        settings.num_partitions, settings.default_replication_factor, topic_config_values(settings.defaults)
    )
