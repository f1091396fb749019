"""A writer and a reader in a process of their own, so that the proxy can tell them from other clients.

    python -m tests.integration.side_client BOOTSTRAP TOPIC PARTITIONS NAME RESULT_FILE

Works until its standard input ends; then what it wrote and read is in RESULT_FILE.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from tests.integration.clients import Reader, Writer
from tests.integration.history import History, Stored

STOP_WITHIN_S = 60.0
# What is never answered on the wrong side of a cut is unknown after this, and not after two minutes.
DELIVERY_TIMEOUT_S = 4.0
SETTINGS: dict[str, object] = {
    "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
    "request.timeout.ms": 2_000,
    "max.block.ms": 1_000,
}


@dataclass(frozen=True, slots=True)
class SideResult:
    """What the process did."""

    history: History
    read: Stored


class SideClient:
    """The process, seen from the test."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, name: str, folder: pathlib.Path) -> None:
        self._file = folder / f"{name}.msgpack"
        command = [sys.executable, "-m", "tests.integration.side_client", bootstrap_servers, topic]
        command += [str(partitions), name, str(self._file)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.pid = self._process.pid

    def stop(self) -> SideResult:
        try:
            self._process.communicate(timeout=STOP_WITHIN_S)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, "the client on the other side failed"
        return msgspec.msgpack.decode(self._file.read_bytes(), type=SideResult)


def main(bootstrap_servers: str, topic: str, partitions: str, name: str, file: str) -> None:
    writer = Writer(bootstrap_servers, topic, name=name, in_flight=50, settings=SETTINGS)
    reader = Reader(bootstrap_servers, topic, int(partitions))
    sys.stdin.read()
    result = SideResult(writer.stop(), reader.stop())
    pathlib.Path(file).write_bytes(msgspec.msgpack.encode(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
