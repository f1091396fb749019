"""A stop signal may come at any moment of a wait."""

from __future__ import annotations

import subprocess
import sys

SIGNALLED_WHILE_WAITING = """
import os, signal, threading
from minilog_broker.stop_signal import StopSignal
stop = StopSignal([signal.SIGTERM])
assert not stop.wait(0.0)
process = os.getpid()
for _ in range(2_000):
    thread = threading.Thread(target=os.kill, args=(process, signal.SIGTERM))
    thread.start()
    stop.wait(0.001)
    thread.join()
print(stop.wait(1.0))
"""


def test_a_signal_in_the_middle_of_a_wait_is_no_deadlock() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_WHILE_WAITING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")
