"""Command lines of minilog, and programs of tests, in processes that are forked off one that has imported all of it.

A command line takes half a second of CPU until it begins, a broker three quarters. So each process of tests has one
helper that imports minilog once, and forks the programs. A forked program has signals, an exit code and streams of its
own, as any other. Tests of the start itself, and of other versions, begin programs as users do.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

COMMAND_LINE = "minilog_tools.cli.main"
MINILOG = (sys.executable, "-m", COMMAND_LINE)
_LONGEST_REQUEST = 1 << 20
_CODE = struct.Struct("i")
_ENDS_WITHIN_S = 5.0
_MOST_FILES = 1 << 16
_STREAMS = 4  # stdin, stdout, stderr, and where the exit code is told


def unboxed(usage_error: str) -> str:
    """The sentence of a usage error, without the box and the line breaks that depend on the terminal's width."""
    return " ".join(usage_error.replace("│", " ").split())


class Process(Protocol):
    """What tests ask of a program that runs; a subprocess.Popen is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | Any: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class Forked:
    """One of them, as subprocess.Popen has it."""

    def __init__(self, arguments: Sequence[str], pid: int, told: int) -> None:
        self._arguments = arguments
        self.pid = pid
        self.returncode: int | None = None
        self._told = told

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self._arguments), timeout or 0.0)
            self._ended()
        assert self.returncode is not None
        return self.returncode

    def _ended(self) -> None:
        content = os.read(self._told, _CODE.size)
        os.close(self._told)
        assert content, f"who starts programs has ended: it was to say how {self._arguments} ends"
        (self.returncode,) = _CODE.unpack(content)

    def send_signal(self, sig: int) -> None:
        """Nothing, where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str] | None = None,
    *,
    module: str = COMMAND_LINE,
) -> Process:
    """Begin `minilog ARGUMENTS`, or the `main` of another module. `streams`: its stdin, stdout and stderr.
    `environment`: more than this process's."""
    return _starter().start(module, arguments, streams, {**os.environ, **(environment or {})})


def run(
    *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run `minilog ARGUMENTS` to its end. Raises subprocess.TimeoutExpired, and it is killed then."""
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as failed, tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        process = start(arguments, [given.fileno(), told.fileno(), failed.fileno()], environment)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(list(arguments), code, _text(told), _text(failed))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class _Starter:
    """The process that others are forked off, and the way to it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()
        self._one_at_a_time = threading.Lock()
        atexit.register(self._stop)

    def _stop(self) -> None:
        """It ends when the control connection does, unless another process still has that."""
        self._control.close()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(
        self, module: str, arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str]
    ) -> Process:
        ours, theirs = os.pipe()
        request = {"module": module, "arguments": arguments, "environment": environment, "directory": os.getcwd()}
        descriptors = array.array("i", [*streams, theirs])
        try:
            with self._one_at_a_time:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
                self._control.sendmsg([json.dumps(request).encode()], rights)
                pid = int(self._control.recv(32))
        finally:
            os.close(theirs)
        return Forked(arguments, pid, ours)


@functools.cache
def _starter() -> _Starter:
    return _Starter()


# -- the process that others are forked off

# What a program imports no earlier than it has a use for it.
_LOADED_LATE = (
    "importlib.metadata",
    "minilog.admin.schema_messages",
    "minilog.consumer.decode",
    "minilog.producer.typed_rows",
    "minilog.sync.admin",
    "minilog.typed.schema.evolution",
    "minilog.typed.rows.reader",
    "minilog.typed.conditions.where",
    "rich.table",
)
_OF_NEW_VERSIONS = ("typer._adapters",)


def _load() -> None:
    """All that a command line or a broker may need."""
    from minilog_tools import cli
    from minilog_tools.cli.main import WITHOUT_PANDAS

    sys.meta_path.insert(0, WITHOUT_PANDAS)
    for module in pkgutil.iter_modules(cli.__path__, "minilog_tools.cli."):
        importlib.import_module(module.name)
    for name in (*_LOADED_LATE, "pyarrow.compute", "minilog_broker.server.broker"):
        importlib.import_module(name)
    for name in _OF_NEW_VERSIONS:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> str | None:
    """Fork as one is asked to, and tell exit codes. Gives the module to run in a process that was forked, None at the
    end."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is control:
                content, rights, _, _ = control.recvmsg(_LONGEST_REQUEST, socket.CMSG_SPACE(_STREAMS * 4))
                if not content:
                    return None
                descriptors = array.array("i", rights[0][2])
                request = json.loads(content)
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    control.detach()
                    _become(request, descriptors)
                    return str(request["module"])
                for each in descriptors[:-1]:
                    os.close(each)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[-1]))
                control.send(str(pid).encode())
            else:
                pid, told = key.data
                selector.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                    os.write(told, _CODE.pack(os.waitstatus_to_exitcode(status)))
                os.close(told)


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """A process with these streams, this environment and this directory."""
    for number, each in enumerate(descriptors[:-1]):
        os.dup2(each, number)
    os.closerange(3, _MOST_FILES)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.argv = ["minilog", *request["arguments"]]


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the tests is not for us
    _load()
    module = _serve(socket.socket(fileno=int(sys.argv[1])))
    if module is not None:
        importlib.import_module(module).main()


if __name__ == "__main__":
    _main()
