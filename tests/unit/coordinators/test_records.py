"""Keys and values of the internal topics' logs: what is written is read again, and anything else is damage."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog.transactions.messages import Contents
from minilog.v1 import coordinator_records_pb2
from minilog_broker.coordinators.groups.records import (
    Given,
    GroupEpoch,
    GroupKey,
    GroupPart,
    Held,
    Member,
    Offset,
    PendingCommit,
    Target,
    group_codec,
)
from minilog_broker.coordinators.record_kinds import RecordCodec
from minilog_broker.coordinators.table import Change, LogRecord
from minilog_broker.coordinators.transactions.records import (
    Fate,
    Registered,
    TransactionKey,
    TransactionMetadata,
    TransactionProducer,
    transaction_codec,
)
from tests.rules import proves

ids = st.binary(min_size=1, max_size=36)
numbers = st.integers(0, 2**63 - 1)
partitions = st.builds(PartitionKey, st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1))
transactions = st.builds(
    TransactionMetadata,
    generation=numbers,
    attempt_id=ids,
    run_id=ids,
    timeout_ms=st.integers(0, 86_400_000),
    expires=st.booleans(),
    updated_us=numbers,
    attempt_over=st.booleans(),
    last_committed=st.none() | numbers,
    superseded_runs=st.lists(ids, max_size=3).map(tuple),
    superseded_attempts=st.lists(ids, max_size=3).map(tuple),
    last_contents=st.none() | st.builds(Contents, numbers, st.binary(max_size=64)),
)
producers = st.builds(
    TransactionProducer,
    generation=numbers,
    attempt_id=ids,
    task=st.none() | st.integers(0, 2**31 - 1),
    fate=st.sampled_from(Fate),
    partitions=st.lists(st.builds(Registered, partitions, st.integers(-1, 2**31 - 1)), max_size=3).map(tuple),
)
offsets = st.builds(Offset, numbers, st.integers(-1, 2**31 - 1), st.text(max_size=9), numbers, numbers)
pendings = st.builds(
    PendingCommit,
    st.text(max_size=9),
    st.integers(0, 99),
    st.lists(st.tuples(partitions, offsets), max_size=3).map(tuple),
)
names = st.text(min_size=1, max_size=20)
transaction_changes = st.builds(
    Change, st.builds(TransactionKey, names, st.none()), st.none() | transactions
) | st.builds(Change, st.builds(TransactionKey, names, numbers), st.none() | producers)
group_changes: st.SearchStrategy[Any] = st.builds(Change, names.map(lambda name: GroupKey(name)), st.none())
group_changes |= st.builds(
    Change, st.builds(lambda name, key: GroupKey(name, partition=key), names, partitions), st.none() | offsets
)
group_changes |= st.builds(
    Change, st.builds(lambda name, number: GroupKey(name, producer_id=number), names, numbers), st.none() | pendings
)
givens = st.dictionaries(partitions, st.builds(Given, st.integers(1, 99), st.integers(0, 99)), max_size=3)
parts_of_groups: list[tuple[GroupPart, st.SearchStrategy[Any]]] = [
    (GroupPart.GROUP, st.builds(GroupEpoch, st.integers(0, 99), names)),
    (
        GroupPart.MEMBER,
        st.builds(
            Member,
            st.lists(names, max_size=3).map(tuple),
            instance_id=names,
            rack=names,
            assignor=names,
            rebalance_timeout_ms=st.integers(0, 2**31 - 1),
            client_id=names,
            client_host=names,
            is_away=st.booleans(),
        ),
    ),
    (GroupPart.TARGET, st.builds(Target, st.frozensets(partitions, max_size=3))),
    (GroupPart.HELD, st.builds(Held, st.integers(0, 99), givens, givens)),
]
for of_part, values in parts_of_groups:
    owners = names if of_part is not GroupPart.GROUP else st.just("")
    keys = st.builds(
        lambda name, owner, part: GroupKey(name, part=part, member_id=owner), names, owners, st.just(of_part)
    )
    group_changes |= st.builds(Change, keys, st.none() | values)
CODECS: list[RecordCodec[Any, Any]] = [transaction_codec(), group_codec()]


@given(transaction_changes)
@settings(max_examples=60, deadline=None)
def test_records_of_transactions_are_read_as_written(change: Change[Any, Any]) -> None:
    assert transaction_codec().decode(transaction_codec().encode(change)) == change


@given(group_changes)
@settings(max_examples=60, deadline=None)
def test_records_of_groups_are_read_as_written(change: Change[Any, Any]) -> None:
    assert group_codec().decode(group_codec().encode(change)) == change


@pytest.mark.parametrize("codec", CODECS)
@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
@settings(max_examples=150, deadline=None)
def test_bytes_that_are_no_record_are_damage_and_nothing_worse(
    codec: RecordCodec[Any, Any], key: bytes, value: bytes | None
) -> None:
    try:
        change = codec.decode(LogRecord(key, value))
    except (CorruptMessage, UnsupportedVersion):
        return
    assert codec.decode(codec.encode(change)) == change


def test_a_state_that_is_not_known_is_damage() -> None:
    key = transaction_codec().encode(Change(TransactionKey("t", 1), None)).key
    with pytest.raises(CorruptMessage, match="cannot be read"):
        transaction_codec().decode(LogRecord(key, b""))


FIELD_OF_LATER = b"\xfa\x01\x02hi"


@proves("DK.2")
@pytest.mark.parametrize(
    ("codec", "change"),
    [
        (transaction_codec(), Change(TransactionKey("t", None), None)),
        (transaction_codec(), Change(TransactionKey("t", 1), None)),
        (group_codec(), Change(GroupKey("g", producer_id=0), None)),
        (group_codec(), Change(GroupKey("g", part=GroupPart.GROUP), None)),
        *(
            (group_codec(), Change(GroupKey("g", part=part, member_id="m"), None))
            for part in GroupPart
            if part is not GroupPart.GROUP
        ),
        (group_codec(), Change(GroupKey("g", partition=PartitionKey(bytes(16), 0)), None)),
    ],
)
def test_a_field_of_a_later_version_is_no_damage_and_is_not_dropped(
    codec: RecordCodec[Any, Any], change: Change[Any, Any]
) -> None:
    key = codec.encode(change).key
    for record in (LogRecord(key + FIELD_OF_LATER, None), LogRecord(key, FIELD_OF_LATER)):
        with pytest.raises(UnsupportedVersion, match="was written by a later version"):
            codec.decode(record)


def test_a_state_of_a_later_version_is_no_damage() -> None:
    key = transaction_codec().encode(Change(TransactionKey("t", 1), None)).key
    value = coordinator_records_pb2.ProducerRecord(state=9).SerializeToString()  # type: ignore[arg-type]
    with pytest.raises(UnsupportedVersion, match="was written by a later version"):
        transaction_codec().decode(LogRecord(key, value))


def test_a_key_is_always_written_the_same_way() -> None:
    """Else it could not be compacted by key."""
    for codec, key in ((transaction_codec(), TransactionKey("t", 0)), (group_codec(), GroupKey("g", producer_id=0))):
        keys = {codec.encode(Change(key, None)).key for _ in range(3)}  # type: ignore[arg-type]
        assert len(keys) == 1
        (only,) = keys
        assert codec.decode(LogRecord(only, None)).key == key
