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

from collections.abc import Callable, Sequence

from minilog.errors import (
    GroupIdNotFound,
    MinilogError,
    NonEmptyGroup,
    ProducerFenced,
    UnstableOffsetCommit,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState
from minilog_broker.coordinators.coordinator_effects import (
    CoordinatorAnswer,
    MemberAnswer,
    Moment,
    RegisterProducer,
)
from minilog_broker.coordinators.groups import offsets as rules
from minilog_broker.coordinators.groups.committers import check_committer
from minilog_broker.coordinators.groups.describing import described_members
from minilog_broker.coordinators.groups.members import Members, Surroundings
from minilog_broker.coordinators.groups.membership import Topics
from minilog_broker.coordinators.groups.presences import MemberSettings
from minilog_broker.coordinators.groups.records import (
    GroupChange,
    GroupKey,
    GroupValue,
    Offset,
    Pending,
    group_codec,
)
from minilog_broker.coordinators.groups.registrations import Registrations, WaitingCommit
from minilog_broker.coordinators.table import AppendRecords, Change

NO_OFFSET = -1


class GroupCoordinator(Coordinator[GroupKey, GroupValue]):
    """The coordinator that keeps the committed offsets of groups, and their members.

    `knows_topic(topic_id)`: whether this broker's image, as it is now, has the topic. `topics`: those of the image.
    `allows_members`: whether the level of the cluster has groups with members.
    """

    def __init__(
        self,
        name: str,
        append: AppendRecords,
        knows_topic: rules.KnowsTopic,
        topics: Topics,
        allows_members: Callable[[], bool],
        settings: MemberSettings,
    ) -> None:
        super().__init__(name, group_codec(), append)
        self._knows_topic = knows_topic
        self._registrations = Registrations()
        around = Surroundings(
            self._table, self._write, self._answer_member, topics, allows_members, lambda: self._leader_epoch
        )
        self._members = Members(settings, around)
        self._groups_of: dict[int, set[str]] = {}  # in which a producer has, or had, something pending

    # -- members

    def member(self, stream: object, request: coordinator_pb2.MemberRequest, host: str, now: Moment) -> None:
        """MemberResponses, as they come, on `stream`; a refusal is the last."""
        try:
            self._require_active(request.coordinator_epoch)
            self._members.request(stream, request, host, now)
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

    def commit(self, ticket: object, request: coordinator_pb2.CommitOffsetsRequest, now: Moment) -> None:
        """CommitOffsetsResponse."""
        if request.HasField("transaction"):
            self._commit_in_transaction(WaitingCommit(ticket, request), now)
            return

        def decide() -> coordinator_pb2.CommitOffsetsResponse:
            rules.check_commit(request, self._knows_topic)
            check_committer(self._table, request)
            self._write(rules.commit(request, self._table.end_offset, now.wall_us))
            return coordinator_pb2.CommitOffsetsResponse()

        kind = coordinator_pb2.CommitOffsetsResponse
        self._decide(ticket, request.group_id, kind, decide, known_epoch=request.coordinator_epoch)

    def _commit_in_transaction(self, commit: WaitingCommit, now: Moment) -> None:
        request, producer_id = commit.request, commit.request.transaction.producer_id
        try:
            self._require_active(request.coordinator_epoch)
            rules.check_commit(request, self._knows_topic)
            check_committer(self._table, request)
            groups = self._groups_of.get(producer_id, ())
            if rules.last_sequence(self._table, producer_id, groups) == rules.NO_SEQUENCE:
                number = self._registrations.wait(producer_id, commit)
                if number is not None:
                    transactional_id = request.transaction.transactional_id
                    self._effects.append(RegisterProducer(number, transactional_id, producer_id))
                return
        except MinilogError as error:
            self._refuse(commit, error)
            return
        self._decide_pending(commit, now)

    def registered(self, number: int, error: MinilogError | None, now: Moment) -> None:
        """RegisterProducer was answered. `error` None: the coordinator has it, durably."""
        for commit in self._registrations.answered(number):
            if error is None:
                self._decide_pending(commit, now)
            else:
                self._refuse(commit, error)

    def _decide_pending(self, commit: WaitingCommit, now: Moment) -> None:
        request = commit.request

        def decide() -> coordinator_pb2.CommitOffsetsResponse:
            check_committer(self._table, request)
            producer_id = request.transaction.producer_id
            groups = self._groups_of.get(producer_id, set())
            self._write(rules.commit_in_transaction(self._table, request, groups, now.wall_us))
            self._groups_of.setdefault(producer_id, set()).add(request.group_id)
            return coordinator_pb2.CommitOffsetsResponse()

        self._decide(commit.ticket, None, coordinator_pb2.CommitOffsetsResponse, decide)

    def _refuse(self, commit: WaitingCommit, error: MinilogError) -> None:
        self._answer(commit.ticket, None, self._refusal(coordinator_pb2.CommitOffsetsResponse, error))

    # -- the end of transactions

    def write_markers(self, ticket: object, request: coordinator_pb2.WriteMarkersRequest) -> None:
        """WriteMarkersResponse: what they end has ended."""

        def decide() -> coordinator_pb2.WriteMarkersResponse:
            for marker in request.markers:
                for commit in self._registrations.ended(marker.producer_id):
                    self._refuse(commit, ProducerFenced(f"the transaction of producer {marker.producer_id} has ended"))
            changes = rules.end_producers(
                self._table, request.markers, lambda p: self._groups_of.get(p, ()), self._knows_topic
            )
            if not changes and request.markers:  # an empty record: the answer rests on it
                changes = [Change(GroupKey("", producer_id=request.markers[0].producer_id), None)]
            self._write(changes)
            return coordinator_pb2.WriteMarkersResponse()

        self._decide(ticket, None, coordinator_pb2.WriteMarkersResponse, decide)

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

    def _pending(self, group: str) -> dict[int, Pending]:
        return {
            key.producer_id: value
            for key, value in self._table.owned(group)
            if key.producer_id is not None and isinstance(value, Pending)
        }

    # -- the term

    def _activated(self, now: Moment) -> None:
        for group in self._table.owners():
            for producer_id in self._pending(group):
                self._groups_of.setdefault(producer_id, set()).add(group)
        self.drop_deleted_topics()
        self._members.activated(now)

    def _changed(self, changes: Sequence[GroupChange], high_watermark: int, now: Moment) -> None:
        for change in changes:
            producer_id = change.key.producer_id
            if producer_id is not None and self._table.get(change.key) is None:
                groups = self._groups_of.get(producer_id, set())
                groups.discard(change.key.owner)
                if not groups:
                    self._groups_of.pop(producer_id, None)
        self._members.committed(changes, high_watermark, now)

    def _ended(self) -> None:
        self._groups_of.clear()
        self._members.ended(self._not_coordinator())
        response = self._refusal(coordinator_pb2.CommitOffsetsResponse, self._not_coordinator())
        self._effects.extend(CoordinatorAnswer(commit.ticket, response) for commit in self._registrations.take_all())


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


def _pending_offsets(producer_id: int, pending: Pending) -> coordinator_pb2.PendingOffsets:
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
