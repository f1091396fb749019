"""A stop signal may come at any moment of a wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


_SWALLOWED = """
import contextlib, os, signal, sys
from minilog_broker.stop_signal import ended_by_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored: behind "&"
class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))  # the handler runs in here, and what it raises is ignored
with ended_by_interrupt() if sys.argv[1] == "held" else contextlib.nullcontext():
    Callback()
print("goes on")
"""


@pytest.mark.parametrize(("how", "said", "code"), [("held", "", 1), ("as Python does", "goes on\n", 0)])
def test_an_interrupt_in_a_callback_of_an_import_is_not_lost(how: str, said: str, code: int) -> None:
    ran = subprocess.run([sys.executable, "-c", _SWALLOWED, how], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == (said, code)
    assert ("minilog: interrupted" in ran.stderr) == bool(code)
