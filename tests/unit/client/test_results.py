"""What users get: rows of the promised schema, records, futures; and when silence is too long."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading
import weakref

import pyarrow as pa
import pytest

import minilog
from minilog.aio.consumer_shell import is_an_answer
from minilog.consumer.decode import POLL_SCHEMA, DecodeOutcome, as_polled, decode, records
from minilog.consumer.partition import ConsumerSession, FetchedRun
from minilog.errors import TimedOut
from minilog.net.stream import Silence
from minilog.partition_key import PartitionKey
from minilog.producer.futures import BatchOutcome, RecordFuture
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.record_batch.header import placement
from minilog.types import RecordMetadata, TopicPartition
from tests.unit.client.brokers import TOPIC_ID


def run_of(*batches: pa.RecordBatch, start: int = 0) -> FetchedRun:
    placed, offset = b"", 0
    for columns in batches:
        batch = build_batch(TOPIC_ID, 1, columns)
        placed += placement(batch, offset, 0) + batch[24:]
        offset += columns.num_rows
    key = PartitionKey(TOPIC_ID, 1)
    return FetchedRun(
        TopicPartition("flights", 1), key, 1, start, offset, 0, placed, frozenset(), ConsumerSession(1, 1)
    )


COLUMNS = records_to_columns([b"a", None], [b"k", None], [1_500, 2_999], [[("h", b"1"), ("n", None)], None])


def test_polled_batches_have_exactly_the_spark_sources_schema() -> None:
    run = run_of(COLUMNS)
    [rows] = [as_polled(run, found, include_headers=False) for found in decode(run, 1 << 30).rows]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    types = [pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32()]
    assert rows.schema == POLL_SCHEMA == pa.schema(list(zip(names, types, strict=True)))
    assert rows.column("topic").to_pylist() == ["flights"] * 2
    assert rows.column("partition").to_pylist() == [1, 1]
    assert rows.column("timestampType").to_pylist() == [0, 0]


def test_a_poll_that_took_markers_alone_goes_on_until_it_is_late() -> None:
    """In a program's own thread, too: there is no event loop to ask for the time."""
    run = run_of(COLUMNS)
    nothing, rows = DecodeOutcome([(run, [])], [], []), DecodeOutcome([(run, [COLUMNS])], [], [])
    assert [is_an_answer([run], nothing, is_late=late) for late in (False, True)] == [False, True]
    assert is_an_answer([run], rows, is_late=False)
    assert is_an_answer([], DecodeOutcome([], [], []), is_late=False)


def test_headers_are_added_where_wanted() -> None:
    run = run_of(COLUMNS)
    [rows] = [as_polled(run, found, include_headers=True) for found in decode(run, 1 << 30).rows]
    assert rows.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None]


def test_records_have_milliseconds_and_pairs_for_headers() -> None:
    run = run_of(COLUMNS)
    found = [record for rows in decode(run, 1 << 30).rows for record in records(run, rows)]
    assert found[0] == ("flights", 1, 0, 1, b"k", b"a", [("h", b"1"), ("n", None)])
    assert found[1] == ("flights", 1, 1, 2, None, None, [])


def test_small_batches_are_joined_and_cut_at_the_start() -> None:
    run = run_of(COLUMNS, COLUMNS, COLUMNS, start=1)
    [rows] = decode(run, 1 << 30).rows
    assert rows.column("offset").to_pylist() == [1, 2, 3, 4, 5]


def joined(count: int) -> tuple[list[concurrent.futures.Future[RecordMetadata]], BatchOutcome]:
    outcome = BatchOutcome(lambda number, base_offset: RecordMetadata("flights", 0, base_offset + number, 0))
    futures = [RecordFuture() for _ in range(count)]
    for number, future in enumerate(futures):
        outcome.add(future, number)
    return [*futures], outcome


def test_futures_of_one_batch_are_done_together() -> None:
    futures, outcome = joined(3)
    places = [RecordMetadata("flights", 0, offset, 0) for offset in range(3)]
    called: list[int] = []
    futures[2].add_done_callback(lambda future: called.append(future.result().offset))
    with pytest.raises(concurrent.futures.TimeoutError):
        futures[0].result(0)
    assert not futures[0].cancel()
    outcome.delivered(0)
    assert [future.result(0) for future in futures] == places
    assert called == [2]
    assert concurrent.futures.wait(futures, 0).not_done == set()


def test_threads_that_wait_for_futures_of_one_batch_all_get_their_own() -> None:
    futures, outcome = joined(4)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(future.result, 10) for future in futures]
        outcome.delivered(0)
        assert [one.result(10).offset for one in waiting] == [0, 1, 2, 3]


def test_the_lock_of_a_batch_is_that_of_all() -> None:
    """concurrent.futures.wait takes those of all its futures in the order of their ids: with a lock for each batch two
    threads took A and B, and B and A."""
    (first,), _ = joined(1)
    (second,), _ = joined(1)
    taken: list[bool] = []
    with first._condition:
        other = threading.Thread(target=lambda: taken.append(second._condition.acquire(blocking=False)))
        other.start()
        other.join(10)
    assert taken == [False]


def test_a_batch_that_is_done_holds_none_of_its_futures() -> None:
    futures, outcome = joined(2)
    offsets: list[int] = []
    futures[1].add_done_callback(lambda future: offsets.append(future.result().offset))
    outcome.delivered(7)
    assert offsets == [8]
    seen = weakref.ref(futures.pop())
    assert seen() is None


def test_futures_fail_together() -> None:
    futures, outcome = joined(2)
    seen = threading.Event()
    futures[0].add_done_callback(lambda _: seen.set())
    outcome.failed(TimedOut("as the test says"))
    assert seen.is_set()
    for future in concurrent.futures.as_completed(futures, 0):
        with pytest.raises(TimedOut):
            future.result(0)


def test_a_callback_is_called_once_by_whoever_finishes_or_adds_it() -> None:
    """A thread adds callbacks while another finishes the batch, a hundred times."""
    for _ in range(100):
        futures, outcome = joined(50)
        called: list[int] = []
        begun = threading.Event()

        def finish(outcome: BatchOutcome = outcome, begun: threading.Event = begun) -> None:
            begun.wait(10)
            outcome.delivered(0)

        finishing = threading.Thread(target=finish)
        finishing.start()
        for number, future in enumerate(futures):
            future.add_done_callback(lambda done, into=called: into.append(done.result().offset))  # type: ignore[misc]
            if number == 10:
                begun.set()
        finishing.join(10)
        assert sorted(called) == list(range(50))


def test_a_callback_may_add_another_to_its_own_future_which_is_called_at_once_and_no_other() -> None:
    """Whoever added one to a future that was done called back those of others, each in the one before: a thousand deep,
    and under whatever lock the thread held."""
    futures, outcome = joined(1000)
    called: list[str] = []

    def first(number: int) -> None:
        called.append(f"{number} begins")
        futures[number].add_done_callback(lambda _: called.append(f"{number} again"))
        called.append(f"{number} ends")

    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, number=number: first(number))  # type: ignore[misc]
    outcome.delivered(0)
    assert called == [f"{number} {what}" for number in range(1000) for what in ("begins", "again", "ends")]


def test_a_callback_that_fails_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    futures, outcome = joined(2)
    called: list[int] = []
    futures[0].add_done_callback(lambda _: 1 // 0)
    futures[0].add_done_callback(lambda _: called.append(1))
    outcome.delivered(0)
    assert called == [1]
    assert "ZeroDivisionError" in caplog.text
    futures[1].add_done_callback(lambda _: called.append(2))
    assert called == [1, 2]


def test_silence_is_five_keepalives_long() -> None:
    silence = Silence(100.0, 0.0)
    silence.heard(0.0)
    assert not any(silence.is_too_long(now) for now in (100.0, 200.0, 300.0, 400.0, 500.0))
    assert silence.is_too_long(600.0)


def test_a_side_silent_for_two_keepalives_is_doubted() -> None:
    silence = Silence(1_000.0, 0.0)
    silence.heard(0.0)
    assert not silence.is_doubtful(2_000.0)
    assert silence.is_doubtful(2_001.0)
    silence.heard(2_500.0)
    assert not silence.is_doubtful(3_000.0)


def test_an_opened_stream_has_a_message_within_two_keepalives() -> None:
    assert not Silence(1_000.0, 0.0).is_too_long(2_000.0)
    silence = Silence(1_000.0, 0.0)
    assert [silence.is_too_long(now) for now in (1_000.0, 2_000.0, 2_500.0)] == [False, False, True]


def test_after_a_late_look_of_our_own_nobody_is_late() -> None:
    silence = Silence(100.0, 0.0)
    silence.heard(0.0)
    assert not silence.is_too_long(5_000.0)
    assert not silence.is_too_long(5_100.0)


def test_importing_minilog_is_light() -> None:
    code = "import sys, minilog; print(sorted({'grpc', 'pyarrow', 'asyncio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_promised_name_is_there() -> None:
    for name in [*minilog.__all__, "OffsetOutOfRange", "Closed"]:
        assert getattr(minilog, name) is not None
    wrong = "Produser"  # a type checker finds the name itself
    with pytest.raises(AttributeError, match="no attribute 'Produser'"):
        getattr(minilog, wrong)
