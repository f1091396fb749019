"""Producing inside transactions: under the enlisted producer id, all or nothing (docs/spec/connector.md § 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import InvalidTxnState, ProducerFenced, TimedOut, UnknownTopicId
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Attributes, decode_header
from minilog.transactions.messages import Attempt, Enlistment, WrittenPartition
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC_ID, Brokers
from tests.unit.client.producing import Producing

FENCED = common_pb2.ERROR_CODE_PRODUCER_FENCED
TOO_LARGE = common_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
TIMED_OUT_THERE = common_pb2.ERROR_CODE_REQUEST_TIMED_OUT
NOT_ENOUGH_REPLICAS = common_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS


def enlistment(producer_id: int = 1001, generation: int = 0) -> Enlistment:
    return Enlistment(Attempt("t", generation, b"a", b"r"), producer_id, 0, 7, 60_000)


def transacting(partitions: int = 1, **settings: object) -> Producing:
    """A producer inside its first transaction."""
    cluster = Producing(Brokers(partitions), transactional_id="t", **settings)
    cluster.sender.begin(enlistment())
    return cluster


def test_outside_of_a_transaction_nothing_is_taken() -> None:
    cluster = Producing(Brokers(), transactional_id="t")
    with pytest.raises(InvalidTxnState, match=r"transactional.id='t' and no transaction is open"):
        cluster.send(b"a")


def test_no_producer_id_is_asked_for() -> None:
    cluster = transacting()
    cluster.send(b"a")
    cluster.run(1_000)
    assert cluster.ids_given == 0


def test_each_batch_shows_that_its_producer_id_was_given_to_us() -> None:
    cluster = Producing(Brokers(2), transactional_id="t")
    for proof in (b"of the first", b"of the second"):
        cluster.sender.begin(replace(enlistment(), producer_proof=proof))
        cluster.send(b"a")
        cluster.send(b"b", partition=1)
        cluster.run()
        cluster.sender.end()
        assert [entry.producer_proof for _, entry, _ in cluster.sent] == [proof, proof]
        cluster.sent.clear()


def test_the_proof_of_a_producer_is_in_no_log_of_a_program() -> None:
    assert "secret" not in repr(replace(enlistment(), producer_proof=b"secret"))


def test_batches_are_transactional_and_name_whom_the_leader_asks() -> None:
    cluster = transacting()
    future = cluster.send(b"a")
    cluster.run()
    assert future.result(0).offset == 0
    ((_, entry, batch),) = cluster.sent
    header = decode_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1001, 0, 0)
    assert header.attributes & Attributes.TRANSACTIONAL
    assert (entry.transaction.transactional_id, entry.transaction.coordinator_epoch) == ("t", 7)


def test_batches_of_other_producers_are_not() -> None:
    cluster = Producing(Brokers())
    cluster.send(b"a")
    cluster.run()
    ((_, entry, batch),) = cluster.sent
    assert not entry.HasField("transaction")
    assert not decode_header(batch).attributes & Attributes.TRANSACTIONAL


def test_the_end_says_where_was_written_how_far() -> None:
    cluster = transacting(partitions=3)
    for _ in range(3):
        cluster.send(b"a", partition=0)
    cluster.send(b"b", partition=2)
    cluster.run()
    assert set(cluster.sender.end()) == {WrittenPartition(TOPIC_ID, 0, 2), WrittenPartition(TOPIC_ID, 2, 0)}


def test_a_transaction_in_which_nothing_was_sent_wrote_nowhere() -> None:
    assert transacting().sender.end() == ()


def test_each_transaction_has_its_producer_id_and_begins_at_sequence_0() -> None:
    cluster = transacting()
    cluster.send(b"a")
    cluster.run()
    cluster.sender.end()
    with pytest.raises(InvalidTxnState):
        cluster.send(b"between")
    cluster.sender.begin(enlistment(producer_id=1002, generation=1))
    cluster.send(b"b")
    cluster.run()
    headers = [decode_header(batch) for _, _, batch in cluster.sent]
    assert [(each.producer_id, each.base_sequence) for each in headers] == [(1001, 0), (1002, 0)]


def test_batches_refused_for_a_while_are_sent_again_within_the_transaction() -> None:
    cluster = transacting()
    cluster.brokers.script.extend([NOT_ENOUGH_REPLICAS, TIMED_OUT_THERE])
    future = cluster.send(b"a")
    cluster.run(2_000)
    assert future.result(0).offset == 0
    assert cluster.sender.identity.failure is None
    assert cluster.sender.end() == (WrittenPartition(TOPIC_ID, 0, 0),)


def test_a_fenced_producer_says_who_took_over_and_fails_all_of_the_transaction() -> None:
    cluster = transacting(partitions=2)
    cluster.brokers.script.append(FENCED)
    first, second = cluster.send(b"a"), cluster.send(b"b")
    cluster.run()
    assert isinstance(first.exception(0), ProducerFenced)
    assert "a newer writer has taken over transactional id 't', or its transaction timed" in str(first.exception(0))
    assert isinstance(second.exception(0), InvalidTxnState)
    with pytest.raises(ProducerFenced, match="can only be aborted"):
        cluster.send(b"c", partition=1)
    assert isinstance(cluster.sender.identity.failure, ProducerFenced)
    assert cluster.accumulator.used_bytes() == 0


def test_a_batch_that_fails_ends_the_others_in_all_partitions() -> None:
    cluster = transacting(partitions=2)
    cluster.hold = True
    waiting = cluster.send(b"a", partition=1)
    cluster.run()
    cluster.hold = False
    cluster.brokers.script.append(TOO_LARGE)
    cluster.send(b"b", partition=0)
    cluster.run()
    assert isinstance(waiting.exception(0), InvalidTxnState)
    assert "MESSAGE_TOO_LARGE" in str(waiting.exception(0))
    cluster.release()  # a late answer is nobody's
    cluster.run()


@pytest.mark.parametrize("code", ["DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH"])
def test_where_the_leader_and_we_have_parted_the_transaction_fails_and_no_other_id_is_taken(code: str) -> None:
    cluster = transacting()
    cluster.brokers.script.append(common_pb2.ErrorCode.Value("ERROR_CODE_" + code))
    future = cluster.send(b"a")
    cluster.run(1_000)
    assert future.exception(0) is not None
    assert cluster.sender.identity.failure is not None
    assert cluster.ids_given == 0
    assert len(cluster.sent) == 1


def test_a_delivery_that_times_out_fails_the_transaction() -> None:
    cluster = transacting(delivery_timeout_ms=500)
    cluster.down.update({1, 2})
    future = cluster.send(b"a")
    cluster.run(1_000)
    assert isinstance(future.exception(0), TimedOut)
    assert isinstance(cluster.sender.identity.failure, TimedOut)


def test_a_topic_that_is_created_again_fails_the_transaction() -> None:
    cluster = transacting()
    cluster.down.update({1, 2})
    future = cluster.send(b"a")
    cluster.run(100)
    cluster.brokers.told_topic_id = b"x" * 16
    cluster.brokers.metadata_offset += 1
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.run(100)
    assert isinstance(future.exception(0), UnknownTopicId)
    assert isinstance(cluster.sender.identity.failure, UnknownTopicId)


def test_an_abort_ends_what_is_under_way_and_the_next_transaction_begins_anew() -> None:
    cluster = transacting()
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run()
    cluster.sender.identity.fail(InvalidTxnState("aborted by the program"))
    cluster.run()
    assert isinstance(future.exception(0), InvalidTxnState)
    cluster.sender.end()
    cluster.release()
    cluster.sender.begin(enlistment(producer_id=1002, generation=1))
    again = cluster.send(b"b")
    cluster.run()
    assert again.result(0).offset == 1  # behind the first, which its leader took: nobody will see that one
    assert cluster.sender.end() == (WrittenPartition(TOPIC_ID, 0, 0),)


def test_only_one_batch_is_out_until_the_first_of_each_transaction_is_acknowledged() -> None:
    cluster = transacting()
    cluster.send(b"a")
    cluster.run()
    cluster.sender.end()
    cluster.sender.begin(enlistment(producer_id=1002))
    cluster.hold = True
    for _ in range(3):
        cluster.send(b"b")
    cluster.run()
    assert len(cluster.held) == 1
    assert cluster.cache.leader(PartitionKey(TOPIC_ID, 0)) is not None
