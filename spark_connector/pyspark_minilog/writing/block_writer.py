"""The writer of `df.write` inside of a transaction block (docs/spec/connector.md § 6.7).

Its tasks write in the attempt of the block. Its commit makes nothing visible: it hands the winners over to the block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_minilog.error_display import hides_traceback
from pyspark_minilog.errors import refused
from pyspark_minilog.login.task_login import TaskLogin, as_task, task_login
from pyspark_minilog.options.table import SinkOptions
from pyspark_minilog.writing.block_folder import OPTION, BlockFolder
from pyspark_minilog.writing.block_protocol import TASKS_PER_WRITE, BegunBlock, hand_over
from pyspark_minilog.writing.replay_facts import facts_of_rows
from pyspark_minilog.writing.sink import SinkPlan
from pyspark_minilog.writing.sink_protocol import values_of
from pyspark_minilog.writing.write_task import Written, drained, reports_of, tell_of_old_rows, topic_ids, write_part

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_minilog.writing.typed_plan import TypedPlan

logger = logging.getLogger(__name__)


class BlockWriter(DataSourceArrowWriter):
    """The driver has one instance for the whole write, and Spark pickles it to the tasks."""

    def __init__(
        self,
        options: SinkOptions,
        plan: SinkPlan | TypedPlan,
        folder: BlockFolder,
        number: int,
        block: BegunBlock,
        login: TaskLogin | None,
    ) -> None:
        self._options = options
        self._plan = plan
        self._pending = (
            (plan.topic, plan.schema.version) if not isinstance(plan, SinkPlan) and plan.is_pending else None
        )
        self._folder = folder
        self._number = number
        self._block = block
        self._login = login

    @hides_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task. Raises InvalidOption, MinilogError."""
        from minilog.transactions import AlreadyCommitted

        if self._block.is_committed:
            return Written(drained(self._plan, iterator, AlreadyCommitted(self._block.attempt, None)))
        options = as_task(self._options, self._login)
        first_task = self._number * TASKS_PER_WRITE
        attempt, sums_rows = self._block.attempt, self._block.sums_rows
        return Written(write_part(options, self._plan, iterator, attempt, first_task=first_task, sums_rows=sums_rows))

    @hides_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Hand the winners over to the block. Raises InvalidOption, InconsistentWrite, MinilogError."""
        reports = reports_of(messages)
        facts = facts_of_rows(self._plan.columns, topic_ids(self._options, reports), values_of(reports))
        result = replace(hand_over(reports, self._block, facts), pending=self._pending)
        self._folder.hand_over(self._number, result)
        tell_of_old_rows(self._options, reports)

    @hides_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The block does not get this write, so it commits nothing."""
        self._folder.take_back(self._number)
        if self._pending is not None:
            from pyspark_minilog.writing.typed_sink import withdraw_schema

            topic, version = self._pending
            withdraw_schema(topic, self._options, version)


def begin_write(options: SinkOptions, schema: StructType, path: str) -> BlockWriter:
    """Begin a write of the block with this folder, on the driver and before any task. The block counts it first, so it
    commits nothing without it. Raises InvalidOption, InvalidRecord, MinilogError."""
    from pyspark_minilog.writing.typed_sink import plan_write

    folder = BlockFolder(path)
    number, block = folder.begin()
    if block.servers != servers_of(options):
        raise refused(
            OPTION,
            path,
            f"its block writes to the brokers {', '.join(block.servers)}, and this write names "
            f"{', '.join(servers_of(options))}. Take the connection from tx.options",
        )
    planned, login = plan_write(schema, options), task_login(options)
    plan = planned.plan if block.is_committed else planned.carry_out(is_pending=True)
    return BlockWriter(options, plan, folder, number, block, login)


def servers_of(options: SinkOptions) -> tuple[str, ...]:
    """The brokers that the options name, sorted."""
    from minilog.addresses import address_text
    from minilog.config import parse_config
    from pyspark_minilog.options.config_file import with_file

    servers = parse_config(with_file(options.client)).bootstrap_servers
    return tuple(sorted(address_text(server) for server in servers))
