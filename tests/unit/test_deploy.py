"""deploy/ names metrics that there are, the important ones are looked at, and every alert is explained."""

from __future__ import annotations

import json
import pathlib
import re

from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.names import MetricType

ROOT = pathlib.Path(__file__).parents[2]
ALERTS = re.sub(r"#.*", "", (ROOT / "deploy" / "minilog-alerts.yaml").read_text())
DASHBOARD = (ROOT / "deploy" / "minilog-dashboard.json").read_text()
EXPLAINED = (ROOT / "docs/operating/alerts.md").read_text()
_SUFFIXES = ("_bucket", "_sum", "_count")
_LABELS = {"job", "instance", "le"}
# What nobody needs to look at all day: who it is, and details that a person asks for.
DETAILS = {
    names.BROKER_INFO, names.CONTROLLER_EPOCH, names.METADATA_OFFSET, names.TOPICS, names.PARTITIONS, names.GROUPS,
    names.REPLICA_PARTITIONS, names.REGISTERED_BROKERS, names.FENCED_BROKERS, names.LOG_SIZE_BYTES,
    names.APPENDED_BYTES, names.CLIENTS_WAITING, names.GROUPS_NOT_SHOWN, names.CONTROLLER_SILENCE_SECONDS,
    names.PARTITION_LOG_START_OFFSET, names.PARTITION_HIGH_WATERMARK, names.PARTITION_LOG_SIZE_BYTES,
    names.PARTITION_IN_SYNC_REPLICAS, names.REPLICA_LOG_END_OFFSET, names.RUNS_READ, names.RUN_BYTES_READ,
    names.DISK_READS_WAITING, names.GROUP_MEMBERS, names.QUEUES, names.QUEUES_NOT_SHOWN,
}  # fmt: skip


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD)["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS)


def named(text: str) -> set[str]:
    found = set(re.findall(r"minilog_\w+", text))
    histograms = {each.name for each in names.ALL if each.type is MetricType.HISTOGRAM}
    stripped = {each: next((each.removesuffix(s) for s in _SUFFIXES if each.endswith(s)), each) for each in found}
    return {short if short in histograms else each for each, short in stripped.items()}


def test_every_name_in_the_alerts_and_panels_is_a_metric() -> None:
    known = {each.name for each in names.ALL}
    assert named(ALERTS) <= known
    assert named(" ".join(expressions())) <= known


def test_every_metric_is_looked_at_or_said_to_be_a_detail() -> None:
    looked_at = named(ALERTS) | named(" ".join(expressions()))
    assert {each.name for each in names.ALL} - looked_at == {each.name for each in DETAILS}


def test_labels_that_are_matched_or_grouped_by_are_labels_of_a_metric() -> None:
    text = ALERTS + " ".join(expressions())
    grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", text) for label in found.split(",")}
    matched = set(re.findall(r'(\w+)="', text))
    assert grouped | matched <= _LABELS | {label for each in names.ALL for label in each.labels}


def test_names_are_prometheus_and_once() -> None:
    assert len({each.name for each in names.ALL}) == len(names.ALL)
    for each in names.ALL:
        assert re.fullmatch(r"minilog_[a-z]+(_[a-z]+)*", each.name)
        assert each.name.endswith("_total") == (each.type is MetricType.COUNTER)
        assert not re.search(r"_(ms|mb|kb|us)\b", each.name)
        assert each.help


def test_every_alert_is_explained() -> None:
    assert len(alerts()) == len(set(alerts())) >= 8
    assert set(re.findall(r"^\| `(Minilog\w+)`", EXPLAINED, re.MULTILINE)) == set(alerts())
