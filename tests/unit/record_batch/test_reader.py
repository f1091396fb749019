"""The reader: no copy, no batch taken for what it is not, and what it is told to skip."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage, ResourceExhausted
from minilog.record_batch.builder import build_batch, build_control_batch
from minilog.record_batch.header import Attributes, decode_header
from minilog.record_batch.reader import arrow_errors, offsets_of, read_control, read_payload, read_records
from tests.unit.record_batch.batches import (
    NOW_US,
    PARTITION,
    TOPIC_ID,
    at_offset,
    full_batch,
    full_columns,
    patched,
    sealed,
)


def test_an_uncompressed_batch_is_read_without_a_copy() -> None:
    batch = full_batch(1000)
    whole = pa.py_buffer(batch)
    records = read_payload(batch)
    for column in records.columns:
        for buffer in column.buffers():
            assert buffer is None or buffer.size == 0 or 0 <= buffer.address - whole.address < whole.size


def test_the_records_keep_their_bytes_alive() -> None:
    [records] = read_records(bytearray(full_batch()), TOPIC_ID, PARTITION)
    assert records.column("value")[9].as_py().endswith(b"value-9")


@pytest.mark.parametrize("shift", range(8))
def test_a_batch_is_read_wherever_it_lies_in_memory(shift: int) -> None:
    [records] = read_records(memoryview(bytes(shift) + full_batch())[shift:], TOPIC_ID, PARTITION)
    assert records.drop_columns("offset").to_pylist() == full_columns().to_pylist()


def test_a_column_left_out_is_all_null() -> None:
    batch = build_batch(TOPIC_ID, PARTITION, full_columns().select(["value"]), timestamp_us=NOW_US)
    records = read_payload(batch)
    assert (records.column("key").null_count, records.column("headers").null_count) == (10, 10)


def test_control_batches_are_skipped_and_take_an_offset() -> None:
    control = build_control_batch(TOPIC_ID, PARTITION, b"x", timestamp_us=NOW_US)
    run = at_offset(control, 4) + at_offset(full_batch(2), 5) + at_offset(control, 7) + at_offset(full_batch(1), 8)
    found = read_records(run, TOPIC_ID, PARTITION)
    assert [records.column("offset").to_pylist() for records in found] == [[5, 6], [8]]


def test_a_damaged_batch_is_never_skipped() -> None:
    control_now = patched(full_batch(), 28, "I", int(Attributes.CONTROL))
    shorter_now = patched(full_batch(), 32, "II", 2, 1)
    for damaged in (control_now, shorter_now):
        with pytest.raises(CorruptMessage, match="checksum"):
            read_records(damaged, TOPIC_ID, PARTITION, start_offset=5)


def test_a_run_of_another_partition_is_refused_unless_the_crc_was_checked_before() -> None:
    with pytest.raises(CorruptMessage, match="not meant for partition 9"):
        read_records(full_batch(), TOPIC_ID, 9)
    assert len(read_records(full_batch(), TOPIC_ID, 9, check_crc=False)) == 1


def test_the_last_offset_there_can_be_is_read() -> None:
    last = 2**63 - 2
    [records] = read_records(at_offset(full_batch(1), last), TOPIC_ID, PARTITION)
    assert records.column("offset").to_pylist() == [last]


def test_a_control_batch_is_no_data_batch_nor_the_other_way_round() -> None:
    control = build_control_batch(TOPIC_ID, PARTITION, b"x", timestamp_us=NOW_US)
    with pytest.raises(CorruptMessage, match="not read as records"):
        read_payload(control)
    with pytest.raises(CorruptMessage, match="no control batch"):
        read_control(full_batch())


def test_offsets_are_not_made_for_more_records_than_a_batch_can_have() -> None:
    header = decode_header(full_batch(3))
    rows = offsets_of(b"", header, 1, 3)
    assert rows is not None
    assert rows.to_pydict() == {"offset": [1, 2]}
    for strange in (
        replace(header, record_count=1 << 30, last_offset_delta=(1 << 30) - 1),
        replace(header, attributes=header.attributes | Attributes.CONTROL),
    ):
        with pytest.raises(CorruptMessage):
            offsets_of(b"", strange, 0, strange.next_offset)


def test_a_control_record_that_is_cut_is_refused() -> None:
    control = build_control_batch(TOPIC_ID, PARTITION, b"x", timestamp_us=NOW_US)
    with pytest.raises(CorruptMessage, match="cut"):
        read_control(sealed(patched(control, 72, "I", 5)))
    with pytest.raises(CorruptMessage, match="cut"):
        read_control(sealed(control[:72]))


def test_an_aborted_batch_is_skipped_by_its_header_and_its_payload_is_not_looked_at() -> None:
    of_seven = full_batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    attributes = decode_header(of_seven).attributes | Attributes.TRANSACTIONAL
    aborted = sealed(patched(of_seven, 28, "I", int(attributes))[:-16] + b"no Arrow is this")
    run = at_offset(aborted, 0) + at_offset(full_batch(1), 2)
    [records] = read_records(run, TOPIC_ID, PARTITION, aborted_producer_ids={7, 9})
    assert records.column("offset").to_pylist() == [2]
    outside = at_offset(of_seven, 0) + at_offset(full_batch(1), 2)
    assert len(read_records(outside, TOPIC_ID, PARTITION, aborted_producer_ids={7})) == 2


@pytest.mark.parametrize(
    "wanting",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 134217728 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_codec_missing_in_the_process_is_not_blamed_on_the_batch(wanting: Exception) -> None:
    with pytest.raises(ResourceExhausted, match="is not damaged") as raised, arrow_errors(decode_header(full_batch())):
        raise wanting
    assert raised.value.retriable


@pytest.mark.parametrize(
    "invalid", [pa.ArrowInvalid("Column 0: Offset invariant failure"), OSError("ZSTD decompression failed")]
)
def test_a_payload_that_arrow_calls_invalid_is_corrupt(invalid: Exception) -> None:
    with pytest.raises(CorruptMessage, match="is not valid"), arrow_errors(decode_header(full_batch())):
        raise invalid


_UNDER_A_LIMIT = """
import resource, sys
import pyarrow as pa
from minilog.errors import ResourceExhausted
from minilog.record_batch.builder import build_batch
from minilog.record_batch.reader import read_records
batch = build_batch(bytes(16), 0, pa.record_batch({"value": [bytes(60 << 20)]}), compression="zstd", timestamp_us=0)
read_records(build_batch(bytes(16), 0, pa.record_batch({"value": [bytes(60)]}), timestamp_us=0), bytes(16), 0)
pa.default_memory_pool().release_unused()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
try:
    read_records(batch, bytes(16), 0)
except ResourceExhausted as error:
    print("told:", error)
"""


def test_a_process_without_memory_says_so() -> None:
    """Once: it was reported as CorruptMessage, and after three of them the topic was blamed."""
    environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", _UNDER_A_LIMIT], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.startswith("told: the record batch at offset 0"), (ran.stdout, ran.stderr)
