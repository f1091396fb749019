"""The Python workers of the Spark of these tests, forked off a process that has imported what they need.

Spark starts a Python for each streaming query, and one for each kind of worker. Each takes a second of CPU for its
imports, which is most of a small query. So Spark is given a launcher in place of Python (`python_of_workers`). The
launcher asks one helper for a fork that has its streams, arguments and environment, and ends when the fork does.
Kills, `spark-submit` and Spark's own clusters start Python as users do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LAUNCHER = pathlib.Path(__file__).with_name("worker_launcher.py")
_LONGEST_REQUEST = 1 << 18
_MOST_FILES = 1 << 16
_PRELOADED = ("pyarrow.compute", "pyspark.worker", "pyspark.sql.pandas.types", "pyspark.sql.datasource_internal")
_PRELOADED_WITH_PARTS = ("pyspark.sql.worker", "pyspark_minilog", "minilog.typed", "minilog.aio")


@contextlib.contextmanager
def python_of_workers(directory: pathlib.Path) -> Iterator[str]:
    """The path of a program that Spark may run as Python, as long as the block lasts."""
    way, program = directory / "workers.socket", directory / "python"
    launch = shlex.join([sys.executable, "-IS", str(_LAUNCHER), str(way)])
    # Spark also asks for the version, by `-c`.
    program.write_text(f'#!/bin/sh\n[ "$1" = -m ] && exec {launch} "$@"\nexec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(way))
        listener.listen(64)
        helper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # as Spark has it for its own
        )
    with helper:
        try:
            yield str(program)
        finally:
            helper.kill()


@dataclass(frozen=True)
class _Worker:
    """A process that was forked: how it is waited for, and the launcher that Spark knows in its place."""

    pid: int
    ended: int
    launcher: socket.socket


def _load() -> None:
    for name in _PRELOADED:
        importlib.import_module(name)
    for name in _PRELOADED_WITH_PARTS:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _serve(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each launcher that connects. Gives what it asks for in the process that was forked; None at the end of
    the tests."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return None
            if key.fileobj is listener:
                launcher, _ = listener.accept()
                content, streams, _, _ = socket.recv_fds(launcher, _LONGEST_REQUEST, 3)
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    launcher.detach()
                    listener.detach()
                    return _become(json.loads(content), streams)
                for each in streams:
                    os.close(each)
                worker = _Worker(pid, os.pidfd_open(pid), launcher)
                selector.register(worker.ended, selectors.EVENT_READ, worker)
                selector.register(launcher, selectors.EVENT_READ, worker)
            elif key.fd == key.data.ended:
                _reap(selector, key.data)
            else:  # Spark has ended the launcher
                selector.unregister(key.fileobj)
                os.kill(key.data.pid, signal.SIGTERM)


def _reap(selector: selectors.BaseSelector, worker: _Worker) -> None:
    selector.unregister(worker.ended)
    os.close(worker.ended)
    _, status = os.waitpid(worker.pid, 0)
    with contextlib.suppress(KeyError):
        selector.unregister(worker.launcher)
    with contextlib.suppress(OSError):
        worker.launcher.send(str(os.waitstatus_to_exitcode(status)).encode())
    worker.launcher.close()


def _become(request: dict[str, Any], streams: list[int]) -> dict[str, Any]:
    for number, each in enumerate(streams):
        os.dup2(each, number)
    os.closerange(3, _MOST_FILES)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    return request


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the tests is not for us
    _load()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _, module, *arguments = request["arguments"]  # -m MODULE
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
