"""What the command line understands and refuses by itself: no broker is asked."""

from __future__ import annotations

import pathlib
import shlex

import pytest

from minilog.errors import NotEnoughReplicas
from minilog_broker.failure import CommandFailed
from minilog_broker.server.broker_options import VoterAddress
from minilog_tools.cli import app
from minilog_tools.cli.broker import parse_voters
from minilog_tools.cli.common import client_settings, read_offset
from minilog_tools.cli.given_records import split_lines
from minilog_tools.cli.held_offsets import HeldOffsets, begin_offsets
from tests.programs import unboxed

LOCAL = "broker --id 1 --listen 127.0.0.1:9092 --data-dir d --voters 1@h:1"
EVERYWHERE = "broker --id 1 --listen 0.0.0.0:9092 --data-dir d --voters 1@h:1"
USAGE = (
    ("produce t --acks 2", "'2' is not valid: expected 0, 1 or all"),
    ("produce t -k a --key-delimiter :", "either --key or --key-delimiter"),
    ("consume t -o yesterday", "expected start, end, N, -N or @TIMESTAMP_MS"),
    ("consume t -o 12x", "expected start, end, N, -N or @TIMESTAMP_MS"),
    ("consume t -n 0", "greater than or equal"),
    ("topic trim t", "Missing option '--to'"),
    ("topic trim t --to 1000", "expected PARTITION:OFFSET, such as 0:1000, or 0:end"),
    ("topic trim t --to 0:-5", "expected PARTITION:OFFSET, such as 0:1000, or 0:end"),
    ("group seek g", "Missing option '-o'"),
    ("group seek g -o yesterday", "expected start, end, N, -N or @TIMESTAMP_MS"),
    ("group seek g -o start -p 0", "-p needs -t TOPIC"),
    ("queue alter q", "nothing to alter: give -c KEY=VALUE or -d KEY"),
    ("queue alter q --set lock", "-c lock: expected key=value"),
    ("consume t --queue q -o start", "a queue gives whole records, in no order: leave -o out"),
    ("consume t --queue q -g g", "leave -g out"),
    ("consume t --queue q --exit-at-end", "leave --exit-at-end out"),
    ("consume t --queue q --where 'a = 1'", "leave --where out"),
    ("consume t --queue q -c group.id=g", "a queue keeps its own offsets, so leave group.id out"),
    ("topic alter t", "nothing to alter"),
    ("topic alter t -c a=1 --delete-config a", "a is both in -c and in -d"),
    (EVERYWHERE, "give --insecure where the network is trusted"),
    (f"{EVERYWHERE} --insecure", "0.0.0.0 cannot be advertised"),
    (
        f"{EVERYWHERE} --insecure --set advertised.address=0.0.0.0:9092",
        "advertised.address 0.0.0.0 cannot be advertised",
    ),
    ("topic create t -p 0", "greater than or equal"),
    ("topic create t -c =1", "-c =1: expected key=value"),
    ("topic create t -c novalue", "-c novalue: expected key=value"),
    ("up --set min.insync.replica=2", "did you mean min.insync.replicas?"),
    ("up --set flush.policy=never", "flush.policy=never (-c) is not valid: expected fsync or os"),
    ("broker --id 1 --listen here --data-dir d --voters 1@h:1", "is not HOST:PORT"),
    ("broker --id 1 --listen h:1 --data-dir d --voters h:1", "is not ID@HOST:PORT"),
    ("broker --id 1 --listen h:1 --data-dir d --voters 0@h:1", "with an id of at least 1"),
    (f"{EVERYWHERE} --host-label ''", "name the host, or leave it out"),
    ("broker --id 1 --data-dir d --voters 1@h:1", "listens nowhere: give --listen HOST:PORT"),
    (
        f"{LOCAL} --set listeners=a://127.0.0.1:9092 --set listener.security.protocol.map=a:PLAINTEXT",
        "listeners=a://127.0.0.1:9092 and --listen both have port 9092",
    ),
    (
        f"{LOCAL} --set listeners=a://10.0.0.7:1 --set listener.security.protocol.map=a:PLAINTEXT",
        "the listener a 10.0.0.7:1 would be plaintext on an address that other machines reach",
    ),
    ("consume t -c fetch.max.byte=1", "fetch.max.bytes"),
    ("broker", "Invalid value for --id: a broker process needs this option"),
    ("broker --id 1 --voters 1@h:1", "Invalid value for --data-dir: a broker process needs this option"),
    ("broker --id 1 alter 1 -c a=1", "options of a broker process stand before the verb alter"),
    ("broker alter -c a=1", "give the ID of a broker, or --all"),
    ("broker alter 1 --all -c a=1", "or --all, and not both"),
    ("broker alter 1", "nothing to alter: give -c KEY=VALUE or -d KEY"),
    ("broker alter 1 -c a=1 -d a", "a is both in -c and in -d: give it once"),
    ("config print broker --id 1 --set a=1", "a running broker has its own configuration"),
    ("config print broker -b h:1", "without --id the command asks no broker"),
    ("nonsense", "No such command"),
    ("topic reassign flights", "give the new replicas"),
    ("topic reassign flights --to 0:1,2 --cancel", "or --cancel alone"),
    ("topic reassign flights --cancel --throttle 1", "or --cancel alone"),
    ("topic reassign flights --to 0", "--to 0: expected PARTITION:BROKER,..., such as 0:1,2,3"),
    ("topic reassign flights --to 0:1,x", "--to 0:1,x: expected PARTITION:BROKER"),
    ("topic reassign flights --to 0:", "--to 0:: expected PARTITION:BROKER"),
    ("topic reassign flights --to 0:1 --throttle 0", "greater than or equal to 1"),
    ("topic create t --ddl 'a int' --like x.parquet", "--like all give the columns: give one of them"),
    ("topic create t --ddl 'a int' --schema x.json", "--like all give the columns: give one of them"),
    ("topic create t --key-columns a", "need columns: --ddl, --schema or --like"),
    ("topic create t --timestamp-column a", "need columns: --ddl, --schema or --like"),
    ("topic schema evolve t", "give at least one change: --add, --drop"),
    ("topic schema evolve t --add gate", "--add 'gate': expected a column and its type"),
    ("topic schema evolve t --add 'a int, b int'", "expected one column"),
    ("topic schema evolve t --rename delay", "--rename 'delay': expected OLD=NEW"),
    ("topic schema evolve t --move 'delay behind gate'", "expected 'COLUMN after OTHER'"),
    ("topic schema evolve t --move 'delay after'", "expected 'COLUMN after OTHER'"),
    ("topic schema show t --version 0", "greater than or equal to 1"),
    ("acl add --allow-principal User:a --operation read --prefixed", "--prefixed needs a name: --topic"),
    ("acl remove --prefixed --cluster --topic t", "the cluster has none: leave out --cluster or --prefixed"),
)


@pytest.mark.parametrize(("line", "words"), USAGE)
def test_wrong_usage_is_told_and_ends_with_2(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(shlex.split(line)) == 2
    error = unboxed(capsys.readouterr().err)
    assert words in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (CommandFailed("port 9092 is taken:\n choose another"), "minilog: port 9092 is taken: choose another\n"),
        (NotEnoughReplicas("t-0 has one replica"), "minilog: t-0 has one replica\n"),
        (PermissionError(13, "Permission denied", "/data"), "minilog: Permission denied: /data\n"),
        (RuntimeError("oh"), "minilog: unexpected RuntimeError: oh: this is a bug in minilog, please report it\n"),
    ],
)
def test_a_failure_is_one_line_and_ends_with_1(
    failure: Exception, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(app, "tree", lambda loaded: fail)
    assert app.run([]) == 1
    assert capsys.readouterr().err == line


def test_voters_are_ids_with_addresses() -> None:
    assert parse_voters("1@a:1, 2@b:2") == (VoterAddress(1, "a", 1), VoterAddress(2, "b", 2))
    with pytest.raises(ValueError, match="named twice"):
        parse_voters("1@a:1,1@b:2")


def test_lines_are_split_at_the_first_delimiter() -> None:
    assert list(split_lines([b"UA:a:b\n", b":c\n", b"DL:"], None, ":")) == [(b"UA", b"a:b"), (b"", b"c"), (b"DL", b"")]
    assert list(split_lines([b" a \n", b"\n"], b"k", None)) == [(b"k", b" a "), (b"k", b"")]
    with pytest.raises(CommandFailed, match="line 2 has no key delimiter ':'"):
        list(split_lines([b"a:b\n", b"ab\n"], None, ":"))


@pytest.mark.parametrize(
    ("offset", "begins"),
    [
        ("start", (5, 0)),
        ("Beginning", (5, 0)),
        ("latest", (9, 3)),
        ("end", (9, 3)),
        ("-2", (7, 1)),
        ("-100", (5, 0)),
    ],
)
def test_an_offset_is_a_place_in_each_partition(offset: str, begins: tuple[int, int]) -> None:
    held = {0: HeldOffsets(5, 9), 1: HeldOffsets(0, 3)}
    assert tuple(begin_offsets("t", read_offset(offset), held).values()) == begins


@pytest.mark.parametrize("offset", ["4", "10"])
def test_an_offset_outside_the_log_is_refused_with_both_ends(offset: str) -> None:
    with pytest.raises(CommandFailed, match=f"offset {offset} is outside t-0, whose log goes from 5 to 9"):
        begin_offsets("t", offset, {0: HeldOffsets(5, 9)})


def test_servers_that_are_named_win_over_the_file_and_that_over_the_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=c\nisolation.level=read_uncommitted\n")
    monkeypatch.setenv("MINILOG_BOOTSTRAP_SERVERS", "environment:1")
    assert client_settings("named:1", str(file))["bootstrap.servers"] == "named:1"
    assert client_settings(None, str(file)) == {
        "bootstrap.servers": "file:1",
        "client.id": "c",
        "isolation.level": "read_uncommitted",
    }
    assert client_settings(None, None)["bootstrap.servers"] == "environment:1"
    monkeypatch.delenv("MINILOG_BOOTSTRAP_SERVERS")
    assert client_settings(None, None)["bootstrap.servers"] == "127.0.0.1:9092"
