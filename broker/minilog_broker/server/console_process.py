"""The process of the console that a broker serves: begun, watched, begun again when it ends, and ended with the broker.

    waiting     no process: the broker has not begun, or the pause after an end is not over
    starting    the process runs, and does not listen yet
    answering   it has printed the line with its address
    over        the broker stops: no process is begun any more

The process is `minilog console`, a client of this broker like any other, with an event loop and an interpreter of its
own. Its stdin is a pipe whose other end only the broker holds. The kernel closes that end however the broker ends,
SIGKILL too, and the console ends when it sees this (cli/console.py). The broker asks the process to end as soon as its
own stop begins, kills it later in that stop, and waits for it no longer than _REAPED_WITHIN_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence

import structlog

from minilog.addresses import address_text
from minilog_broker.server.console_options import ConsoleOptions
from minilog_broker.server.health import ConsoleCondition
from minilog_broker.stop_signal import ending_of

PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0  # a start takes a second of CPU time
LONG_LIFE_S = 60.0
_MOST_DOUBLINGS = 16
_LOOK_EVERY_S = 0.05
_REAPED_WITHIN_S = 0.2  # the kernel ends a killed process in milliseconds
_LONGEST_LINE_BYTES = 4_096
_READY = b"minilog console:"  # the line of a console that listens

logger = structlog.get_logger()


class Pauses:
    """The pauses between the lives of a process: PAUSE_S, twice as long after each short life, at most LONGEST_PAUSE_S.
    A core. After a life of LONG_LIFE_S the pauses begin anew."""

    def __init__(self) -> None:
        self._short_lives = 0

    def after(self, lived_s: float) -> float:
        """The pause after a life that has ended now."""
        self._short_lives = 1 if lived_s >= LONG_LIFE_S else self._short_lives + 1
        return min(LONGEST_PAUSE_S, PAUSE_S * 2.0 ** min(self._short_lives - 1, _MOST_DOUBLINGS))


def console_command(options: ConsoleOptions) -> list[str]:
    """The command line of the process. It holds no secret: other users of the machine see it."""
    command = [sys.executable, "-m", "minilog_tools.cli.main", "console", "--of-broker"]
    command += ["--listen", address_text(options.listen)]
    if options.keystore:
        command += ["--ssl-keystore", options.keystore]
    if options.has_actions:
        command += ["--actions"]
    for name, value in options.client.items():
        command += ["-c", f"{name}={value}"]
    return command


class ConsoleProcess:
    """The console of one broker. On the broker's event loop; `run` once."""

    def __init__(self, options: ConsoleOptions, command: Sequence[str] | None = None) -> None:
        self._options = options
        self._command = list(command or console_command(options))
        self._process: subprocess.Popen[bytes] | None = None
        self._is_answering = self._is_over = False

    def condition(self) -> ConsoleCondition:
        """What people learn of this console from the broker."""
        return ConsoleCondition(self._options.listen, bool(self._options.keystore), self._is_answering)

    async def run(self) -> None:
        """Keep a process running, until `end`, or until cancelled."""
        pauses = Pauses()
        try:
            while True:
                began_s = time.monotonic()
                ending = await self._live_and_tell()
                if self._is_over:
                    return
                pause_s = pauses.after(time.monotonic() - began_s)
                logger.warning("the console ended, and starts again", ending=ending, in_s=pause_s)
                await asyncio.sleep(pause_s)
        finally:
            self._is_over = True
            self._kill()

    def end(self) -> None:
        """Ask the process to end, and begin no other."""
        self._is_over = True
        if self._process is not None:
            self._ask_to_end(self._process)

    async def _live_and_tell(self) -> str:
        """One life, and how it ended. A process that cannot begin, such as for want of memory, is no fault of ours."""
        try:
            return ending_of(await self._live())
        except OSError as error:
            self._kill()
            return str(error)

    async def _live(self) -> int:
        """One life of the process, from its start to its exit code."""
        process = await asyncio.to_thread(self._begin)  # the caller waits until the program is loaded
        assert process.stdout is not None
        reader = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        try:
            await self._listen_to(reader)
            while True:
                if (exit_code := process.poll()) is not None:
                    return exit_code
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            self._is_answering = False
            transport.close()

    def _begin(self) -> subprocess.Popen[bytes]:
        """In a thread. The process is in a group of its own: Ctrl-C at a terminal reaches the broker alone, which ends
        the console."""
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
        )
        self._process = process
        if self._is_over:  # the broker's stop has begun meanwhile
            self._ask_to_end(process)
        return process

    async def _listen_to(self, reader: asyncio.StreamReader) -> None:
        """Read the process's output to its end, which comes with the end of the process."""
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # a line without end: the rest of it is read as another one
                continue
            if not line:
                return
            if line.startswith(_READY) and not self._is_answering:
                self._is_answering = True
                logger.info("the console answers", listen=address_text(self._options.listen))

    def _ask_to_end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            process.terminate()
        if process.stdin is not None:
            process.stdin.close()

    def _kill(self) -> None:
        process = self._process
        if process is None:
            return
        self._ask_to_end(process)
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_REAPED_WITHIN_S)
