"""How many things one message may name. Brokers refuse more, and a client splits a larger request.

A broker works on one event loop, and one message occupies it: each of these counts takes some ten milliseconds of it.
The brokers' table of all messages (minilog_broker.server.ingress.rules.request_limits) takes its numbers from here. The
senders split by the same numbers, so no user meets a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeVar

MAX_PRODUCE_ENTRIES = 500  # of one ProduceRequest: each is judged, given its place and answered
MAX_PAYLOADS = 1_000  # of one message of a stream: more than it has entries or runs (minilog.stream_messages)
MAX_POSITIONS = 1_000  # of one FetchRequest or ReplicateRequest; so many that are forgotten, or progress, besides
MAX_OFFSETS_ENTRIES = 1_000  # of one ListOffsetsRequest: each may search an index
MAX_STABLE_OFFSETS = 1_000  # of one AwaitStableOffsetsRequest: each is compared, and waited for
MAX_DELETION_ENTRIES = 1_000  # of one DeleteRecordsRequest
MAX_METADATA_TOPICS = 5_000  # of one GetMetadataRequest, by name or by id
MAX_ADMIN_TOPICS = 1_000  # to be created, deleted or altered by one request: each is a decision of the controller
MAX_NEW_PARTITIONS = 10_000  # of all topics that one request creates, or adds partitions to
MAX_NEW_FIELDS = 10_000  # of the schemas of all topics that one request creates or alters; one has a thousand at most
MAX_CONDITION_TERMS = 2_000  # of one condition, which is held against each batch; a set of values is one term of it
MAX_CONDITION_BYTES = 64 << 10  # of one condition, and of those of one FetchRequest where it has several
MAX_SELECTION_TERMS = 20_000  # of all conditions of one FetchRequest: a term is four bytes at least
MAX_SELECTION_VALUES = 64 << 10  # of all their sets: a value is one byte at least
MAX_ADMIN_PARTITIONS = 1_000  # to be elected or reassigned by one request
MAX_SECURITY_CHANGES = 1_000  # users, access rules or quotas that one request changes; names that it asks for
MAX_ACCESS_FILTERS = 20  # of one request: each is held against every rule
MAX_RENEWERS = 16  # of one delegation token
MAX_KEEPALIVE_MS = 6_000  # of a client's streams: a consumer that is silent for five of them is dropped
MAX_SUBSCRIBED_TOPICS = 10_000  # of one member of a group: its coordinator keeps their names
MAX_SUBSCRIPTION_BYTES = 64 << 10  # of one member, names and all: its coordinator keeps it, in memory and in its log
MAX_OWNED_PARTITIONS = 100_000  # of one member of a group: some mebibytes
MAX_LEASE_TOPICS = 100  # of one lease of a queue: each partition of each is looked into
MAX_QUEUE_TOPICS = 1_000  # of one queue, over all its leases: each partition of each is watched, and has a state
MAX_LEASE_PARTITIONS = 10_000  # of all topics of one lease: each leader is asked for news
MAX_SETTLEMENTS = 500  # of one SettleRequest, and leases of one RenewLeasesRequest
MAX_SETTLED_PARTITIONS = 100  # that one SettleRequest names, and one lease has: the ranges of each are copied
MAX_LETTERS = 500  # of one RedriveRequest, and of one transaction that writes letters anew
MAX_REASON_CHARACTERS = 500  # of a rejection that a queue keeps for the dead letter; more are cut
MAX_RELEASE_DELAY_MS = 24 * 3_600_000  # of a message of a queue
MAX_GROUP_OFFSETS = 10_000  # of one commit, which is one batch: about a mebibyte; and of one question for them

_Item = TypeVar("_Item")


def parts_of(items: Sequence[_Item], most: int) -> Iterator[Sequence[_Item]]:
    """The items in order, in parts of at most `most` items. Without items there is no part."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def settlement_parts(items: Sequence[_Item], partition_of: Callable[[_Item], Hashable]) -> Iterator[Sequence[_Item]]:
    """The settlements in order, each part for one request."""
    begin, partitions = 0, set[Hashable]()
    for end, item in enumerate(items):
        partition = partition_of(item)
        is_full = partition not in partitions and len(partitions) == MAX_SETTLED_PARTITIONS
        if end - begin == MAX_SETTLEMENTS or is_full:
            yield items[begin:end]
            begin, partitions = end, set()
        partitions.add(partition)
    if begin < len(items):
        yield items[begin:]
