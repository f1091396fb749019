"""Every file that storage reads, with any bytes in it: what it says, or a refusal that is known; nothing else.

Two ways to be wrong: damaged, so that no checksum fits, and wrong under a right checksum, as an older or a broken
version of ours would write. A file is read as far as it may be long, never as far as it says.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import MinilogError
from minilog_broker.storage import durable_file
from minilog_broker.storage.checkpoint import read_checkpoint
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.epoch_cache import EpochCache
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.index import SegmentEnd, SparseIndex, read_index_files, read_stamp, write_index_files
from minilog_broker.storage.producer_snapshots import load_snapshot
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.segment_name import SegmentName
from minilog_broker.storage.topic_id_file import read_topic_id
from tests.unit.fuzz.messages import fuzzing
from tests.unit.storage.logs import DIRECTORY, SETTINGS, contents, fill, header, open_log
from tests.world.disk import MemoryDisk

BASE = f"{DIRECTORY}/00000000000000000000"
_EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
_words = st.lists(
    st.sampled_from(_EDGES).flatmap(lambda edge: st.sampled_from([edge, edge + 1 if edge < 2**62 else edge])),
    max_size=12,
).map(lambda numbers: b"".join(struct.pack("<q", number) for number in numbers))
_json = st.sampled_from(
    [
        b"{}",
        b"[]",
        b"null",
        b'{"topic_id":"zz","topic_name":"t","partition":0}',
        b'{"topic_id":1}',
        b'{"topic_id":"00","topic_name":"t","partition":1e99}',
        b'{"log_start_offset":-1,"high_watermark":-5,"durable_end_offset":9999999999999999999,"flush_on_append":true}',
        b'{"log_start_offset":9e18,"high_watermark":0,"durable_end_offset":0,"flush_on_append":1}',
        b'{"broker_id":-1,"directory_id":"","cluster_id":null}',
        b'{"broker_epoch":"x"}',
        b"[" * 10_000,
        b"\xff\xfe{}",
    ]
)
_anything = st.one_of(st.binary(max_size=120), _words, _json)


def files_with(path: str, content: bytes, *, sealed: bool) -> MemoryDisk:
    files = MemoryDisk()
    files.make_dir("/data")
    files.make_dir(DIRECTORY)
    if sealed:
        write_durable_file(files, path, content)
    else:
        files.open(path, create=True).write([content], 0)
    return files


@fuzzing(200)
@given(_anything, st.booleans())
def test_small_files_are_understood_or_corrupt(content: bytes, sealed: bool) -> None:
    files = files_with(f"{DIRECTORY}/topic-id", content, sealed=sealed)
    files.rename(f"{DIRECTORY}/topic-id", f"{DIRECTORY}/checkpoint")
    for read in (read_checkpoint, lambda files, directory: read_durable_file(files, f"{directory}/checkpoint")):
        try:
            found = read(files, DIRECTORY)
        except CorruptFile:
            continue
        assert found is None or sealed
    files.rename(f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/topic-id")
    try:
        topic = read_topic_id(files, DIRECTORY)
    except CorruptFile:
        return
    assert topic is None or sealed


@fuzzing(200)
@given(_anything, st.sampled_from(["broker.json", "boot", "clean-stop", "lock"]), st.booleans())
def test_a_data_directory_opens_or_is_refused(content: bytes, name: str, sealed: bool) -> None:
    files = files_with(f"/data/{name}", content, sealed=sealed)
    try:
        directory = DataDirectory.open(files, "/data", 1, "cluster", boot_id="boot", process_id=7)
    except MinilogError:
        assert name == "broker.json", "what is only a hint must not stop a broker"
        return
    assert directory.broker_id == 1
    assert directory.clean_stop_epoch is None or (name == "clean-stop" and sealed)
    directory.close()


@fuzzing(200)
@given(_anything)
def test_epochs_are_decoded_or_refused(content: bytes) -> None:
    try:
        cache = EpochCache.decode(content)
    except ValueError:
        return
    assert cache.encode() == content


_counts = st.integers(0, 6) | st.sampled_from([2**16 - 1])
_producers = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(-(2**15), 2**15 - 1), _counts, st.lists(st.sampled_from(_EDGES[:5]), max_size=6)
    )
).map(
    lambda producers: b"".join(
        struct.pack("<qqhH", producer_id, 0, epoch, count)
        + b"".join(struct.pack("<iiqq", each, each, each, each) for each in batches)
        for producer_id, epoch, count, batches in producers
    )
)


_producer_counts = st.integers(0, 6) | st.just(2**32 - 1)
_words = st.lists(st.sampled_from(_EDGES[:5]), max_size=14).map(lambda words: struct.pack(f"<{len(words)}q", *words))
_transactions = st.tuples(_producer_counts, _producer_counts, _producer_counts, _words).map(
    lambda drawn: struct.pack("<III", *drawn[:3]) + drawn[3]
)


@fuzzing(300)
@given(
    st.one_of(_producers, _anything),
    _producer_counts,
    st.one_of(_transactions, _anything),
    st.booleans(),
    st.booleans(),
)
def test_producer_snapshots_are_decoded_or_refused(
    content: bytes, count: int, transactions: bytes, right: bool, right_size: bool
) -> None:
    """Under a right checksum too: however many producers, batches or transactions it says there are."""
    content = struct.pack("<II", count, len(content) if right_size else count) + content + transactions
    crc = google_crc32c.value(content) if right else 1
    state = ProducerState()
    state.apply(header(0, producer=(1, 0, 0)))
    try:
        state.restore(struct.pack("<4sI", b"MLP2", crc) + content)
    except CorruptFile:
        assert len(state) == 1, "refused, and half taken over"
        return
    for producer_id in (0, 1, 2):
        if (entry := state.entry(producer_id)) is not None:
            state.check(header(0, producer=(producer_id, entry.producer_epoch, 0)))
    assert state.transactions.last_stable_offset(5) <= 5
    state.transactions.aborted_within(0, 10)
    ProducerState().restore(state.snapshot())


@fuzzing(200)
@given(st.integers(0, 2**16 - 1), st.integers(0, 400), st.sampled_from([".index", ".timeindex"]), st.booleans())
def test_an_index_is_right_or_not_there(word: int, position: int, suffix: str, resealed: bool) -> None:
    files, index = files_with(f"{BASE}.log", b"", sealed=False), SparseIndex()
    for number in range(5):
        index.add(number * 10, number * 100, number * 1000)
    end = SegmentEnd(50, 500, 5000)
    write_index_files(files, DIRECTORY, SegmentName(0), end, index)
    path = BASE + suffix
    forged = bytearray(files.content(path))
    struct.pack_into("<H", forged, position % (len(forged) - 1), word)
    if resealed:  # the stamp's own checksum is right again
        struct.pack_into("<I", forged, 44, google_crc32c.value(bytes(forged[:44])))
    changed = bytes(forged) != files.content(path)
    files.damage(path, 0, bytes(forged))
    found = read_index_files(files, DIRECTORY, SegmentName(0), end)
    if changed and not resealed:
        assert found is None
    elif found is not None:
        assert (found.offsets, found.positions) == (index.offsets, index.positions)
    stamp = read_stamp(files, DIRECTORY, SegmentName(0))
    assert stamp is None or isinstance(stamp, SegmentEnd)


_FILES = [
    "leader-epoch",
    "checkpoint",
    "manifest",
    "topic-id",
    "damaged",
    "00000000000000000000.log",
    "00000000000000000004.snapshot",
]


@fuzzing(150)
@given(st.sampled_from(_FILES), _anything, st.booleans(), st.booleans(), st.sampled_from((300, 1000)))
def test_a_log_opens_or_is_refused_whatever_one_of_its_files_says(
    name: str, content: bytes, sealed: bool, unclean: bool, segment_bytes: int
) -> None:
    """It opens: and then it is a prefix of what it was, or says that it is damaged, or knows no better. Of one segment,
    and of several, which a manifest names."""
    files = MemoryDisk()
    settings = replace(SETTINGS, segment_bytes=segment_bytes)
    log = open_log(files, settings=settings)
    batches = fill(log, 6, payload=bytes(40))
    log.write_producer_snapshot(4, ProducerState().snapshot())
    log.close(clean=True)
    path = f"{DIRECTORY}/{name}"
    if files.exists(path):
        files.cut(path, 0)
    if sealed and name != "00000000000000000000.log":
        write_durable_file(files, path, content)
    else:
        files.open(path, create=True).write([content], 0)
    try:
        log = open_log(files, unclean=unclean, settings=settings)
    except MinilogError:
        assert name == "topic-id"
        return
    found = contents(log)
    recover_producer_state(log)
    said = sealed and name == "checkpoint"  # a checkpoint that is whole is believed
    assert found == batches[: len(found)] or said
    assert len(found) == len(batches) or log.recovery.damaged or said
    assert log.log_start_offset <= log.high_watermark <= log.durable_end_offset <= log.log_end_offset
    assert load_snapshot(files, DIRECTORY, log.log_end_offset) is None or True


def test_no_more_is_read_than_a_durable_file_may_be_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size gone wrong on the disk makes nobody read terabytes."""
    monkeypatch.setattr(durable_file, "MAX_BYTES", 100)
    files = files_with(f"{DIRECTORY}/checkpoint", b"x" * 101, sealed=True)
    with pytest.raises(CorruptFile):
        read_durable_file(files, f"{DIRECTORY}/checkpoint")
