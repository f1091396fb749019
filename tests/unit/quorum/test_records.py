"""The metadata log's batches: one decision to a batch, readable from their bytes alone."""

from __future__ import annotations

import pytest

from minilog.errors import CorruptMessage
from minilog.v1 import peer_pb2
from minilog_broker.quorum.records import (
    decode_leader_change,
    decode_run,
    encode_leader_change,
    encode_records,
    place,
)
from tests.unit.quorum.cluster import TIMESTAMP_US, topic_record

ADDRESS = peer_pb2.VoterAddress(broker_id=1, host="host1", port=9092)


def run() -> bytes:
    first = place(encode_leader_change(1, 3, [ADDRESS], TIMESTAMP_US), 5, 3)
    second = place(encode_records([topic_record("a"), topic_record("b")], TIMESTAMP_US), 6, 3)
    return b"".join(bytes(each.buffers[0]) for each in (first, second))


def test_a_decision_comes_back_with_its_offsets_and_its_epoch() -> None:
    change, decision = decode_run(run())
    assert (change.base_offset, change.end_offset, change.records) == (5, 6, ())
    assert (decision.base_offset, decision.end_offset, decision.epoch) == (6, 8, 3)
    assert decision.records == (topic_record("a"), topic_record("b"))


def test_a_leader_change_names_the_leader_its_epoch_and_the_voters() -> None:
    change = decode_leader_change(encode_leader_change(1, 3, [ADDRESS], TIMESTAMP_US))
    assert (change.leader_id, change.leader_epoch, list(change.voters)) == (1, 3, [ADDRESS])


def test_a_damaged_batch_is_not_replayed() -> None:
    damaged = bytearray(run())
    damaged[-20] ^= 1
    with pytest.raises(CorruptMessage):
        list(decode_run(bytes(damaged)))
