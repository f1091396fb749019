"""How many bytes programs that listen on some ports send, by the kernel's own count of each connection (`ss -ti`)."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

_LOOK_EVERY_S = 0.1
_SENT = re.compile(r"\bbytes_sent:(\d+)")


def bytes_sent(ports: Sequence[int], work: Callable[[], None]) -> int | None:
    """Do the work; the bytes that connections of these ports sent meanwhile, as seen from the listener's side.

    What a connection sends in its last tenth of a second before it is closed is missed. None where there is no `ss`
    (iproute2)."""
    if shutil.which("ss") is None:
        work()
        return None
    before = _sent(ports)
    last, done = dict(before), threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_EVERY_S):
            last.update(_sent(ports))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    last.update(_sent(ports))
    return sum(count - before.get(connection, 0) for connection, count in last.items())


def _sent(ports: Sequence[int]) -> Mapping[str, int]:
    """Bytes by connection; one that has sent nothing has none."""
    condition = " or ".join(f"sport = :{port}" for port in ports)
    command = [
        "ss",
        "--tcp",
        "--info",
        "--numeric",
        "--no-header",
        "--oneline",
        "state",
        "established",
        f"( {condition} )",
    ]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in lines:
        if (sent := _SENT.search(line)) is not None:
            _, _, local, peer = line.split()[:4]
            found[f"{local} {peer}"] = int(sent.group(1))
    return found
