"""NATS JetStream: three servers, streams of three replicas in files; as it comes they sync every two minutes, or, where
it is `is_synced`, always. The clients are those of its command line (`nats bench`)."""

from __future__ import annotations

import json
import pathlib
import re

from benchmarks.processes import HOST, ProgramFailed, Servers, free_ports, run, wait_until

_MOST_STORED = "60GB"
_STREAM = "benchstream"
_BENCH = (
    "bench", "js", "pub", "async", "bench", "--storage", "file", "--replicas", "3", "--batch", "500", "--no-progress",
    "--maxbytes", "20GB",
)  # fmt: skip
_RATE = re.compile(r"([\d,]+) msgs/sec")


class JetStreamCluster:
    """A cluster of NATS servers. Topics are streams here, without partitions."""

    def __init__(self, directory: pathlib.Path, programs: pathlib.Path, *, is_synced: bool = False) -> None:
        self.name = "jetstream, synced" if is_synced else "jetstream"
        self._programs = programs
        self._servers = Servers(directory)
        ports = free_ports(6)
        self._ports, route_ports = ports[:3], ports[3:]
        directory.mkdir(parents=True, exist_ok=True)
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in route_ports)
        for number, (port, route_port) in enumerate(zip(self._ports, route_ports, strict=True), 1):
            store = f'store_dir: "{directory}/server-{number}", max_file_store: {_MOST_STORED}'
            if is_synced:
                store += ", sync_interval: always"
            (directory / f"server-{number}.conf").write_text(
                f"server_name: n{number}\nlisten: {HOST}:{port}\nmax_payload: 8MB\njetstream {{ {store} }}\n"
                f"cluster {{ name: c, listen: {HOST}:{route_port}, routes: [{routes}] }}\n"
            )
            self._servers.start(
                f"broker {number}", [str(programs / "nats-server"), "-c", str(directory / f"server-{number}.conf")]
            )
        wait_until(self._is_up, "the start of JetStream")

    @property
    def servers(self) -> str:
        return ",".join(f"nats://{HOST}:{port}" for port in self._ports)

    @property
    def client_ports(self) -> list[int]:
        return self._ports

    @property
    def pids(self) -> dict[str, int]:
        return self._servers.pids

    def publish(self, records: int, record_bytes: int) -> dict[str, float]:
        """By the command line's publisher, 500 messages under way, to an empty stream of three replicas."""
        self.command(*_BENCH, "--purge", "--create", "--msgs", "500", "--size", str(record_bytes))
        before = self.count()
        output = self.command(*_BENCH, "--msgs", str(records), "--size", str(record_bytes))
        rate = float(_RATE.findall(output)[-1].replace(",", ""))
        return {"records": records, "sent": self.count() - before, "seconds": records / rate}

    def create_work_queue(self, subject: str) -> None:
        """A stream that keeps each message until a worker has accepted it, and the workers' consumer."""
        self.command(
            "stream", "add", subject, "--subjects", subject, "--retention", "work", "--storage", "file",
            "--replicas", "3", "--defaults",
        )  # fmt: skip
        self.command("consumer", "add", subject, "workers", "--pull", "--ack", "explicit", "--defaults")

    def count(self) -> int:
        """Messages in the stream."""
        return int(json.loads(self.command("stream", "info", _STREAM, "--json"))["state"]["messages"])

    def command(self, *arguments: str) -> str:
        """What the command line says."""
        return run([str(self._programs / "nats"), "--server", self.servers, *arguments])

    def _is_up(self) -> bool:
        try:
            self.command("stream", "ls")
        except ProgramFailed:
            return False
        return True

    def end(self) -> None:
        self._servers.end()
