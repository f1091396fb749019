"""The coordinator of the groups of one partition of `__groups`: their offsets, and their members where they have any.

    call or event                      what follows
    member                             its assignment is pushed, and it is heard (members.py)
    remove_member                      the member is fenced
    commit                             the group's offsets change; answered when that is committed
    commit in a transaction            the producer is registered first (registrations.py); its offsets are pending
    write_markers                      the pending offsets become the group's, or are gone; answered when that is so
    fetch                              what is committed; of a partition with pending offsets: UNSTABLE_OFFSET_COMMIT
    delete, drop_deleted_topics        the offsets are gone

The rules are in offsets.py. A fetch is a decision too: it appends a record that removes nothing, and is answered behind
it, so that a coordinator which was deposed and does not know it never sends a reader back to where it was before. So is
a marker that changes nothing here: where another coordinator leads, it may have offsets pending that the marker is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from minilog.errors import (
    GroupIdNotFound,
    MinilogError,
    NonEmptyGroup,
    UnstableOffsetCommit,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import MemberAnswer, Moment
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.groups import offsets as rules
from minilog_broker.coordinators.groups.committers import check_committer, check_speaker
from minilog_broker.coordinators.groups.describing import described_members
from minilog_broker.coordinators.groups.members import Members, MemberSurroundings
from minilog_broker.coordinators.groups.membership import KnownTopics
from minilog_broker.coordinators.groups.presences import GroupSettings, Speaker
from minilog_broker.coordinators.groups.records import (
    GroupChange,
    GroupKey,
    GroupValue,
    Offset,
    PendingCommit,
    group_codec,
)
from minilog_broker.coordinators.pending_coordinator import PendingCoordinator
from minilog_broker.coordinators.sequences import last_sequence
from minilog_broker.coordinators.table import Change

NO_OFFSET = -1


class GroupCoordinator(PendingCoordinator[GroupKey, GroupValue, coordinator_pb2.CommitOffsetsRequest]):
    """The coordinator that keeps the committed offsets of groups, and their members.

    `knows_topic(topic_id)`: whether this broker's image, as it is now, has the topic. `topics`: those of the image.
    `allows_members`: whether the level of the cluster has groups with members. `allows_principals`: whether it has
    principals of members.
    """

    response = coordinator_pb2.CommitOffsetsResponse

    def __init__(
        self,
        name: str,
        log: OwnLog,
        knows_topic: rules.KnowsTopic,
        topics: KnownTopics,
        allows_members: Callable[[], bool],
        allows_principals: Callable[[], bool],
        settings: GroupSettings,
    ) -> None:
        super().__init__(name, group_codec(), log)
        self._knows_topic = knows_topic
        around = MemberSurroundings(
            self._table,
            self._write,
            self._answer_member,
            topics,
            allows_members,
            allows_principals,
            lambda: self._leader_epoch,
        )
        self._members = Members(settings, around)

    # -- members

    def member(self, stream: object, request: coordinator_pb2.MemberRequest, speaker: Speaker, now: Moment) -> None:
        """MemberResponses, as they come, on `stream`; a refusal is the last."""
        try:
            self._require_active(request.coordinator_epoch)
            self._members.request(stream, request, speaker, now)
        except MinilogError as error:
            self._members.stream_ended(stream)
            self._answer(stream, request.group_id, self._refusal(coordinator_pb2.MemberResponse, error))

    def member_stream_ended(self, stream: object) -> None:
        """Nothing comes or goes on it any more."""
        self._members.stream_ended(stream)

    def _answer_member(self, stream: object, message: coordinator_pb2.MemberResponse) -> None:
        self._effects.append(MemberAnswer(stream, message))

    def remove_member(self, ticket: object, request: coordinator_pb2.RemoveMemberRequest, now: Moment) -> None:
        """RemoveMemberResponse."""

        def decide() -> coordinator_pb2.RemoveMemberResponse:
            self._members.remove(request.group_id, request.member, now)
            return coordinator_pb2.RemoveMemberResponse()

        self._decide(ticket, request.group_id, coordinator_pb2.RemoveMemberResponse, decide)

    def topics_changed(self, now: Moment) -> None:
        """The image has topics, or partitions, that it had not, or lacks some."""
        if self._state is CoordinatorState.ACTIVE:
            self._members.topics_changed(now)

    def tick(self, now: Moment) -> None:
        """`next_tick_ms` has come."""
        if self._state is CoordinatorState.ACTIVE:
            self._members.tick(now)

    @property
    def next_tick_ms(self) -> float:
        """When `tick` should be called."""
        return self._members.next_tick_ms

    def member_counts(self) -> dict[str, int]:
        """For people, without a decision: the members of each group that has any."""
        return self._members.counts()

    # -- commits

    def commit(
        self, ticket: object, request: coordinator_pb2.CommitOffsetsRequest, now: Moment, principal: str = ""
    ) -> None:
        """CommitOffsetsResponse."""
        if request.HasField("transaction"):
            try:
                self._require_active(request.coordinator_epoch)
                check_speaker(self._table, request, principal)
            except MinilogError as error:
                self._answer(ticket, None, self._refusal(coordinator_pb2.CommitOffsetsResponse, error))
                return
            self._in_transaction(ticket, request, request.coordinator_epoch, now)
            return

        def decide() -> coordinator_pb2.CommitOffsetsResponse:
            rules.check_commit(request, self._knows_topic)
            check_speaker(self._table, request, principal)
            check_committer(self._table, request)
            self._write(rules.commit(request, self._table.end_offset, now.wall_us))
            return coordinator_pb2.CommitOffsetsResponse()

        kind = coordinator_pb2.CommitOffsetsResponse
        self._decide(ticket, request.group_id, kind, decide, known_epoch=request.coordinator_epoch)

    # -- commits in transactions

    def _owner(self, request: coordinator_pb2.CommitOffsetsRequest) -> str:
        return request.group_id

    def _check_pending(self, request: coordinator_pb2.CommitOffsetsRequest) -> None:
        rules.check_commit(request, self._knows_topic)
        check_committer(self._table, request)

    def _last_sequence(self, producer_id: int) -> int:
        return last_sequence(rules.pending_of(self._table, producer_id, self._owners_of.get(producer_id, ())))

    def _pending_changes(self, request: coordinator_pb2.CommitOffsetsRequest, now: Moment) -> Sequence[GroupChange]:
        groups = self._owners_of.get(request.transaction.producer_id, ())
        return rules.commit_in_transaction(self._table, request, groups, now.wall_us)

    def _marker_changes(self, markers: Iterable[coordinator_pb2.ProducerMarker], now: Moment) -> Sequence[GroupChange]:
        return rules.end_producers(self._table, markers, lambda p: self._owners_of.get(p, ()), self._knows_topic)

    def _producer_key(self, owner: str, producer_id: int) -> GroupKey:
        return GroupKey(owner, producer_id=producer_id)

    # -- what is committed

    def fetch(self, ticket: object, request: coordinator_pb2.FetchOffsetsRequest) -> None:
        """FetchOffsetsResponse."""
        group = request.group_id

        def decide() -> coordinator_pb2.FetchOffsetsResponse:
            unstable = {key for pending in self._pending(group).values() for key, _ in pending.offsets}
            committed = self._offsets(group)
            requested = [PartitionKey.of(partition_id) for partition_id in request.partitions]
            keys = requested or sorted(committed.keys() | unstable)
            response = coordinator_pb2.FetchOffsetsResponse(
                offsets=[
                    _unstable(key, group) if key in unstable else _committed_offset(key, committed.get(key))
                    for key in keys
                ]
            )
            self._write([Change(GroupKey(group), None)])
            return response

        kind = coordinator_pb2.FetchOffsetsResponse
        self._decide(ticket, group, kind, decide, known_epoch=request.coordinator_epoch)

    def list(self, ticket: object, request: coordinator_pb2.ListGroupsRequest) -> None:
        """ListGroupsResponse."""

        def decide() -> coordinator_pb2.ListGroupsResponse:
            offsets_by_group = {group: self._offsets(group) for group in self._table.owners()}
            members = {group: len(self._members.view(group).members) for group in offsets_by_group}
            return coordinator_pb2.ListGroupsResponse(
                groups=[
                    coordinator_pb2.GroupListing(
                        group_id=group, partition_count=len(offsets), member_count=members[group]
                    )
                    for group, offsets in offsets_by_group.items()
                    if offsets or self._pending(group) or members[group]
                ]
            )

        self._decide(ticket, None, coordinator_pb2.ListGroupsResponse, decide)

    def describe(self, ticket: object, request: coordinator_pb2.DescribeGroupRequest, now: Moment) -> None:
        """DescribeGroupResponse."""
        group = request.group_id

        def decide() -> coordinator_pb2.DescribeGroupResponse:
            committed, pending = self._offsets(group), self._pending(group)
            view = self._members.view(group)
            self._require_known(group)
            return coordinator_pb2.DescribeGroupResponse(
                offsets=[_committed_offset(key, offset) for key, offset in sorted(committed.items())],
                pending=[_pending_offsets(producer_id, entry) for producer_id, entry in sorted(pending.items())],
                members=described_members(view, lambda member_id: self._members.silent_ms(group, member_id, now)),
                group_epoch=0 if view.group is None else view.group.epoch,
                assignor="" if view.group is None else view.group.assignor,
            )

        self._decide(ticket, group, coordinator_pb2.DescribeGroupResponse, decide)

    def delete(self, ticket: object, request: coordinator_pb2.DeleteGroupRequest) -> None:
        """DeleteGroupResponse. Not while a transaction has offsets of the group (Kafka deleted it: KAFKA-19163)."""
        group = request.group_id

        def decide() -> coordinator_pb2.DeleteGroupResponse:
            self._require_known(group)
            if self._members.view(group).members and not request.partitions:
                raise NonEmptyGroup(f"group '{group}' has members: end them first, or `minilog group remove-member`")
            if self._pending(group):
                raise UnstableOffsetCommit(f"group '{group}' has offsets of a transaction that has not ended: retry")
            committed = self._offsets(group)
            named = [PartitionKey.of(partition_id) for partition_id in request.partitions] or list(committed)
            self._write([Change(GroupKey(group, partition=key), None) for key in named if key in committed])
            return coordinator_pb2.DeleteGroupResponse()

        self._decide(ticket, group, coordinator_pb2.DeleteGroupResponse, decide)

    def drop_deleted_topics(self) -> None:
        """The image lacks topics that it had: their offsets are of no use."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        for group in self._table.owners():
            gone = [key for key in self._offsets(group) if not self._knows_topic(key.topic_id)]
            if not self._try_write([Change(GroupKey(group, partition=key), None) for key in gone]):
                return

    def committed_offsets(self) -> dict[str, dict[PartitionKey, int]]:
        """For people, without a decision: the offsets of each group as far as is known here, nothing while loading."""
        if self._state is not CoordinatorState.ACTIVE:
            return {}
        offsets_by_group = {group: self._offsets(group) for group in self._table.owners()}
        return {
            group: {key: offset.offset for key, offset in offsets.items()}
            for group, offsets in offsets_by_group.items()
            if offsets
        }

    def _require_known(self, group: str) -> None:
        if not self._offsets(group) and not self._pending(group) and not self._members.view(group).members:
            raise GroupIdNotFound(f"group '{group}' has committed nothing: see `minilog group list`")

    def _offsets(self, group: str) -> dict[PartitionKey, Offset]:
        return {
            key.partition: value
            for key, value in self._table.owned(group)
            if key.partition is not None and isinstance(value, Offset)
        }

    def _pending(self, group: str) -> dict[int, PendingCommit]:
        return {
            key.producer_id: value
            for key, value in self._table.owned(group)
            if key.producer_id is not None and isinstance(value, PendingCommit)
        }

    # -- the term

    def _activated(self, now: Moment) -> None:
        for group in self._table.owners():
            for producer_id in self._pending(group):
                self._have_pending(producer_id, group)
        self.drop_deleted_topics()
        self._members.activated(now)

    def _changed(self, changes: Sequence[GroupChange], high_watermark: int, now: Moment) -> None:
        for change in changes:
            producer_id = change.key.producer_id
            if producer_id is not None and self._table.get(change.key) is None:
                self._pending_ended(producer_id, change.key.owner)
        self._members.committed(changes, high_watermark, now)

    def _ended(self) -> None:
        super()._ended()
        self._members.ended(self._not_coordinator())


def _committed_offset(key: PartitionKey, offset: Offset | None) -> coordinator_pb2.CommittedOffset:
    if offset is None:
        return coordinator_pb2.CommittedOffset(partition_id=key.to_wire(), offset=NO_OFFSET, leader_epoch=-1)
    return coordinator_pb2.CommittedOffset(
        partition_id=key.to_wire(),
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        committed_us=offset.committed_us,
    )


def _unstable(key: PartitionKey, group: str) -> coordinator_pb2.CommittedOffset:
    error = UnstableOffsetCommit(
        f"group '{group}', partition {key.partition} of topic id {key.topic_id.hex()}: an offset was committed in a "
        "transaction that has not ended: retry"
    )
    answer = _committed_offset(key, None)
    answer.error.CopyFrom(wire_error(error))
    return answer


def _pending_offsets(producer_id: int, pending: PendingCommit) -> coordinator_pb2.PendingOffsets:
    return coordinator_pb2.PendingOffsets(
        transactional_id=pending.transactional_id,
        producer_id=producer_id,
        offsets=[
            coordinator_pb2.OffsetToCommit(
                partition_id=key.to_wire(),
                offset=offset.offset,
                leader_epoch=offset.leader_epoch,
                metadata=offset.metadata,
            )
            for key, offset in pending.offsets
        ],
    )
