"""A broker whose disk is slow to read: `python slow_disk.py SECONDS FLAG PART ARGUMENTS...`, as `minilog ARGUMENTS...`.

While there is a file FLAG, nothing of a segment with PART in its path is in memory, and each read of one takes SECONDS.
Which thread reads stands in the file FLAG.reads.
"""

from __future__ import annotations

import pathlib
import sys
import threading
import time

from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import OsFile
from minilog_tools.cli.main import main


def slow_down(seconds: float, flag: pathlib.Path, part: str) -> None:
    """From now on, whenever the flag is there."""
    pread, read_now = OsFile.pread, OsFile.read_now

    def is_slow(file: OsFile) -> bool:
        path = repr(file)
        return part in path and ".log" in path and flag.exists()

    def slow_pread(self: OsFile, size_bytes: int, position: int) -> bytes:
        if is_slow(self):
            with flag.with_suffix(".reads").open("a") as reads:
                reads.write(f"{threading.current_thread().name}\n")
            time.sleep(seconds)
        return pread(self, size_bytes, position)

    def cold_read_now(self: OsFile, size_bytes: int, position: int) -> Buffer | None:
        return None if is_slow(self) else read_now(self, size_bytes, position)

    OsFile.pread, OsFile.read_now = slow_pread, cold_read_now  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down(float(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
    sys.argv = ["minilog", *sys.argv[4:]]
    main()
