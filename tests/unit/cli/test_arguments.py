"""What the command line understands, refuses, and prints, by itself: no broker is asked."""

from __future__ import annotations

import json
import pathlib

import pytest

from minilog import Record, TopicPartition
from minilog.errors import NotEnoughReplicas
from minilog.transactions.descriptions import transaction_description
from minilog.types import (
    GroupDescription,
    GroupOffset,
    PartitionDescription,
    PendingOffsets,
    QueueDescription,
    QueuePosition,
    QueueRange,
    TopicDescription,
)
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.failure import CommandFailed
from minilog_broker.server.broker_options import VoterAddress
from minilog_tools.cli import app
from minilog_tools.cli.broker import parse_voters
from minilog_tools.cli.common import client_settings, read_offset
from minilog_tools.cli.given_records import split_lines
from minilog_tools.cli.group import group_document
from minilog_tools.cli.held_offsets import HeldOffsets, begin_offsets
from minilog_tools.cli.queue import queue_document
from minilog_tools.cli.record_text import record_document
from minilog_tools.cli.topic import topic_document
from minilog_tools.cli.transaction import transaction_document
from tests.programs import unboxed

LOCAL = ("broker", "--id", "1", "--listen", "127.0.0.1:9092", "--data-dir", "d", "--voters", "1@h:1")
EVERYWHERE = ("broker", "--id", "1", "--listen", "0.0.0.0:9092", "--data-dir", "d", "--voters", "1@h:1")
VERBS = (
    ["up"],
    ["broker"],
    ["broker", "alter"],
    ["broker", "settings"],
    ["cluster", "backup"],
    ["cluster", "restore"],
    ["broker", "list"],
    ["broker", "cordon"],
    ["broker", "uncordon"],
    ["broker", "decommission"],
    ["broker", "forget"],
    ["demo"],
    ["cluster", "describe"],
    ["cluster", "health"],
    ["cluster", "replace-voter"],
    ["group", "list"],
    ["group", "describe"],
    ["group", "seek"],
    ["group", "delete"],
    ["queue", "list"],
    ["queue", "describe"],
    ["queue", "peek"],
    ["queue", "alter"],
    ["queue", "delete"],
    ["user", "create"],
    ["user", "alter"],
    ["user", "delete"],
    ["user", "list"],
    ["acl", "add"],
    ["acl", "remove"],
    ["acl", "list"],
    ["quota", "set"],
    ["quota", "list"],
    ["quota", "remove"],
    ["topic", "create"],
    ["topic", "list"],
    ["topic", "describe"],
    ["topic", "delete"],
    ["topic", "alter"],
    ["topic", "elect"],
    ["topic", "reassign"],
    ["topic", "trim"],
    ["topic", "schema", "show"],
    ["topic", "schema", "evolve"],
    ["transaction", "list"],
    ["transaction", "describe"],
    ["transaction", "abort"],
    ["cluster", "upgrade"],
    ["produce"],
    ["consume"],
)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*verb, "--help"]) == 0
    assert f"Examples: minilog {' '.join(verb)}" in " ".join(capsys.readouterr().out.split()) or verb == ["produce"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "t", "--acks", "2"], "'2' is not valid: expected 0, 1 or all"),
        (["produce", "t", "-k", "a", "--key-delimiter", ":"], "either --key or --key-delimiter"),
        (["consume", "t", "-o", "yesterday"], "expected start, end, N, -N or @TIMESTAMP_MS"),
        (["consume", "t", "-n", "0"], "greater than or equal"),
        (["topic", "trim", "t"], "Missing option '--to'"),
        (["topic", "trim", "t", "--to", "1000"], "expected PARTITION:OFFSET, such as 0:1000, or 0:end"),
        (["topic", "trim", "t", "--to", "0:-5"], "expected PARTITION:OFFSET, such as 0:1000, or 0:end"),
        (["group", "seek", "g"], "Missing option '-o'"),
        (["group", "seek", "g", "-o", "yesterday"], "expected start, end, N, -N or @TIMESTAMP_MS"),
        (["group", "seek", "g", "-o", "start", "-p", "0"], "-p needs -t TOPIC"),
        (["queue", "alter", "q"], "nothing to alter: give -c KEY=VALUE or -d KEY"),
        (["queue", "alter", "q", "--set", "lock"], "-c lock: expected key=value"),
        (["consume", "t", "--queue", "q", "-o", "start"], "a queue gives whole records, in no order: leave -o out"),
        (["consume", "t", "--queue", "q", "-g", "g"], "leave -g out"),
        (["consume", "t", "--queue", "q", "--exit-at-end"], "leave --exit-at-end out"),
        (["consume", "t", "--queue", "q", "--where", "a = 1"], "leave --where out"),
        (["consume", "t", "--queue", "q", "-c", "group.id=g"], "a queue keeps its own offsets, so leave group.id out"),
        (["topic", "alter", "t"], "nothing to alter"),
        (["topic", "alter", "t", "-c", "a=1", "--delete-config", "a"], "a is both in -c and in -d"),
        ([*EVERYWHERE], "give --insecure where the network is trusted"),
        ([*EVERYWHERE, "--insecure"], "0.0.0.0 cannot be advertised"),
        (
            [*EVERYWHERE, "--insecure", "--set", "advertised.address=0.0.0.0:9092"],
            "advertised.address 0.0.0.0 cannot be advertised",
        ),
        (["topic", "create", "t", "-p", "0"], "greater than or equal"),
        (["topic", "create", "t", "-c", "novalue"], "-c novalue: expected key=value"),
        (["up", "--set", "min.insync.replica=2"], "did you mean min.insync.replicas?"),
        (["up", "--set", "flush.policy=never"], "flush.policy=never (-c) is not valid: expected fsync or os"),
        (["broker", "--id", "1", "--listen", "here", "--data-dir", "d", "--voters", "1@h:1"], "is not HOST:PORT"),
        (["broker", "--id", "1", "--listen", "h:1", "--data-dir", "d", "--voters", "h:1"], "is not ID@HOST:PORT"),
        ([*EVERYWHERE, "--host-label", ""], "name the host, or leave it out"),
        (["broker", "--id", "1", "--data-dir", "d", "--voters", "1@h:1"], "listens nowhere: give --listen HOST:PORT"),
        (
            [*LOCAL, "--set", "listeners=a://127.0.0.1:9092", "--set", "listener.security.protocol.map=a:PLAINTEXT"],
            "listeners=a://127.0.0.1:9092 and --listen both have port 9092",
        ),
        (
            [*LOCAL, "--set", "listeners=a://10.0.0.7:1", "--set", "listener.security.protocol.map=a:PLAINTEXT"],
            "the listener a 10.0.0.7:1 would be plaintext on an address that other machines reach",
        ),
        (["consume", "t", "-c", "fetch.max.byte=1"], "fetch.max.bytes"),
        (["broker"], "Invalid value for --id: a broker process needs this option"),
        (
            ["broker", "--id", "1", "--voters", "1@h:1"],
            "Invalid value for --data-dir: a broker process needs this option",
        ),
        (["broker", "--id", "1", "alter", "1", "-c", "a=1"], "options of a broker process stand before the verb alter"),
        (["broker", "alter", "-c", "a=1"], "give the ID of a broker, or --all"),
        (["broker", "alter", "1", "--all", "-c", "a=1"], "or --all, and not both"),
        (["broker", "alter", "1"], "nothing to alter: give -c KEY=VALUE or -d KEY"),
        (["broker", "alter", "1", "-c", "a=1", "-d", "a"], "a is both in -c and in -d: give it once"),
        (["config", "print", "broker", "--id", "1", "--set", "a=1"], "a running broker has its own configuration"),
        (["config", "print", "broker", "-b", "h:1"], "without --id the command asks no broker"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == 2
    error = unboxed(capsys.readouterr().err)
    assert words in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (CommandFailed("port 9092 is taken:\n choose another"), 1, "minilog: port 9092 is taken: choose another\n"),
        (NotEnoughReplicas("t-0 has one replica"), 1, "minilog: t-0 has one replica\n"),
        (PermissionError(13, "Permission denied", "/data"), 1, "minilog: Permission denied: /data\n"),
        (RuntimeError("oh"), 1, "minilog: unexpected RuntimeError: oh: this is a bug in minilog, please report it\n"),
    ],
)
def test_a_failure_is_one_line_and_ends_with_1(
    failure: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(app, "tree", lambda loaded: fail)
    assert app.run([]) == code
    assert capsys.readouterr().err == line


def test_voters_are_ids_with_addresses() -> None:
    assert parse_voters("1@a:1, 2@b:2") == (VoterAddress(1, "a", 1), VoterAddress(2, "b", 2))
    with pytest.raises(ValueError, match="named twice"):
        parse_voters("1@a:1,1@b:2")


def test_lines_are_split_at_the_first_delimiter() -> None:
    assert list(split_lines([b"UA:a:b\n", b":c\n", b"DL:"], None, ":")) == [(b"UA", b"a:b"), (b"", b"c"), (b"DL", b"")]
    assert list(split_lines([b"a\n", b"\n"], b"k", None)) == [(b"k", b"a"), (b"k", b"")]
    with pytest.raises(CommandFailed, match="line 2 has no key delimiter ':'"):
        list(split_lines([b"a:b\n", b"ab\n"], None, ":"))


@pytest.mark.parametrize(
    ("offset", "begins"),
    [
        ("start", {0: 5, 1: 0}),
        ("Beginning", {0: 5, 1: 0}),
        ("latest", {0: 9, 1: 3}),
        ("end", {0: 9, 1: 3}),
        ("-2", {0: 7, 1: 1}),
        ("-100", {0: 5, 1: 0}),
    ],
)
def test_where_reading_begins(offset: str, begins: dict[int, int]) -> None:
    assert begin_offsets("t", read_offset(offset), {0: HeldOffsets(5, 9), 1: HeldOffsets(0, 3)}) == begins


@pytest.mark.parametrize("offset", ["4", "10"])
def test_an_offset_outside_the_log_is_refused_with_both_ends(offset: str) -> None:
    with pytest.raises(CommandFailed, match=f"offset {offset} is outside t-0, whose log goes from 5 to 9"):
        begin_offsets("t", offset, {0: HeldOffsets(5, 9)})


def test_a_record_is_text_where_it_is_utf8_and_base64_where_not() -> None:
    record = Record("t", 0, 7, 1000, b"\xff", "grün".encode(), [("h", None), ("b", b"\x80")])
    assert record_document(record) == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": 1000,
        "key_base64": "/w==",
        "value": "grün",
        "headers": [{"key": "h", "value": None}, {"key": "b", "value_base64": "gA=="}],
    }


def test_a_described_topic_has_the_contracts_form() -> None:
    partition = PartitionDescription(0, 2, 3, 5, [1, 2, 3], [2, 3], [], 0, 40, 42, 42)
    topic = TopicDescription("flights", "id", False, {"min.insync.replicas": "2"}, [partition])
    assert json.loads(json.dumps(topic_document(topic))) == {
        "name": "flights",
        "id": "id",
        "internal": False,
        "configs": {"min.insync.replicas": "2"},
        "partitions": [
            {
                "partition": 0,
                "leader": 2,
                "leader_epoch": 3,
                "partition_epoch": 5,
                "replicas": [1, 2, 3],
                "isr": [2, 3],
                "log_start_offset": 0,
                "last_stable_offset": 40,
                "high_watermark": 42,
                "log_end_offset": 42,
            }
        ],
    }


def test_a_described_topic_tells_of_a_reassignment_only_while_it_is_under_way() -> None:
    offsets = (0, 40, 42, 42)
    still = PartitionDescription(0, 2, 3, 5, [1, 2], [1, 2], [], *offsets)
    moving = PartitionDescription(1, 2, 3, 5, [3, 2, 1], [1, 2], [], *offsets, [3], [1], 1_000_000)
    documents = topic_document(TopicDescription("flights", "id", False, {}, [still, moving]))["partitions"]
    extra = {"adding_replicas": [3], "removing_replicas": [1], "throttle_bytes_per_second": 1_000_000}
    assert not extra.keys() & documents[0].keys()
    assert {name: documents[1][name] for name in extra} == extra


@pytest.mark.parametrize(
    "arguments",
    [
        ["reassign", "flights"],
        ["reassign", "flights", "--to", "0:1,2", "--cancel"],
        ["reassign", "flights", "--cancel", "--throttle", "1"],
        ["reassign", "flights", "--to", "0"],
        ["reassign", "flights", "--to", "0:1,x"],
        ["reassign", "flights", "--to", "0:"],
        ["reassign", "flights", "--to", "0:1", "--throttle", "0"],
    ],
)
def test_a_reassignment_that_says_nothing_sensible_is_wrong_usage(arguments: list[str]) -> None:
    assert app.run(["topic", *arguments]) == 2


def test_a_described_group_tells_how_far_it_is_behind_and_what_transactions_hold() -> None:
    offset = GroupOffset("flights", 0, 7, "", 1_714_566_600_000, 9, 2, 1.23456)
    silent = GroupOffset("flights", 1, 3, "mine", 1_714_566_600_000, None, None, None)
    found = GroupDescription("report", [offset, silent], [PendingOffsets("job", 70, {TopicPartition("flights", 0): 9})])
    document = json.loads(json.dumps(group_document(found)))
    assert document["offsets"][0] == {
        "topic": "flights",
        "partition": 0,
        "offset": 7,
        "metadata": "",
        "committed_at": 1_714_566_600_000,
        "end_offset": 9,
        "lag_records": 2,
        "lag_seconds": 1.235,
    }
    assert document["offsets"][1]["lag_seconds"] is None
    assert document["pending"] == [
        {
            "transactional_id": "job",
            "producer_id": 70,
            "offsets": [{"topic": "flights", "partition": 0, "offset": 9}],
        }
    ]


def test_a_described_transaction_tells_who_writes_where() -> None:
    told = coordinator_pb2.DescribeTransactionResponse(
        listing=coordinator_pb2.TransactionListing(
            transactional_id="spark-q", state=coordinator_pb2.TRANSACTION_STATE_OPEN, generation=0, producer_count=1
        ),
        attempt_id=b"\x01\x02",
        run_id=b"run-1",
        timeout_ms=900_000,
        updated_us=1_714_566_600_000_000,
        silent_ms=12,
        producers=[
            coordinator_pb2.EnlistedProducer(
                producer_id=1001,
                task=0,
                fate=coordinator_pb2.PRODUCER_FATE_OPEN,
                partitions=[
                    common_pb2.PartitionId(topic_id=b"f" * 16, partition=2),
                    common_pb2.PartitionId(topic_id=b"gone" * 4, partition=0),
                ],
            )
        ],
    )
    document = json.loads(json.dumps(transaction_document(transaction_description(told, {b"f" * 16: "flights"}))))
    assert (document["state"], document["last_committed_generation"]) == ("open", None)
    assert (document["run_id"], document["attempt_id"]) == ("run-1", "0102")
    assert (document["silent_ms"], document["updated_at"]) == (12, 1_714_566_600_000)
    assert document["producers"] == [
        {
            "producer_id": 1001,
            "generation": 0,
            "task": 0,
            "fate": "open",
            "partitions": [{"topic": "flights", "partition": 2}],
        }
    ]


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


OPERANDS = {
    "cluster describe": [],
    "cluster health": [],
    "cluster upgrade": [],
    "cluster replace-voter": ["1"],
    "group list": [],
    "group seek": ["g", "-o", "end"],
    "queue list": [],
    "queue alter": ["q", "--set", "share.auto.offset.reset=latest"],
    "acl add": ["--allow-principal", "User:a", "--operation", "read", "--topic", "t"],
    "acl list": [],
    "acl remove": ["--topic", "t"],
    "quota list": [],
    "quota remove": ["default", "request_rate"],
    "quota set": ["default", "request_rate=1"],
    "topic list": [],
    "topic alter": ["t", "-p", "2"],
    "topic reassign": ["t", "--to", "0:1"],
    "topic trim": ["t", "--to", "0:end"],
    "topic schema evolve": ["t", "--drop", "c"],
    "transaction list": [],
}


@pytest.mark.parametrize("verb", [each for each in VERBS if each[0] not in ("up", "broker", "demo")], ids=" ".join)
def test_every_verb_that_asks_a_cluster_takes_a_file_of_settings(
    verb: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*verb, "--help"]) == 0
    assert "--command-config" in capsys.readouterr().out
    given = OPERANDS.get(" ".join(verb), ["t"])
    assert app.run([*verb, *given, "--command-config", str(tmp_path / "none")]) == 2
    assert "none cannot be read (No such file or directory)" in capsys.readouterr().err


def test_a_described_queue_tells_what_is_leased() -> None:
    leased = QueueRange(4, 6, "leased", 2, 11, "shipper-1", 20_000)
    position = QueuePosition("orders", 0, 4, 9, 12, [leased], 0, 1, undecided_count=7)
    document = json.loads(json.dumps(queue_document(QueueDescription("jobs", {"a": "1"}, [position]))))
    assert document == {
        "queue": "jobs",
        "settings": {"a": "1"},
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "settled_to": 4,
                "next_offset": 9,
                "end_offset": 12,
                "backlog": 3,
                "ranges": [
                    {
                        "first_offset": 4,
                        "last_offset": 6,
                        "state": "leased",
                        "delivery_count": 2,
                        "lease_id": 11,
                        "worker_id": "shipper-1",
                        "remaining_ms": 20_000,
                        "death_reason": None,
                    }
                ],
                "expired_count": 0,
                "dead_count": 1,
                "undecided_count": 7,
            }
        ],
    }
