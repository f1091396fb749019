"""`transaction(spark, name, batch_id)`: one commit for several writes of a foreachBatch (docs/spec/connector.md § 6.7).

The block runs in the user's process on the driver. It enlists before any task, gives signs of life between the writes,
and commits the winners of all writes in one request. writing/block_protocol.py decides.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from pyspark_minilog.helpers import option_texts

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

    from minilog import TopicPartition
    from minilog.sync.transaction import JointTransaction
    from minilog.transactions import AlreadyCommitted, Attempt
    from minilog.types import GroupMetadata
    from pyspark_minilog.options.table import SinkOptions
    from pyspark_minilog.writing.block_folder import BlockFolder
    from pyspark_minilog.writing.replay_facts import Facts, MicroBatch

logger = logging.getLogger(__name__)

_CHECK_REPLAY = "checkReplay"


def transaction(spark: SparkSession, name: str, batch_id: int, **options: object) -> TransactionBlock:
    """One transaction for all writes of a `with` block, on the driver, for example in `foreachBatch`.

    `name` is the transactional id, and `batch_id` the number that foreachBatch gives. Each batch of a name is committed
    once. In the block, `df.write` takes `tx.options`. At the end of the block all rows and offsets become visible
    together. An exception in the block aborts them. If an earlier run has committed the batch, the block writes
    nothing.

    `options` are options of the sink for all writes, with an underscore for each dot:
    `transaction(spark, "orders", batch_id, bootstrap_servers="127.0.0.1:9092")`."""
    return TransactionBlock(spark, name, batch_id, option_texts(options))


class TransactionBlock:
    """The transaction of a `with` block. `transaction` makes it and describes it."""

    def __init__(self, spark: SparkSession, name: str, batch_id: int, options: Mapping[str, str]) -> None:
        self._micro_batch, self._checkpoint, self._offsets = _micro_batch(spark)
        self._attempt = _attempt(self._micro_batch, name, batch_id)
        self._given = dict(options)
        self._open: _OpenBlock | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of each write of the block: those of the block, and its transaction."""
        return {**_of_writes(self._given), "transaction": self._opened().folder.path}

    @property
    def is_committed(self) -> bool:
        """True if an earlier run has committed this batch. Then the block writes nothing, and may leave its writes
        out."""
        return self._opened().committed is not None

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        """Store the next offsets to read as part of the transaction: `group` gets them at its commit, and not before.

        Raises the error of the group's coordinator, and then the block commits nothing."""
        self._opened().commit_offsets(group, offsets)

    def __enter__(self) -> Self:
        from minilog.errors import InvalidTxnState

        if self._open is not None:
            raise InvalidTxnState(
                "this block has begun before: call pyspark_minilog.transaction() again for another one"
            )
        self._open = _OpenBlock.begin(self._attempt, self._given, self._micro_batch, self._checkpoint, self._offsets)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block = self._opened()
        try:
            if kind is not None:
                block.give_up()
                return
            try:
                block.end()
            except BaseException:
                block.give_up()
                raise
        finally:
            block.close()

    def _opened(self) -> _OpenBlock:
        if self._open is None:
            from minilog.errors import InvalidTxnState

            raise InvalidTxnState(
                "the block has not begun: use it as `with pyspark_minilog.transaction(spark, name, batch_id) as tx:`"
            )
        return self._open


class _OpenBlock:
    """A block that has begun. `committed` is the coordinator's answer if an earlier run has committed the batch.
    `of_batch` are the facts that Spark says of the micro-batch. `is_proven`: they show whether this is a replay
    without any row."""

    def __init__(
        self,
        attempt: Attempt,
        folder: BlockFolder,
        joint: JointTransaction,
        committed: AlreadyCommitted | None,
        of_batch: Facts,
        options: SinkOptions,
        *,
        is_proven: bool,
    ) -> None:
        self.folder = folder
        self.committed = committed
        self._attempt = attempt
        self._joint = joint
        self._of_batch = of_batch
        self._is_proven = is_proven
        self._options = options
        self._offsets: list[tuple[str, str, int, int]] = []

    @classmethod
    def begin(
        cls,
        attempt: Attempt,
        given: Mapping[str, str],
        micro_batch: MicroBatch,
        checkpoint: str | None,
        offsets: bytes,
    ) -> Self:
        """Enlist. `offsets` are those that Spark's JVM has read, as a digest. Raises InvalidOption, NotAReplay,
        MinilogError. A program may leave out a batch that is committed, so whose it is shows before the program sees
        it."""
        from minilog.sync.transaction import JointTransaction
        from minilog.transactions import AlreadyCommitted
        from pyspark_minilog.options.config_file import with_file
        from pyspark_minilog.writing.block_folder import BlockFolder
        from pyspark_minilog.writing.block_protocol import BegunBlock, check_replayed_block
        from pyspark_minilog.writing.block_writer import servers_of
        from pyspark_minilog.writing.replay_facts import facts_of_offsets
        from pyspark_minilog.writing.write_task import facts_of_batch, with_timeout

        options = _block_options(given)
        assert attempt.generation is not None
        facts = replace(facts_of_batch(micro_batch, options.checkpoint or checkpoint, attempt.generation), run=b"")
        facts = facts if facts.offsets else replace(facts, offsets=facts_of_offsets(offsets))
        folder, joint = BlockFolder.create(), JointTransaction(with_file(with_timeout(options)))
        try:
            answer = _enlist(joint, attempt)
            committed = answer if isinstance(answer, AlreadyCommitted) else None
            if committed is not None and options.check_replay:
                check_replayed_block(committed, facts, rows=None)
            sums_rows = not facts.offsets
            folder.open(BegunBlock(attempt, committed is not None, servers_of(options), sums_rows=sums_rows))
        except BaseException:
            joint.close()
            folder.remove()
            raise
        # Outside of a query name and number are all that there is.
        is_proven = bool(facts.offsets) or (micro_batch.is_known and micro_batch.query_id is None)
        return cls(attempt, folder, joint, committed, facts, options, is_proven=is_proven)

    def commit_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, int]) -> None:
        group_id = group if isinstance(group, str) else group.group_id
        if self.committed is None:
            self._joint.commit_offsets(group, offsets)
        self._offsets += [(group_id, place.topic, place.partition, offset) for place, offset in offsets.items()]

    def end(self) -> None:
        """Commit. Raises InconsistentWrite, NotAReplay, MinilogError, and UnknownOutcome if the outcome is not
        known."""
        from minilog.transactions import TransactionOutcome
        from pyspark_minilog.writing.block_protocol import (
            check_left_out,
            check_replayed_block,
            joint_end,
            pending_versions,
        )
        from pyspark_minilog.writing.replay_facts import is_compared
        from pyspark_minilog.writing.write_task import tell_of_a_replay

        begun_count, writes = self.folder.close()
        end, facts = joint_end(self._attempt, begun_count, writes, self._offsets, self._of_batch)
        if self.committed is not None:
            checks_replay = self._options.check_replay
            if begun_count and checks_replay:
                check_replayed_block(self.committed, facts, end.contents.rows)
            elif checks_replay and not self._is_proven:
                check_left_out(self.committed)
            compared = is_compared(self.committed, facts, is_stream=False)
            tell_of_a_replay(self.committed, end.contents.rows, is_compared=compared)
            return
        for topic, version in pending_versions(writes):
            from pyspark_minilog.writing.typed_sink import confirm_schemas

            confirm_schemas(topic, self._options, [version])
        outcome = self._joint.commit(end.winners, end.contents, coordinator_epoch=end.coordinator_epoch)
        if outcome is not TransactionOutcome.COMMITTED:
            logger.warning("%s is committed, but some partitions do not show it yet", self._attempt)

    def give_up(self) -> None:
        """Abort. If the coordinator does not answer, its time-out or the next attempt ends the transaction."""
        from minilog.errors import MinilogError
        from minilog.transactions import TransactionOutcome
        from pyspark_minilog.writing.block_protocol import pending_versions

        if self.committed is not None:
            return
        try:
            outcome = self._joint.abort()
        except MinilogError as error:
            sentence = "%s is not aborted yet, and its time-out or the next attempt will abort it: %s"
            logger.warning(sentence, self._attempt, error)
            return
        if outcome is TransactionOutcome.COMMITTED:
            logger.warning("%s was committed before the abort came: nothing has changed", self._attempt)
            return
        for topic, version in pending_versions(self.folder.close()[1]):
            from pyspark_minilog.writing.typed_sink import withdraw_schema

            withdraw_schema(topic, self._options, version)

    def close(self) -> None:
        """End the signs of life, and remove the folder. A write that still runs fails then."""
        try:
            self._joint.close()
        finally:
            self.folder.remove()


def _attempt(micro_batch: MicroBatch, name: str, batch_id: int) -> Attempt:
    """Raises InvalidOption if name or number cannot name a transaction. In a foreachBatch the run is Spark's run of the
    query: the coordinator knows a later one, and refuses this one from then on."""
    from pyspark_minilog.errors import InvalidOption
    from pyspark_minilog.writing.block_protocol import block_attempt

    if not isinstance(name, str) or not name.strip():
        raise InvalidOption("a block of pyspark_minilog.transaction needs a name: give the transactional id as text")
    if not isinstance(batch_id, int) or batch_id < 0:
        raise InvalidOption(
            f"a block of pyspark_minilog.transaction needs a whole number of 0 or more, not {batch_id!r}: give the "
            "batch id of foreachBatch"
        )
    run_id = str(uuid.UUID(micro_batch.run_id)) if micro_batch.run and micro_batch.run_id else str(uuid.uuid4())
    return block_attempt(name.strip(), batch_id, run_id, os.urandom(16))


def _micro_batch(spark: SparkSession) -> tuple[MicroBatch, str | None, bytes]:
    """The micro-batch of the foreachBatch that the block runs in, and the folder of its query's checkpoint, as far as
    Spark says them. If only Spark can read the folder: also the digest of the offsets. A session of Spark Connect does
    not say whether there is a micro-batch."""
    from pyspark_minilog.job_properties import BATCH_ID, QUERY_ID, RUN_ID
    from pyspark_minilog.writing.checkpoint import is_local
    from pyspark_minilog.writing.jvm_checkpoint import checkpoint_of, jvm_offsets_digest
    from pyspark_minilog.writing.replay_facts import MicroBatch

    context = getattr(spark, "sparkContext", None)
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if context is None or query_id is None:
        return MicroBatch(in_connect=context is None), None, b""
    micro_batch = MicroBatch(query_id, context.getLocalProperty(BATCH_ID), context.getLocalProperty(RUN_ID))
    checkpoint = checkpoint_of(spark, query_id)
    if checkpoint is None or micro_batch.batch_id is None or is_local(checkpoint):
        return micro_batch, checkpoint, b""
    return micro_batch, checkpoint, jvm_offsets_digest(spark, checkpoint, micro_batch.batch_id)


def _block_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of all writes. Raises InvalidOption, also for an option that no write of a block may have."""
    from pyspark_minilog.options.table import parse_sink_options

    parse_sink_options({**_of_writes(given), "transaction": "a new one"})
    return parse_sink_options(given)


def _of_writes(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() != _CHECK_REPLAY.lower()}


def _enlist(joint: JointTransaction, attempt: Attempt) -> object:
    from minilog.errors import StaleGeneration

    try:
        return joint.begin(attempt)
    except StaleGeneration as error:
        raise StaleGeneration(
            f"{error} If two blocks of pyspark_minilog.transaction in one foreachBatch have this name, give each a "
            "name of its own"
        ) from None
