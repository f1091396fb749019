"""deploy/, without the programs that would run it: the things that it names exist. `tools.check_chart` renders the
chart."""

from __future__ import annotations

import configparser
import pathlib
import re
import shlex
from typing import Any

import pytest
import typer

from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.config_layers import load_config
from minilog_tools.cli import app

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "minilog"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()
COMPOSE = (DEPLOY / "container" / "compose.yaml").read_text()
START = (CHART / "templates" / "configmap.yaml").read_text()
VALUES = (CHART / "values.yaml").read_text()
UNIT = (DEPLOY / "systemd" / "minilog@.service").read_text()
_TREE: Any = typer.main.get_command(app.tree())
BROKER_OPTIONS = {name for option in _TREE.commands["broker"].params for name in option.opts}


def _options(text: str) -> set[str]:
    commands = re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", commands))


def test_settings_that_the_chart_names_are_settings_of_brokers() -> None:
    fields = load_config(None, {}, {}).__class__.__dataclass_fields__
    named = set(re.findall(r'^ {4}"([a-z.]+)" = ', START, re.MULTILINE))
    named |= set(re.findall(r'--set "([a-z.]+)=', START))
    assert len(named) >= 10
    assert {name for name in named if name.replace(".", "_") not in fields} == set()


def test_options_of_brokers_are_options_of_the_command() -> None:
    start = START[START.index("start.sh: |") : START.index("wait-healthy.sh: |")]
    compose = [line for line in COMPOSE.splitlines() if "command: [broker" in line]
    assert len(compose) == 3
    for text in (start, "\n".join(compose), UNIT):
        assert {"--id", "--data-dir"} <= _options(text) <= BROKER_OPTIONS


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_command_of_compose_is_taken(broker_id: int) -> None:
    lines = [line for line in COMPOSE.splitlines() if "command: [broker" in line]
    listed = lines[broker_id - 1].partition("[broker,")[2].rstrip("]")
    words = [quoted or plain for quoted, plain in re.findall(r'\s*(?:"([^"]*)"|([^",\s]+))', listed)]
    context = _TREE.commands["broker"].make_context("broker", words)
    assert (context.params["broker_id"], context.params["listen"]) == (broker_id, f"broker-{broker_id}:9092")


def test_the_ports_of_streams_are_named_where_those_of_calls_are() -> None:
    offset = BrokerConfig().stream_port_offset
    assert f"streamOffset: {offset} " in VALUES
    assert f"EXPOSE 9092 {9092 + offset} 8080" in CONTAINERFILE
    services = (CHART / "templates" / "services.yaml").read_text()
    pods = (CHART / "templates" / "statefulset.yaml").read_text()
    for name in ("clients", "brokers", "outside"):
        assert f"{name}-streams" in services
        assert f"name: {name}-streams" in pods


def test_values_that_templates_name_are_there() -> None:
    text = "".join(template.read_text() for template in (CHART / "templates").iterdir())
    paths = set(re.findall(r"\.Values\.([\w.]+)", text))
    first = set(re.findall(r"^(\w+):", VALUES, re.MULTILINE))
    second = set(re.findall(r"^  (\w+):", VALUES, re.MULTILINE))
    assert {path.split(".")[0] for path in paths} == first
    assert {path.split(".")[1] for path in paths if "." in path} <= second


def test_the_image_runs_as_nobody_in_particular_and_its_process_gets_signals() -> None:
    broker = CONTAINERFILE.partition("AS spark")[0]
    assert "USER 10001:10001" in broker
    assert 'ENTRYPOINT ["/usr/bin/tini", "--", "minilog"]' in broker
    assert "VOLUME /var/lib/minilog" in broker
    assert "/readyz" in broker


def test_the_image_names_its_base_by_digest_and_checks_each_package() -> None:
    assert re.findall(r"^FROM (?!broker )\S+?(?:@sha256:[0-9a-f]{64})? ", CONTAINERFILE, re.MULTILINE) == re.findall(
        r"^FROM (?!broker )\S+@sha256:[0-9a-f]{64} ", CONTAINERFILE, re.MULTILINE
    )
    installs = re.findall(r"pip install (.*)", CONTAINERFILE)
    assert len(installs) == 4
    assert all("--require-hashes" in each or "--no-deps /opt/packages/*.whl" in each for each in installs)


def test_the_packages_of_the_image_have_the_versions_of_the_constraints() -> None:
    pinned = {line.lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for name in ("broker", "build", "spark"):
        text = (DEPLOY / "container" / f"requirements-{name}.txt").read_text()
        versions = set(re.findall(r"^([\w.-]+==[\w.]+)", text, re.MULTILINE))
        assert versions
        assert versions - pinned == set(), "run .venv/bin/python -m tools.image_requirements"


def test_the_unit_is_hardened_and_waits_for_a_controlled_shutdown() -> None:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT)
    service = dict(parser["Service"])
    assert service["User"] == "minilog"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert int(service["TimeoutStopSec"]) * 1_000 > BrokerConfig().controlled_shutdown_timeout_ms
    assert shlex.split(service["ExecStart"])[1] == "broker"
