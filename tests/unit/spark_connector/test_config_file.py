"""The option minilog.config.file: what counts where both say something, what is refused, what travels with a plan."""

from __future__ import annotations

import pathlib
import pickle

import pytest

from minilog import Admin
from minilog.errors import InvalidConfig
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.login import clients
from pyspark_minilog.options.config_file import OWNED, with_file
from pyspark_minilog.options.table import parse_sink_options, parse_stream_options
from tests.rules import proves

pytestmark = proves("SPF.19")


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "client.properties"


def source(file: pathlib.Path, **options: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_stream_options({"subscribe": "t", "minilog.config.file": str(file), **named}).client


def test_settings_of_the_file_count_below_the_options(file: pathlib.Path) -> None:
    file.write_text("bootstrap.servers=file:1\nclient.id=of-the-file\nclient.rack=r1\n")
    client = source(file, minilog__client__id="of-the-option")
    found = with_file(client)
    assert found == {
        "bootstrap.servers": "file:1",
        "client.id": "of-the-option",
        "client.rack": "r1",
        "isolation.level": "read_committed",
    }
    assert with_file(source(file, bootstrap__servers="option:1"))["bootstrap.servers"] == "option:1"


def test_nothing_of_the_file_travels_with_the_plan(file: pathlib.Path) -> None:
    file.write_text("bootstrap.servers=hidden-host:1\nclient.id=hidden\n")
    options = parse_stream_options({"subscribe": "t", "minilog.config.file": str(file)})
    sink = parse_sink_options({"topic": "t", "minilog.config.file": str(file)})
    assert b"hidden" not in pickle.dumps(options) + pickle.dumps(sink)
    assert "hidden" not in f"{options} {sink}"


def test_the_readable_file_is_one_for_all_hosts(file: pathlib.Path) -> None:
    file.write_text("bootstrap.servers=a:1\nisolation.level=read_uncommitted\n")
    assert source(file)["isolation.level"] == "read_uncommitted"
    assert source(file, minilog__isolation__level="read_committed")["isolation.level"] == "read_committed"


@pytest.mark.parametrize("name", sorted(OWNED))
def test_settings_of_the_connector_are_refused_in_a_file_too(file: pathlib.Path, name: str) -> None:
    file.write_text(f"bootstrap.servers=a:1\n{name}=hidden\n")
    with pytest.raises(InvalidOption, match=f"option minilog.config.file: .* has {name}, and the connector") as said:
        source(file)
    assert "hidden" not in str(said.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("linger.ms=hidden", "is not possible: it must be a whole number"),
        ("linger.mss=hidden", "has 'linger.mss', and no setting has that name: did you mean 'linger.ms'"),
        ("client.id=c", "bootstrap.servers is missing"),
        ("sasl.password=hidden", "other users may read it: chmod 600"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_its_values(
    file: pathlib.Path, content: str, words: str
) -> None:
    servers = "" if content == "client.id=c" else "bootstrap.servers=a:1\n"
    file.write_text(servers + content)
    file.chmod(0o644)
    with pytest.raises(InvalidOption) as refused:
        source(file)
    assert words in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_file_that_is_not_there_is_told_with_the_option(file: pathlib.Path) -> None:
    with pytest.raises(
        InvalidOption, match=r"option minilog.config.file: .* cannot be read .* each executor need this file"
    ):
        source(file)


def test_an_option_that_is_wrong_is_not_the_files_fault(file: pathlib.Path) -> None:
    file.write_text("bootstrap.servers=a:1\nlinger.ms=5\n")
    with pytest.raises(InvalidOption, match=r"^option minilog.linger.ms='x' is not possible"):
        source(file, minilog__linger__ms="x")


def test_clients_are_made_by_what_the_file_says_then(file: pathlib.Path) -> None:
    """A worker keeps clients between tasks: one of a file that has changed is not taken."""
    file.write_text("bootstrap.servers=127.0.0.1:1\nclient.id=a\n")
    client = source(file)
    with clients.lend(Admin, client) as first:
        pass
    with clients.lend(Admin, client) as second:
        assert second is first
    file.write_text("bootstrap.servers=127.0.0.1:1\nclient.id=b\n")
    with clients.lend(Admin, client) as third:
        assert third is not first
    file.unlink()
    with pytest.raises(InvalidConfig, match=r"minilog\.config\.file"), clients.lend(Admin, client):
        pass
    for each in list(clients._idle.values()):
        each.close()
    clients._idle.clear()
