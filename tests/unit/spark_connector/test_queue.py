"""A queue as the source of a stream, and its settlement by the sink: what is decided without a cluster."""

from __future__ import annotations

import json
import pathlib
import uuid
from dataclasses import replace

import pytest

from minilog.transactions import AlreadyCommitted, Contents, Enlistment
from minilog.v1 import common_pb2, queue_pb2
from pyspark_minilog.errors import InvalidOption, NotAReplay
from pyspark_minilog.options.offsets import Partition, SourceOffset
from pyspark_minilog.options.table import (
    parse_batch_options,
    parse_sink_options,
    parse_stream_options,
    parse_stream_sink_options,
)
from pyspark_minilog.queues.offset import LeasedOffsets, QueueLease, QueueOffset, gathered_parts, leased_ranges
from pyspark_minilog.queues.planned_batches import BatchState, forget_batch, note_batch, noted_batch
from pyspark_minilog.queues.replay import Commitment, is_read_again
from pyspark_minilog.queues.settlement import queue_batch
from pyspark_minilog.reading.planning import PlannedRange
from pyspark_minilog.writing.checkpoint import BatchOffsets, UnknownForm, batch_offsets, offsets_digest, read_offsets
from pyspark_minilog.writing.replay_facts import NO_FACTS, facts_of_offsets, facts_of_rows
from pyspark_minilog.writing.sink_protocol import Abort, End, TaskReport, commit_decision, stream_attempt
from tests.rules import proves

pytestmark = proves("SPQ.1", "SPQ.11")

ORDERS_ID, BILLS_ID = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
A0, A1, B0 = Partition("orders", 0), Partition("orders", 1), Partition("bills", 0)
SOURCE = {"bootstrap.servers": "localhost:9092", "subscribe": "orders", "queue": "jobs"}
SINK = {"bootstrap.servers": "localhost:9092", "topic": "done"}
ATTEMPT = stream_attempt("query", 7, "run", b"attempt")
BEGUN = Enlistment(ATTEMPT, 5, 0, 3, 60_000)


def leased(partition: Partition, first: int, last: int) -> LeasedOffsets:
    return LeasedOffsets(partition, first, last, delivery_count=1, leader_epoch=4)


OFFSET = QueueOffset(
    "jobs",
    (
        QueueLease(17, (leased(A0, 5, 9), leased(B0, 0, 0))),
        QueueLease(18, (leased(A0, 10, 19), leased(A0, 30, 31), leased(A1, 3, 4))),
    ),
    {"orders": ORDERS_ID, "bills": BILLS_ID},
    {"bills": 2},
)


class TestOffsets:
    def test_an_offset_survives_the_checkpoint(self) -> None:
        written = json.dumps(OFFSET.to_json())
        read = QueueOffset.from_json(json.loads(written))
        assert json.dumps(read.to_json()) == written
        assert (read.lease_ids, read.count, read.schema_versions) == ([17, 18], 20, {"bills": 2})
        assert read.name() == OFFSET.name() != QueueOffset("jobs").name()

    def test_an_offset_without_leases_is_no_empty_object(self) -> None:
        empty = QueueOffset("jobs").to_json()
        assert empty["__queue"] == "jobs"
        assert QueueOffset.from_json(empty) == QueueOffset("jobs")

    def test_the_checkpoint_of_another_kind_of_query_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="without the option 'queue'"):
            QueueOffset.from_json({"__topic_ids": {}, "orders": {"0": 5}})
        with pytest.raises(InvalidOption, match="a query that reads queue 'jobs'"):
            SourceOffset.from_json(OFFSET.to_json())

    @pytest.mark.parametrize("leases", [[], {"x": {}}, {"1": {"orders": [[0, 1]]}}, {"1": {"orders": 5}}, None])
    def test_leases_in_another_form_are_refused(self, leases: object) -> None:
        with pytest.raises(InvalidOption, match="the checkpoint has leases of a queue that minilog cannot read"):
            QueueOffset.from_json({"__queue": "jobs", "leases": leases, "topic_ids": {}})

    def test_a_lease_comes_with_the_names_of_its_topics(self) -> None:
        part = common_pb2.PartitionId(topic_id=uuid.UUID(ORDERS_ID).bytes, partition=1)
        answered = queue_pb2.LeasedRange(
            partition_id=part, first_offset=3, last_offset=4, delivery_count=1, leader_epoch=4
        )
        answer = queue_pb2.LeaseResponse(lease_id=9, ranges=[answered])
        assert leased_ranges(answer, {part.topic_id: "orders"}) == QueueLease(9, (leased(A1, 3, 4),))

    def test_each_range_is_settled_under_its_lease(self) -> None:
        settlements = OFFSET.settlements(queue_pb2.VERDICT_ACCEPT)
        assert {settlement.verdict for settlement in settlements} == {queue_pb2.VERDICT_ACCEPT}
        assert [(one.lease_id, one.first_offset, one.last_offset) for one in settlements] == [
            (17, 5, 9), (17, 0, 0), (18, 10, 19), (18, 30, 31), (18, 3, 4)
        ]  # fmt: skip
        assert settlements[1].partition_id.topic_id == uuid.UUID(BILLS_ID).bytes


class TestPlans:
    def test_neighbouring_ranges_are_read_as_one(self) -> None:
        assert OFFSET.planned() == [
            PlannedRange(B0, 0, 1, BILLS_ID),
            PlannedRange(A0, 5, 20, ORDERS_ID),
            PlannedRange(A0, 30, 32, ORDERS_ID),
            PlannedRange(A1, 3, 5, ORDERS_ID),
        ]

    def test_small_ranges_share_a_task_which_reads_a_partition_once_at_a_time(self) -> None:
        bills, first, second, other = OFFSET.planned()
        assert gathered_parts(OFFSET.planned()) == [((bills, first, other), (second,))]

    def test_a_large_range_has_a_task_of_its_own(self) -> None:
        large = PlannedRange(A1, 100, 5000)
        assert gathered_parts([large, PlannedRange(B0, 0, 9)]) == [((large,),), ((PlannedRange(B0, 0, 9),),)]


class TestBatches:
    """The sink reads from the checkpoint what a micro-batch has of its queue."""

    OTHER = '{"__topic_ids": {}, "flights": {"0": 7}}'
    LINE = json.dumps(OFFSET.to_json())

    def batch(self, *offsets: str) -> BatchOffsets:
        return BatchOffsets(offsets, b"digest")

    def test_the_offset_of_the_queue_alone_makes_a_batch_differ(self) -> None:
        before = self.batch(self.OTHER, json.dumps(QueueOffset("jobs").to_json()))
        batch = queue_batch("jobs", self.batch(self.OTHER, self.LINE), before)
        assert batch.leased == QueueOffset.from_json(OFFSET.to_json())
        assert batch.digest == b"digest"

    def test_a_batch_in_which_other_sources_alone_have_news_has_no_messages(self) -> None:
        assert queue_batch("jobs", self.batch("-", self.LINE), self.batch(self.OTHER, self.LINE)).leased is None

    def test_the_first_batch_has_no_batch_before_it(self) -> None:
        assert queue_batch("jobs", self.batch(self.LINE), None).leased is not None

    def test_exactly_one_source_must_read_the_queue(self) -> None:
        with pytest.raises(InvalidOption, match="no source of the query reads this queue"):
            queue_batch("others", self.batch(self.OTHER, "-", "7", self.LINE), None)
        with pytest.raises(InvalidOption, match="2 sources of the query read this queue"):
            queue_batch("jobs", self.batch(self.LINE, self.LINE), None)

    @proves("SPQ.3")
    @pytest.mark.parametrize(("form", "names"), [("v1", ("", "")), ("v2", ("0:", "orders:"))])
    def test_the_offsets_are_those_of_the_file_in_both_of_sparks_forms(
        self, tmp_path: pathlib.Path, form: str, names: tuple[str, str]
    ) -> None:
        written = tmp_path / "offsets" / "3"
        written.parent.mkdir()
        written.write_text(f'{form}\n{{"batchWatermarkMs":0}}\n{names[0]}-\n{names[1]}{self.LINE}')
        for checkpoint in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
            read = batch_offsets(checkpoint, 3)
            assert read == BatchOffsets(("-", self.LINE), offsets_digest(str(tmp_path), 3))
            assert batch_offsets(checkpoint, 2) is None
        assert read is not None
        assert queue_batch("jobs", read, self.batch("-", "-")).leased == QueueOffset.from_json(OFFSET.to_json())

    def test_a_form_that_is_not_known_is_told_from_a_file_that_is_damaged(self) -> None:
        with pytest.raises(UnknownForm, match="v9"):
            read_offsets(b"v9\n{}\n-")
        with pytest.raises(ValueError, match="has no name of a source: -"):
            read_offsets(b"v2\n{}\n-")


class TestDecisions:
    def test_a_batch_without_rows_is_committed_where_it_settles(self) -> None:
        decision = commit_decision([TaskReport(0, attempt=ATTEMPT)], begun=BEGUN, batch_id=7, ends_empty=True)
        assert decision == End(ATTEMPT, (), Contents(0, NO_FACTS.stored()), 3)
        assert commit_decision([TaskReport(0)], begun=BEGUN, batch_id=7) == Abort(ATTEMPT, 3)

    @pytest.mark.parametrize("held", [True, False])
    @pytest.mark.parametrize("now", [True, False])
    def test_a_replay_has_the_same_offsets_and_rows_settled_or_not(self, held: bool, now: bool) -> None:
        facts = replace(facts_of_rows(["value"], [b"t" * 16]), offsets=facts_of_offsets(b"d" * 32))
        before = AlreadyCommitted(ATTEMPT, Contents(4, replace(facts, settles=held).stored()))
        reports, facts = [TaskReport(4, before)], replace(facts, settles=now)
        assert commit_decision(reports, begun=before, batch_id=7, facts=facts, ends_empty=True) is None
        with pytest.raises(NotAReplay):
            commit_decision([TaskReport(3, before)], begun=before, batch_id=7, facts=facts, ends_empty=True)
        other = replace(facts, offsets=facts_of_offsets(b"o" * 32))
        with pytest.raises(NotAReplay, match="come from other offsets"):
            commit_decision(reports, begun=before, batch_id=7, facts=other, ends_empty=True)

    def test_source_and_sink_of_a_driver_learn_of_each_other(self, tmp_path: pathlib.Path) -> None:
        driver = {"SPARK_LOCAL_DIRS": f"{tmp_path}/one,{tmp_path}/two"}
        assert noted_batch("batch", driver) is None
        for state in BatchState:
            note_batch("batch", state, driver)
            assert noted_batch("batch", driver) is state
        assert noted_batch("batch", {"SPARK_LOCAL_DIRS": f"{tmp_path}/other"}) is noted_batch("batch", {}) is None
        forget_batch("batch", driver)
        forget_batch("batch", driver)
        assert noted_batch("batch", driver) is None

    @pytest.mark.parametrize(
        ("before", "held", "ended"),
        [
            (Commitment.NONE, True, False),
            (Commitment.SETTLED, True, True),
            (Commitment.UNSETTLED, False, False),
        ],
    )
    def test_a_replay_reads_what_the_first_run_has_read(self, before: Commitment, held: bool, ended: bool) -> None:
        assert is_read_again(before, is_held=True) is held
        assert is_read_again(before, is_held=False) is ended


class TestOptions:
    def test_the_queue_of_a_stream(self) -> None:
        options = parse_stream_options({**SOURCE, "queue": " jobs ", "maxoffsetspertrigger": "10"})
        assert (options.queue, options.limits.max_offsets, options.fail_on_data_loss) == ("jobs", 10, False)
        assert parse_stream_options({**SOURCE, "subscribe": "a"}).queue == "jobs"

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("startingOffsets", "earliest"),
            ("startingTimestamp", "1"),
            ("minOffsetsPerTrigger", "5"),
            ("maxBytesPerTrigger", "5"),
            ("failOnDataLoss", "true"),
            ("minilog.group.id", "g"),
            ("groupIdPrefix", "g"),
            ("minilog.isolation.level", "read_uncommitted"),
        ],
    )
    def test_options_without_meaning_for_a_queue_are_refused(self, option: str, value: str) -> None:
        with pytest.raises(InvalidOption, match=f"option '{option}' is '{value}': a queue|a leased"):
            parse_stream_options({**SOURCE, option: value})

    def test_a_queue_has_whole_topics_and_a_name_and_is_for_streams(self) -> None:
        assigned = {"bootstrap.servers": "a:1", "assign": '{"a":[0]}', "queue": "jobs"}
        for given, remedy in (
            (assigned, "leases records of whole topics"),
            ({**SOURCE, "queue": " "}, "give the name of a queue"),
            ({**SOURCE, "minilog.queue": "jobs"}, "use the option queue"),
        ):
            with pytest.raises(InvalidOption, match=remedy):
                parse_stream_options(given)
        with pytest.raises(InvalidOption, match="a batch settles nothing"):
            parse_batch_options(SOURCE)

    def test_the_queue_that_a_sink_settles(self) -> None:
        options = parse_stream_sink_options({**SINK, "settlequeue": " jobs ", "checkpointlocation": "/c"})
        assert (options.settle_queue, options.checkpoint) == ("jobs", "/c")
        assert parse_stream_sink_options(SINK).settle_queue is None

    def test_a_sink_settles_a_stream_in_a_transaction_and_knows_its_checkpoint(self) -> None:
        for given, remedy in (
            ({**SINK, "settleQueue": "jobs"}, "Give .option\\('checkpointLocation', ...\\), too"),
            ({**SINK, "settleQueue": "jobs", "checkpointlocation": "/c", "exactlyOnce": "false"}, "exactlyOnce=false"),
            ({**SINK, "settleQueue": "", "checkpointlocation": "/c"}, "give the name of a queue"),
        ):
            with pytest.raises(InvalidOption, match=remedy):
                parse_stream_sink_options(given)
        with pytest.raises(InvalidOption, match="a batch write has no messages of a queue"):
            parse_sink_options({**SINK, "settleQueue": "jobs"})
