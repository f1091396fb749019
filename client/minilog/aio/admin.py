"""The admin client for asyncio. Changes go to the active controller, and follow it when it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from minilog.admin.broker_settings import BrokerSettingsAdmin
from minilog.admin.controller_client import ControllerClient
from minilog.admin.health import ClusterHealth
from minilog.admin.hearing import NOT_HEARD_WITHIN_MS
from minilog.admin.messages import describe_cluster
from minilog.admin.security import (
    DelegationToken,
    Quota,
    QuotaAlteration,
    TokenInformation,
    UserAlteration,
    UserDescription,
)
from minilog.admin.security_admin import SecurityAdmin
from minilog.aio.cluster_admin import ClusterAdmin
from minilog.aio.group_admin import GroupAdmin
from minilog.aio.queue_admin import QueueAdmin
from minilog.aio.topic_admin import TopicAdmin
from minilog.config import parse_config
from minilog.effective import EffectiveSetting
from minilog.errors import MinilogError
from minilog.net.lookups import list_topics
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime
from minilog.security.access_rules import AccessRule, AccessRuleFilter
from minilog.transactions.admin import TransactionAdmin
from minilog.types import (
    BrokerLoad,
    BrokerSetting,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupPosition,
    NewTopic,
    OffsetSpec,
    PartitionReassignment,
    QueueDescription,
    QueueListing,
    Redriven,
    SizesFrom,
    TopicAlteration,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    VoterChange,
)

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Admin:
    """Creates, changes and describes topics, groups, users and more. request.timeout.ms bounds every call. Threads may
    share a minilog.Admin. One of minilog.aio belongs to one event loop.

    A change raises the first topic's error (TopicAlreadyExists, InvalidPartitions, ...), TimedOut if nothing was done,
    and UnknownOutcome if the answer was lost. Every call raises BrokerNotAvailable if the client can reach no broker.
    """

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._given, parsed = dict(config), parse_config(config)
        self._cluster = NetworkClient(parsed, runtime)
        controller = ControllerClient(self._cluster)
        self._topics = TopicAdmin(self._cluster, controller)
        self._operations = ClusterAdmin(self._cluster, controller)
        self._groups = GroupAdmin(self._cluster, self._topics.offsets)
        self._queues = QueueAdmin(self._cluster)
        self._transactions = TransactionAdmin(self._cluster)
        self._broker_settings = BrokerSettingsAdmin(self._cluster, controller)
        self._security = SecurityAdmin(self._cluster, controller)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        await self._cluster.close()

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, str]:
        """Create topics. Returns their ids (UUIDs as text) by name. With `validate_only` it only checks. Raises
        InvalidSchema, and LevelNotReached for a typed topic in a cluster that was not upgraded yet."""
        return await self._topics.create(topics, validate_only=validate_only)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name."""
        await self._topics.delete(names)

    async def alter_topics(self, alterations: Iterable[TopicAlteration]) -> None:
        """Change topics: more partitions, configs to set and unset, the next version of a schema. A version that exists
        already with exactly this content counts as done. Raises InvalidSchema, and InvalidUpdateVersion if another
        client evolved the schema."""
        await self._topics.alter(alterations)

    async def alter_topic(
        self,
        name: str,
        *,
        num_partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
        schema: TopicSchema | None = None,
    ) -> None:
        """Change one topic. `num_partitions` is the new total, and `schema` is the next version."""
        configs, unset = dict(set_configs or {}), list(unset_configs)
        await self.alter_topics([TopicAlteration(name, num_partitions, configs, unset, schema)])

    async def evolve_schema(
        self, topic: str, change: Callable[[TopicSchema], TopicSchema], *, is_pending: bool = False
    ) -> TopicSchema:
        """Make the next version of a typed topic's schema.

        `change` makes it from the latest version, with the functions of minilog.typed.evolution, in any number of
        steps. If another client was first, `change` is called again, up to five times. `change` runs on the client's
        loop, so it must not wait. Returns the latest version after the change, or the same version if `change` changed
        nothing. A change that was done without an answer is not done twice. Raises InvalidSchema with the broken rule,
        or if the topic has no schema. Raises InvalidUpdateVersion if other clients are first all five times.

        With `is_pending` nobody writes or reads by the version until an alteration of the topic makes it the latest
        (`SchemaStep`), or withdraws it. Another change of the schema withdraws it, too. Then
        `minilog.typed.evolution.rejoined` is the change that brings its columns in again."""
        return await self._topics.evolve(topic, change, is_pending=is_pending)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, MinilogError | None]:
        """Let the first replica of each partition (None: of all partitions) lead again. The controller decides each
        partition on its own. The result is None if the replica leads now, or else the error
        (PreferredLeaderNotAvailable, UnknownTopicOrPartition)."""
        return await self._operations.elect_leaders(partitions)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> dict[TopicPartition, MinilogError | None]:
        """Give partitions other replicas, with the preferred leader first. None cancels a reassignment in progress.

        The call returns at once. A reassignment is done when list_partition_reassignments does not name it any more.
        The controller decides each partition on its own. The result is None if the reassignment has begun, or else the
        error (InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition). The throttle (bytes per
        second) bounds the copying by each new replica until it is in the ISR."""
        return await self._operations.reassign(reassignments, throttle_bytes_per_second=throttle_bytes_per_second)

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress."""
        return await self._operations.reassignments()

    async def list_brokers(self) -> list[BrokerLoad]:
        """The registered brokers, each with the numbers of its replicas and leaders."""
        return await self._operations.brokers()

    async def cordon_broker(self, broker_id: int) -> None:
        """Place no new replica on a broker from now on. Raises BrokerIdNotRegistered."""
        await self._operations.cordon(broker_id)

    async def uncordon_broker(self, broker_id: int) -> None:
        """Place new replicas on a broker again. A decommission of it ends, but moves that have begun go on. Raises
        BrokerIdNotRegistered."""
        await self._operations.uncordon(broker_id)

    async def decommission_broker(self, broker_id: int, *, throttle_bytes_per_second: int | None = None) -> None:
        """Begin to move a broker's replicas to others, at most 20 partitions at once.

        `list_brokers` has the number of replicas that are left. The controller unregisters the broker when it has none
        and its process has stopped. A second call goes on, with its throttle for the moves to come. Raises
        InvalidArgument with the reason if the broker cannot leave, and BrokerIdNotRegistered.
        """
        await self._operations.decommission(broker_id, throttle_bytes_per_second=throttle_bytes_per_second)

    async def forget_broker(self, broker_id: int) -> None:
        """Unregister a broker that is gone and has no replica. Raises InvalidArgument if it runs, votes or has
        replicas, and BrokerIdNotRegistered."""
        await self._operations.forget(broker_id)

    async def replace_voter(self, broker_id: int, *, lost_directory_id: str | None = None) -> tuple[str, str]:
        """Replace a voter whose disk is lost for good. The present disk of its broker votes in its place. Returns the
        directory ids of the lost and the new disk. Raises InvalidArgument if no disk is lost, or if
        `lost_directory_id` was replaced already."""
        return await self._operations.replace_voter(broker_id, lost_directory_id=lost_directory_id)

    async def add_voter(self, broker_id: int) -> VoterChange:
        """Let a running broker vote, with its registered data directory and at its registered address.

        The call waits, at most request.timeout.ms, until the broker has fetched the metadata log. Raises
        InvalidArgument if the broker does not run, or if there are five voters. Raises VotersNotReady if the change is
        not possible now.
        """
        return await self._operations.add_voter(broker_id)

    async def remove_voter(self, broker_id: int) -> VoterChange:
        """Remove a voter. Its broker may be down. A running one goes on as a broker that does not vote.

        Raises InvalidArgument for the last voter, and VotersNotReady if the controller hears no majority of the others.
        """
        return await self._operations.remove_voter(broker_id)

    async def move_voter(self, broker_id: int) -> VoterChange:
        """Record the present registered address of a voter's broker, so that the other voters reach it there.

        Raises InvalidArgument if the broker is no voter, or does not run.
        """
        return await self._operations.move_voter(broker_id)

    async def upgrade_level(self, level: int | None = None) -> tuple[int, int]:
        """Raise the level of the cluster, so that it writes the forms of data of that level. The default is the highest
        level that any broker supports. A level never goes down. Returns the level before and after. Raises
        UnsupportedVersion, which names the brokers that do not support the level."""
        return await self._operations.upgrade_level(level)

    async def alter_broker_settings(
        self,
        broker_id: int | None,
        *,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
    ) -> list[BrokerSetting]:
        """Set and remove settings of running brokers: all of the request, or nothing.

        `broker_id` is one broker, or None for all brokers without their own setting of that name. On a broker the
        setting wins over the broker's file and command line, as soon as the broker has replayed the metadata. Returns
        the former values. Raises InvalidConfig for an unknown name, a wrong value, or a setting that needs a restart,
        ResourceNotFound for a broker that never registered, and LevelNotReached.
        """
        return await self._broker_settings.alter(broker_id, dict(set_configs or {}), unset_configs)

    async def describe_broker_settings(self) -> list[BrokerSetting]:
        """The settings that `alter_broker_settings` has set, those for all brokers first."""
        return await self._broker_settings.describe()

    async def broker_config(self, broker_id: int) -> list[EffectiveSetting]:
        """Each setting of a running broker, with its origin, by the broker's own answer. Raises ResourceNotFound for a
        broker that never registered, and BrokerNotAvailable if the broker does not answer."""
        return await self._broker_settings.running(broker_id)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted. With `internal`, also the brokers' own topics."""
        return await list_topics(self._cluster, internal=internal)

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller, the voters and the level."""
        return describe_cluster(await self._cluster.refresh([]))

    async def cluster_health(self) -> ClusterHealth:
        """The problems of the cluster, with their remedies: brokers, voters, disks, leaders, replicas.

        The active controller knows the disks of the brokers. If no controller answers within 5 s, that is the first
        problem."""
        return await self._operations.health()

    async def describe_topics(
        self,
        names: Iterable[str] | Callable[[str], bool] | None = None,
        *,
        missing_ok: bool = False,
        sizes: Callable[[TopicPartition], SizesFrom] | None = None,
        replica_ends: bool = False,
    ) -> list[TopicDescription]:
        """Topics with the offsets of their partitions.

        `names` are the topics, in this order. None means all topics, sorted. A function chooses topics by their names,
        sorted. Offsets are None if the leader does not answer within three seconds. `sizes` also asks for the offsets
        after certain numbers of bytes, and `replica_ends` for the end of each replica. Topics that this client
        described before take one round trip. Raises UnknownTopicOrPartition. With `missing_ok` it leaves a missing
        topic out instead."""
        return await self._topics.describe(names, missing_ok=missing_ok, sizes=sizes, replica_ends=replica_ends)

    async def list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int | None]:
        """The offset of each partition for "earliest", "latest" (by isolation.level), or milliseconds since 1970. For a
        time it is the offset of the first record at or after that time, as for `Consumer.offsets_for_times`: None if
        all records are older. The leader names the batch, and the client reads it: a time needs the right to read the
        topic. Raises InvalidArgument, TimedOut, UnknownTopicOrPartition, AuthorizationFailed."""
        return await self._topics.offsets(wanted)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records of each partition below an offset (Kafka's DeleteRecords).

        -1 is the end of the partition: the high watermark or, while a transaction is open, the begin of the
        transaction. Returns the low watermarks. No election brings records below them back. Raises OffsetOutOfRange for
        an offset above the high watermark, and InvalidTxnState for one above the last stable offset. Then nothing of
        that partition is deleted. Raises InvalidTopic for the brokers' own topics, and UnknownOutcome if some replicas
        did not answer in time: a second call is harmless."""
        return await self._topics.delete_records(before)

    async def list_groups(self) -> list[GroupListing]:
        """The groups with committed offsets or with members, by name. The client asks all coordinators."""
        return await self._groups.list()

    async def describe_group(self, group_id: str) -> GroupDescription:
        """The progress and the lag of a group: see minilog.types.GroupOffset. isolation.level decides the end. Raises
        GroupIdNotFound."""
        return await self._groups.describe(group_id)

    async def seek_group(self, group_id: str, to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, int]:
        """Set the place at which a group goes on, for readers that begin after this call.

        The place is an offset, "earliest", "latest", or "@1714566600000" for the first record at or after that time
        (the end if all records are older). The group gets all of the offsets or none, and the call returns them. Raises
        InvalidArgument for an offset that a log does not have, and UnstableOffsetCommit while a transaction has pending
        offsets of the group."""
        return await self._groups.seek(group_id, to)

    async def delete_group(self, group_id: str) -> None:
        """Delete all committed offsets of a group. Raises GroupIdNotFound, UnstableOffsetCommit, NonEmptyGroup."""
        await self._groups.delete(group_id)

    async def remove_group_member(self, group_id: str, member: str) -> None:
        """Fence a member, by its id or its instance id: its partitions go to the others. A process that still runs
        joins anew with its next poll. Raises UnknownMemberId."""
        await self._groups.remove_member(group_id, member)

    async def list_queues(self) -> list[QueueListing]:
        """The queues, by name. The client asks all coordinators."""
        return await self._queues.list()

    async def describe_queue(self, queue: str) -> QueueDescription:
        """The settings of a queue, and its progress in each partition: see minilog.types.QueuePosition. Raises
        ResourceNotFound."""
        return await self._queues.describe(queue)

    async def alter_queue(self, queue: str, *, set: Mapping[str, str] | None = None, unset: Sequence[str] = ()) -> None:
        """Set settings of a queue, and put others back to their defaults. The queue need not exist yet. The settings
        are group.share.record.lock.duration.ms, group.share.delivery.count.limit,
        group.share.partition.max.record.locks, share.auto.offset.reset, errors.deadletterqueue.topic.name and
        errors.deadletterqueue.copy.record.enable. Raises InvalidConfig."""
        await self._queues.alter(queue, set or {}, unset)

    async def delete_queue(self, queue: str) -> None:
        """Forget a queue: its settings, and what of its topics is settled. Raises ResourceNotFound, and NonEmptyQueue
        while records are leased."""
        await self._queues.delete(queue)

    async def redrive_queue(self, queue: str, *, max_letters: int | None = None) -> Redriven:
        """Make the records of dead letters messages of the queue again, at most `max_letters` of the letters that are
        there now. Each record is ready at its old offset, and no other reader of its topic gets it. If it is gone, the
        copy in its letter becomes a new record of the topic, in its partition of before: every reader of the topic gets
        that. The answer has the counts.

        A letter is redriven once, also if the call is repeated or interrupted: the queue keeps the place. Needs READ
        for the queue, the dead-letter topic and the topics of the records. New records need WRITE for their topics, and
        for the transactional id `QUEUE-redrive`. Raises ResourceNotFound, InvalidArgument for a queue without a
        dead-letter topic, UnknownTopicOrPartition if a topic does not exist, InvalidRecordState if the queue never had
        a place there, and ProducerFenced or InvalidRecordState if another redrive overtakes this one."""
        from minilog.aio.redrive import Redrive  # other calls need no Arrow

        return await Redrive(self._given, self._cluster, queue).run(max_letters)

    async def list_transactions(self) -> list[TransactionListing]:
        """The known transactional ids, by name. The client asks all coordinators."""
        return await self._transactions.list()

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """The writers of a transaction, their partitions, and the time since the last sign of life. Raises
        TransactionalIdNotFound."""
        return await self._transactions.describe(transactional_id)

    async def abort_transaction(self, transactional_id: str) -> int:
        """Abort the open transaction of this id, and fence its writers. Returns the number of writers. Committed
        records stay. The program or query may begin again. Raises TransactionalIdNotFound."""
        return await self._transactions.abort(transactional_id)

    async def forget_transaction(self, transactional_id: str) -> None:
        """Forget the committed generations of an id that no program will use any more. A query that replays a forgotten
        generation writes it again. Raises TransactionalIdNotFound, and InvalidTxnState while the transaction is open or
        ending."""
        await self._transactions.forget(transactional_id)

    async def alter_users(self, alterations: Iterable[UserAlteration]) -> None:
        """Give users passwords for SCRAM (UserUpsertion), or take them away (UserDeletion).

        Up to a thousand alterations are done together or not at all. The client sends keys that it derives, and never a
        password. `not_heard_by` returns the brokers on which the change does not count yet. Raises ResourceNotFound,
        DuplicateResource, UnacceptableCredential, and LevelNotReached in a cluster that was not upgraded yet."""
        await self._security.alter_users(alterations)

    async def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        """Users (None: all) by name, with their mechanisms. Raises ResourceNotFound for a user that does not exist."""
        return await self._security.describe_users(names)

    async def create_access_rules(self, rules: Iterable[AccessRule]) -> int:
        """Create access rules (Kafka's ACLs). Up to a thousand rules are created together or not at all. Returns the
        number of rules that are new. Raises InvalidArgument and InvalidPrincipal for a rule that could never match, and
        LevelNotReached."""
        return await self._security.create_access_rules(rules)

    async def delete_access_rules(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        """Delete the rules that match any of the filters, and return them. `AccessRuleFilter()` matches all rules. If
        an attempt's answer was lost, the result lacks the rules that this attempt deleted. `not_heard_by` returns the
        brokers on which the rules still hold."""
        return await self._security.delete_access_rules(filters)

    async def describe_access_rules(self, wanted: AccessRuleFilter | None = None) -> list[AccessRule]:
        """The access rules that match the filter (None: all), by resource and principal."""
        return await self._security.describe_access_rules(wanted)

    async def not_heard_by(self, within_ms: int = NOT_HEARD_WITHIN_MS) -> list[int]:
        """The brokers that do not know this client's last change of users, access rules, quotas or tokens yet.

        A removed right may still hold on such a broker, until it knows the change or refuses clients
        (`stale.access.rules.enable`). The call waits up to `within_ms` for running brokers, and not for fenced ones.
        Raises TimedOut, and BrokerNotAvailable if no controller answers."""
        return await self._security.not_heard_by(within_ms)

    async def alter_quotas(self, alterations: Iterable[QuotaAlteration]) -> list[Quota]:
        """Set and remove quotas. Up to a thousand alterations are done together or not at all. Returns the former
        quotas. Raises InvalidArgument for a key or value that is not valid, InvalidPrincipal, and LevelNotReached."""
        return await self._security.alter_quotas(alterations)

    async def describe_quotas(self, entity: str | None = None) -> list[Quota]:
        """The quotas of `User:alice`, of `default`, or of all (None), by entity and key."""
        return await self._security.describe_quotas(entity)

    async def create_delegation_token(
        self, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        """Create a token of this client's user. Only this call returns the secret of the token.

        `renewers` are other principals that may renew and expire it (`User:bob`). `max_lifetime_ms` is its longest
        life, and None is the brokers' limit. At first the token is valid for delegation.token.expiry.time.ms. If an
        attempt's answer was lost, another token may exist, whose secret is lost, too. Raises
        DelegationTokenRequestNotAllowed if this client did not log in by a password or an issuer's token,
        InvalidPrincipal, InvalidArgument, LevelNotReached."""
        return await self._security.create_delegation_token(renewers, max_lifetime_ms)

    async def renew_delegation_token(self, token_id: str, renew_period_ms: int | None = None) -> int:
        """Let the token end `renew_period_ms` from now (None: the brokers' default), but not after its
        max_timestamp_ms. Returns its end, in milliseconds since 1970. Raises DelegationTokenExpired,
        DelegationTokenRequestNotAllowed, and DelegationTokenNotFound, also for a token that this user may not renew."""
        return await self._security.renew_delegation_token(token_id, renew_period_ms)

    async def expire_delegation_token(self, token_id: str, expiry_period_ms: int | None = None) -> int:
        """Let the token end `expiry_period_ms` from now, or at once (None, or a negative number). At its end the
        brokers remove it, and the sessions that began with it end. Returns its end, in milliseconds since 1970. A user
        that may alter the cluster may expire the tokens of others. Raises the errors of renew_delegation_token."""
        return await self._security.expire_delegation_token(token_id, expiry_period_ms)

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[TokenInformation]:
        """The living tokens of these owners (`User:alice`, or None for all), without their secrets. A user sees the
        tokens that it owns or may renew, and all tokens if it may describe the cluster. Raises
        DelegationTokenRequestNotAllowed."""
        return await self._security.describe_delegation_tokens(owners)
