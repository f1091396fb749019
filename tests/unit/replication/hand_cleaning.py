"""A cleaning by hand of a copy of the cores' tests: some offsets become one gap, and the log takes that over."""

from __future__ import annotations

from minilog.record_batch.gaps import joined_gap_batch
from minilog.record_batch.header import BatchHeader, decode_header
from minilog_broker.storage.compacted_segment import CompactedSegmentWriter
from tests.unit.replication.broker import KEY, BrokerOfCores


def carry_out(broker: BrokerOfCores, gaps: tuple[int, int]) -> None:
    """Carry out the begun point: the batches of the offsets from `gaps[0]` up to `gaps[1]` become one gap."""
    log = broker.logs[KEY]
    former = log.sealed_segments
    writer = CompactedSegmentWriter(
        broker.files,
        log.directory,
        KEY,
        former[0].name.next_generation(),
        former[-1].end.end_offset,
        interval_bytes=log.settings.index_interval_bytes,
    )
    headers = list[BatchHeader]()
    for segment in former:
        offset = segment.base_offset
        while offset < segment.end.end_offset:
            batch = segment.read(offset, 1, segment.end.end_offset)
            header = decode_header(batch)
            offset = header.next_offset
            if gaps[0] <= header.base_offset < gaps[1]:
                headers.append(header)
                continue
            _close(writer, headers)
            writer.write(batch)
    _close(writer, headers)
    log.replace_segments(former, writer.finish())
    log.finish_compaction(log.compaction.begun, log.begins)


def _close(writer: CompactedSegmentWriter, headers: list[BatchHeader]) -> None:
    if headers:
        writer.write(joined_gap_batch(KEY.topic_id, KEY.partition, headers[0], headers[-1]))
        headers.clear()
