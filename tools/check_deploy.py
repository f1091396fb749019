"""Load deploy/ into a real Prometheus beside a real cluster, and ask every expression of the alerts and the dashboard.

    .venv/bin/python -m tools.check_deploy      needs `prometheus` and `promtool` (Debian: apt-get install prometheus)
    .venv/bin/python -m tools.check_deploy --picture docs/images/dashboard.png     needs `npm` and `chromium`, too

The cluster has load: records, a group that is behind, a broker that is killed at the end. It fails where an expression
is refused, where one that must have a value by then has none, or where the killed broker raises no alert.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from minilog import Admin, Consumer, NewTopic, Producer
from tests.cluster import HOST, Cluster, free_ports
from tools.dashboard import DEPLOY, asked, expressions, take_picture

LOAD_S = 45.0
ALERT_WITHIN_S = 120.0


def configured(directory: pathlib.Path, targets: list[str]) -> pathlib.Path:
    """deploy/prometheus.yaml for these targets, once a second."""
    text = (DEPLOY / "prometheus.yaml").read_text()
    text = text.replace("15s", "1s").replace("minilog-alerts.yaml", str(DEPLOY / "minilog-alerts.yaml"))
    text = text.replace('["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"]', json.dumps(targets))
    file = directory / "prometheus.yaml"
    file.write_text(text)
    return file


def load(servers: str) -> None:
    """Records for a while, and a group that commits less than all."""
    settings = {"bootstrap.servers": servers}
    with Admin(settings) as admin:
        admin.create_topics([NewTopic("flights", num_partitions=3, replication_factor=3)])
    group = {**settings, "group.id": "report", "auto.offset.reset": "earliest"}
    with Producer(settings) as producer, Consumer(group) as consumer:
        consumer.subscribe(["flights"])
        end_s = time.monotonic() + LOAD_S
        while time.monotonic() < end_s:
            for number in range(500):
                producer.send("flights", value=b"%d" % number * 20)
            producer.flush()
            if list(consumer.poll(timeout=0.5)) and time.monotonic() < end_s - LOAD_S / 2:
                consumer.commit()


def firing(port: int) -> set[str]:
    """The alerts that are pending or fire."""
    return {each["labels"]["alertname"] for each in asked(port, "alerts")["alerts"]}


def wrong(port: int) -> Iterator[str]:
    """Expressions of the dashboard that tell nothing under load."""
    for name, expression in expressions().items():
        result = asked(port, "query", query=expression)["result"]
        print(f"{name}: {[(each['metric'], each['value'][1]) for each in result][:3]}")
        if not result:
            yield f"{name} tells nothing: {expression}"


def main() -> int:
    """0 where all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=pathlib.Path, help="of the dashboard under this load, a PNG file to write")
    picture = parser.parse_args().picture
    subprocess.run(["promtool", "check", "rules", DEPLOY / "minilog-alerts.yaml"], check=True)
    ports = free_ports(4)
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder)
        arguments = {each: ("--http", f"{HOST}:{port}") for each, port in enumerate(ports[:3], start=1)}
        cluster = Cluster(directory / "cluster", 3, arguments=arguments)
        config = configured(directory, [f"{HOST}:{port}" for port in ports[:3]])
        address, storage = f"--web.listen-address={HOST}:{ports[3]}", f"--storage.tsdb.path={directory / 'tsdb'}"
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={config}", address, storage], stderr=subprocess.DEVNULL
        )
        try:
            cluster.start()
            cluster.wait_running()
            began_s = time.time()
            load(cluster.bootstrap_servers)
            ended_s = time.time()
            found = list(wrong(ports[3]))
            rules = asked(ports[3], "rules")["groups"][0]["rules"]
            found += [f"{each['name']}: {each['lastError']}" for each in rules if each["health"] != "ok"]
            found += [f"{each} is raised in a cluster that is well" for each in firing(ports[3])]
            if picture is not None:
                take_picture(ports[3], began_s, ended_s, picture)
            cluster.kill(3)
            deadline_s, wanted = time.monotonic() + ALERT_WITHIN_S, {"MinilogBrokerDown", "MinilogUnderReplicated"}
            while not wanted <= firing(ports[3]) and time.monotonic() < deadline_s:
                time.sleep(1)
            print(f"alerts with a broker killed: {sorted(firing(ports[3]))}")
            found += [f"{each} is not raised" for each in wanted - firing(ports[3])]
        finally:
            prometheus.kill()
            prometheus.wait()
            cluster.end()
    print("\n".join(found) or f"{len(rules)} alerts and {len(expressions())} expressions are well")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
