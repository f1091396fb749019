"""The blocking admin client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from minilog.admin.broker_settings import BrokerSetting
from minilog.admin.health import ClusterHealth
from minilog.admin.hearing import NOT_HEARD_WITHIN_MS
from minilog.admin.security import (
    DelegationToken,
    Quota,
    QuotaAlteration,
    TokenInformation,
    UserAlteration,
    UserDescription,
)
from minilog.aio.admin import Admin as AsyncAdmin
from minilog.effective import EffectiveSetting
from minilog.errors import MinilogError
from minilog.security.access_rules import AccessRule, AccessRuleFilter
from minilog.sync.loop import shared_loop
from minilog.types import (
    BrokerLoad,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupPosition,
    NewTopic,
    OffsetSpec,
    PartitionReassignment,
    SizesFrom,
    TopicAlteration,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    VoterChange,
)

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema


class Admin:
    """Creates, changes and describes topics. Every call is bounded by request.timeout.ms; may be shared by threads.

    Changes raise the first topic's error (TopicAlreadyExists, InvalidPartitions, ...), TimedOut where nothing was
    done, UnknownOutcome where the answer was lost. All raise BrokerNotAvailable where no broker can be reached.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._admin = AsyncAdmin(config)
        self._loop = shared_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._loop.close(self._admin.close)

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> dict[str, str]:
        """Create topics; returns their ids (UUIDs as text) by name. With validate_only only checks. Raises
        InvalidSchema; LevelNotReached for a typed topic where the cluster was not upgraded yet."""
        return self._loop.run(self._admin.create_topics(list(topics), validate_only=validate_only))

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name."""
        self._loop.run(self._admin.delete_topics(list(names)))

    def alter_topics(self, alterations: Iterable[TopicAlteration]) -> None:
        """Change topics: more partitions, configs set and unset, the next version of a schema. A version that is there
        already, to the letter, is done. Raises InvalidSchema; InvalidUpdateVersion where somebody else evolved it."""
        self._loop.run(self._admin.alter_topics(list(alterations)))

    def alter_topic(
        self,
        name: str,
        *,
        num_partitions: int | None = None,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
        schema: TopicSchema | None = None,
    ) -> None:
        """Change one topic; `num_partitions` is the new total, `schema` the next version."""
        configs, unset = dict(set_configs or {}), list(unset_configs)
        self.alter_topics([TopicAlteration(name, num_partitions, configs, unset, schema)])

    def evolve_schema(self, topic: str, change: Callable[[TopicSchema], TopicSchema]) -> TopicSchema:
        """The next version of a typed topic's schema: `change` makes it of the latest one (minilog.typed.evolution), by
        as many steps as it likes, and is called again where somebody else was first, up to five times. Returns the
        latest version then: the same as before where nothing is changed. What was done and not answered is not done
        again. `change` runs on the client's loop: it must not wait. Raises InvalidSchema, with the rule, and where the
        topic has no schema; InvalidUpdateVersion where others are first all the time."""
        return self._loop.run(self._admin.evolve_schema(topic, change))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, MinilogError | None]:
        """Let the first replica of each partition (None: of all) lead again. Each is decided on its own: None where it
        leads now, else why it does not (PreferredLeaderNotAvailable, UnknownTopicOrPartition)."""
        return self._loop.run(self._admin.elect_leaders(None if partitions is None else list(partitions)))

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int | None = None,
    ) -> dict[TopicPartition, MinilogError | None]:
        """Give partitions other replicas, the preferred leader first; None cancels what is under way. Returns at once:
        it is done when list_partition_reassignments does not name it any more. Each is decided on its own: None where
        it has begun, else why not (InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition). The
        throttle bounds what each broker fetches of what it is to have (bytes per second), until it is in the ISR."""
        return self._loop.run(
            self._admin.alter_partition_reassignments(
                dict(reassignments), throttle_bytes_per_second=throttle_bytes_per_second
            )
        )

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way."""
        return self._loop.run(self._admin.list_partition_reassignments())

    def list_brokers(self) -> list[BrokerLoad]:
        """The registered brokers, each with the numbers of its replicas and leaders."""
        return self._loop.run(self._admin.list_brokers())

    def cordon_broker(self, broker_id: int) -> None:
        """Place no new replica on a broker from now on. Raises BrokerIdNotRegistered."""
        self._loop.run(self._admin.cordon_broker(broker_id))

    def uncordon_broker(self, broker_id: int) -> None:
        """Place new replicas on a broker again. A decommission of it ends, but moves that have begun go on. Raises
        BrokerIdNotRegistered."""
        self._loop.run(self._admin.uncordon_broker(broker_id))

    def decommission_broker(self, broker_id: int, *, throttle_bytes_per_second: int | None = None) -> None:
        """Begin to move a broker's replicas to others, at most 20 partitions at once.

        `list_brokers` has the number of replicas that are left. The controller unregisters the broker when it has none
        and its process has stopped. A second call goes on, with its throttle for the moves to come. Raises
        InvalidArgument with the reason where the broker cannot leave, BrokerIdNotRegistered.
        """
        self._loop.run(self._admin.decommission_broker(broker_id, throttle_bytes_per_second=throttle_bytes_per_second))

    def forget_broker(self, broker_id: int) -> None:
        """Unregister a broker that is gone and has no replica. Raises InvalidArgument where it runs, votes or has
        replicas, BrokerIdNotRegistered."""
        self._loop.run(self._admin.forget_broker(broker_id))

    def replace_voter(self, broker_id: int, *, lost_directory_id: str | None = None) -> tuple[str, str]:
        """A voter's disk is lost for good: the one its broker runs with now votes in its place. Returns the directory
        ids of both. Raises InvalidArgument where nothing is lost, or `lost_directory_id` was replaced already."""
        return self._loop.run(self._admin.replace_voter(broker_id, lost_directory_id=lost_directory_id))

    def add_voter(self, broker_id: int) -> VoterChange:
        """Let a running broker vote, with the data directory and at the address that it is registered with.

        The call waits, up to the time-out of requests, until the broker has fetched the metadata log. Raises
        InvalidArgument where it does not run, or there are five voters, and VotersNotReady where it cannot be now.
        """
        return self._loop.run(self._admin.add_voter(broker_id))

    def remove_voter(self, broker_id: int) -> VoterChange:
        """Let a voter vote no more. It runs on as a broker, and may be down.

        Raises InvalidArgument for the last voter, and VotersNotReady where no majority of the others is heard.
        """
        return self._loop.run(self._admin.remove_voter(broker_id))

    def move_voter(self, broker_id: int) -> VoterChange:
        """Record the address that a voter's broker is registered with now, so that the other voters reach it there.

        Raises InvalidArgument where it is no voter, or does not run.
        """
        return self._loop.run(self._admin.move_voter(broker_id))

    def upgrade_level(self, level: int | None = None) -> tuple[int, int]:
        """Let the cluster write what came with `level`, by default with the highest that any broker supports; there is
        no way back. Returns the level before and after. Raises UnsupportedVersion, naming who does not support it."""
        return self._loop.run(self._admin.upgrade_level(level))

    def alter_broker_settings(
        self,
        broker_id: int | None,
        *,
        set_configs: Mapping[str, str] | None = None,
        unset_configs: Iterable[str] = (),
    ) -> list[BrokerSetting]:
        """Set and remove settings of running brokers: all of the request, or nothing.

        `broker_id`: one broker, or None for all without a setting of that name of their own. A setting counts on each
        broker from its replay on, before the broker's file and command line. Returns the former values. Raises
        InvalidConfig for an unknown name, a wrong value, and a setting that needs a restart, ResourceNotFound for a
        broker that never registered, LevelNotReached.
        """
        return self._loop.run(
            self._admin.alter_broker_settings(
                broker_id, set_configs=dict(set_configs or {}), unset_configs=list(unset_configs)
            )
        )

    def describe_broker_settings(self) -> list[BrokerSetting]:
        """The settings that `alter_broker_settings` has set, those for all brokers first."""
        return self._loop.run(self._admin.describe_broker_settings())

    def broker_config(self, broker_id: int) -> list[EffectiveSetting]:
        """Each setting of a running broker, with its origin, by the broker's own answer. Raises ResourceNotFound for a
        broker that never registered, BrokerNotAvailable where it does not answer."""
        return self._loop.run(self._admin.broker_config(broker_id))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; with `internal` the brokers' own too."""
        return self._loop.run(self._admin.list_topics(internal=internal))

    def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        return self._loop.run(self._admin.describe_cluster())

    def cluster_health(self) -> ClusterHealth:
        """What is wrong with the cluster, and what to do: brokers, voters, disks, leaders, replicas. What brokers say
        of their disks the active controller knows; where none answers within 5 s, that is the first problem."""
        return self._loop.run(self._admin.cluster_health())

    def describe_topics(
        self,
        names: Iterable[str] | Callable[[str], bool] | None = None,
        *,
        missing_ok: bool = False,
        sizes: Callable[[TopicPartition], SizesFrom] | None = None,
        replica_ends: bool = False,
    ) -> list[TopicDescription]:
        """Topics in the order given (None: all, sorted; a function: those whose names it chooses, sorted) with the
        offsets of their partitions, None where the leader does not answer within three seconds. `sizes` asks of each
        partition at which offsets there are so many bytes, too; `replica_ends` of each leader where its replicas end.
        Topics that were described before take one round trip.
        Raises UnknownTopicOrPartition; with `missing_ok` a topic that is not there is left out instead."""
        wanted = names if names is None or callable(names) else list(names)
        return self._loop.run(
            self._admin.describe_topics(wanted, missing_ok=missing_ok, sizes=sizes, replica_ends=replica_ends)
        )

    def list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int | None]:
        """The offset per partition: "earliest", "latest" (as of isolation.level) or, for milliseconds since 1970, that
        of the first record at least this young, None where there is none yet. Raises InvalidArgument, TimedOut,
        UnknownTopicOrPartition."""
        return self._loop.run(self._admin.list_offsets(dict(wanted)))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records of each partition below an offset (Kafka's DeleteRecords); -1 is its end: the high
        watermark or, while a transaction is open, where that begins. Returns the low watermarks: no election brings
        back what is below them. Raises OffsetOutOfRange above the high watermark and InvalidTxnState above the last
        stable offset, with nothing of that partition deleted; InvalidTopic for the brokers' own; UnknownOutcome where
        not every replica was heard in time: asking again is harmless."""
        return self._loop.run(self._admin.delete_records(dict(before)))

    def list_groups(self) -> list[GroupListing]:
        """The groups that have committed anything, by name. All coordinators are asked."""
        return self._loop.run(self._admin.list_groups())

    def describe_group(self, group_id: str) -> GroupDescription:
        """How far a group has got, and how far it is behind: see minilog.types.GroupOffset; "the end" is as of
        isolation.level. Raises GroupIdNotFound."""
        return self._loop.run(self._admin.describe_group(group_id))

    def seek_group(self, group_id: str, to: Mapping[TopicPartition, GroupPosition]) -> dict[TopicPartition, int]:
        """Where a group is to go on, for its readers that begin after this: an offset, "earliest", "latest", or
        "@1714566600000", the first record at least this young (the end where none is). Returns the offsets committed,
        all of them or none. Raises InvalidArgument for what a log does not hold, UnstableOffsetCommit while a
        transaction holds offsets of the group."""
        return self._loop.run(self._admin.seek_group(group_id, dict(to)))

    def delete_group(self, group_id: str) -> None:
        """Forget all that a group has committed. Raises GroupIdNotFound, UnstableOffsetCommit."""
        self._loop.run(self._admin.delete_group(group_id))

    def list_transactions(self) -> list[TransactionListing]:
        """The transactional ids that are known, by name. All coordinators are asked."""
        return self._loop.run(self._admin.list_transactions())

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Who writes in it, where, and since when nothing was heard. Raises TransactionalIdNotFound."""
        return self._loop.run(self._admin.describe_transaction(transactional_id))

    def abort_transaction(self, transactional_id: str) -> int:
        """Abort whatever is open under this id, and fence its writers; returns how many. What was committed stays. Its
        program or query may begin again. Raises TransactionalIdNotFound."""
        return self._loop.run(self._admin.abort_transaction(transactional_id))

    def forget_transaction(self, transactional_id: str) -> None:
        """Forget which generations were committed: a query that replays one then writes it again. For ids that will not
        be used any more. Raises TransactionalIdNotFound, InvalidTxnState while it is open or ending."""
        self._loop.run(self._admin.forget_transaction(transactional_id))

    def alter_users(self, alterations: Iterable[UserAlteration]) -> None:
        """Give users passwords for SCRAM (UserUpsertion), or take them away (UserDeletion): up to a thousand at a time
        all of them or none. What is made of a password is sent, never the password. Raises ResourceNotFound,
        DuplicateResource, UnacceptableCredential; LevelNotReached where the cluster was not upgraded yet.
        `not_heard_by` tells where it does not count yet."""
        self._loop.run(self._admin.alter_users(list(alterations)))

    def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        """Users (None: all) by name, with their mechanisms. Raises ResourceNotFound for one that does not exist."""
        return self._loop.run(self._admin.describe_users(None if names is None else list(names)))

    def create_access_rules(self, rules: Iterable[AccessRule]) -> int:
        """Create rules (Kafka's ACLs), up to a thousand at a time all of them or none; how many were not there before.
        Raises InvalidArgument and InvalidPrincipal for a rule that could never match, LevelNotReached."""
        return self._loop.run(self._admin.create_access_rules(list(rules)))

    def delete_access_rules(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        """Delete the rules that any of the filters matches; which those were. `AccessRuleFilter()` matches all. Those
        that an attempt deleted whose answer was lost are not among them. `not_heard_by` tells where they hold still."""
        return self._loop.run(self._admin.delete_access_rules(list(filters)))

    def not_heard_by(self, within_ms: int = NOT_HEARD_WITHIN_MS) -> list[int]:
        """Brokers that have not told the controller that they know of this client's last change of users, access rules,
        quotas or tokens: a right that was taken away may hold there until they know, or refuse clients
        (`stale.access.rules.enable`). Waits up to `within_ms` for those that run; one that is fenced is not waited for.
        Raises TimedOut, BrokerNotAvailable where no controller tells."""
        return self._loop.run(self._admin.not_heard_by(within_ms))

    def describe_access_rules(self, wanted: AccessRuleFilter | None = None) -> list[AccessRule]:
        """The rules that match (None: all), by resource and principal."""
        return self._loop.run(self._admin.describe_access_rules(wanted))

    def alter_quotas(self, alterations: Iterable[QuotaAlteration]) -> list[Quota]:
        """Set and remove quotas, up to a thousand at a time all of them or none; what was in their places before.
        Raises InvalidArgument for a key or value that is none, InvalidPrincipal, LevelNotReached."""
        return self._loop.run(self._admin.alter_quotas(list(alterations)))

    def describe_quotas(self, entity: str | None = None) -> list[Quota]:
        """The quotas of `User:alice`, of `default`, or of all (None), by entity and key."""
        return self._loop.run(self._admin.describe_quotas(entity))

    def create_delegation_token(
        self, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> DelegationToken:
        """A token of this client's user, with its secret, which is told this once. `renewers`: who else may renew and
        expire it (`User:bob`). `max_lifetime_ms`: above that it is not renewed; None: as long as the brokers allow. It
        is good for delegation.token.expiry.time.ms at first. Raises DelegationTokenRequestNotAllowed where this client
        is not known by a password or an issuer's token, InvalidPrincipal, InvalidArgument, LevelNotReached. Where an
        attempt's answer was lost there may be another token, whose secret nobody has."""
        return self._loop.run(self._admin.create_delegation_token(list(renewers), max_lifetime_ms))

    def renew_delegation_token(self, token_id: str, renew_period_ms: int | None = None) -> int:
        """The token ends so many milliseconds from now (None: as the brokers say), at most at its max_timestamp_ms;
        when that is, in milliseconds since 1970. Raises DelegationTokenNotFound, also for a token of others that this
        client's user may not renew, DelegationTokenExpired, DelegationTokenRequestNotAllowed."""
        return self._loop.run(self._admin.renew_delegation_token(token_id, renew_period_ms))

    def expire_delegation_token(self, token_id: str, expiry_period_ms: int | None = None) -> int:
        """The token ends so many milliseconds from now, or (None, or a negative number) at once: then it is removed,
        and the sessions that began with it end. When that is, in milliseconds since 1970. Raises as
        renew_delegation_token; who may alter the cluster may expire the tokens of others."""
        return self._loop.run(self._admin.expire_delegation_token(token_id, expiry_period_ms))

    def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[TokenInformation]:
        """Tokens that live, without their secrets, of these owners (`User:alice`; None: of all): those that this
        client's user owns or may renew, and all where it may describe the cluster. Raises
        DelegationTokenRequestNotAllowed."""
        return self._loop.run(self._admin.describe_delegation_tokens(None if owners is None else list(owners)))
