"""One broker on a free port, for `minilog.testing`. It lives as long as the process that started it.

    python -m minilog_tools.single_broker PARENT_PID DIRECTORY [KEY=VALUE ...]

The process prints one line, `bootstrap.servers=HOST:PORT`, and goes on as `minilog broker`. When the parent ends, in
whatever way, the process removes DIRECTORY and ends.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import threading
import time

from minilog_tools.cli.main import main

_LOOK_EVERY_S = 0.2  # no signal announces a parent's end


def _end_with(parent: int, directory: pathlib.Path) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def run(parent: int, directory: pathlib.Path, assignments: list[str]) -> None:
    """Run the broker until a signal or the end of the parent."""
    threading.Thread(target=_end_with, args=(parent, directory), daemon=True, name="parent-watch").start()
    from minilog_tools.local_ports import HOST, free_ports

    (port,) = free_ports(1)
    print(f"bootstrap.servers={HOST}:{port}", flush=True)
    sys.argv = ["minilog", "broker", "--id", "1", "--listen", f"{HOST}:{port}", "--voters", f"1@{HOST}:{port}"]
    sys.argv += ["--data-dir", str(directory / "broker-1")]
    for assignment in assignments:
        sys.argv += ["-c", assignment]
    main()


if __name__ == "__main__":
    run(int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
