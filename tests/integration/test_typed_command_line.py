"""Rows of typed topics on the command line, with real brokers: files in, rows out, and what is refused."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from tests.cluster import Cluster
from tests.integration.commands import minilog
from tests.pool import THREE, shared_cluster

DDL = "carrier string NOT NULL, delay int, at timestamp, raw binary"
ROWS: list[dict[str, Any]] = [
    {"carrier": "UA", "delay": 2, "at": "2024-05-01T10:15:00+00:00", "raw": "AP8="},
    {"carrier": "AA", "delay": 33, "at": "2024-05-01T10:40:00+00:00", "raw": None},
    {"carrier": "B6", "delay": None, "at": None, "raw": ""},
    {"carrier": "UA", "delay": 71, "at": "2024-05-01T11:00:00.500000+00:00", "raw": None},
]


cluster = shared_cluster(THREE)


def made(cluster: Cluster, name: str, *more: str) -> None:
    options = ("-p", "2", "-r", "3", "-c", "retention.ms=-1", "--key-columns", "carrier", *more)
    ended = minilog(cluster, "topic", "create", name, "--ddl", DDL, *options)
    assert ended.returncode == 0, ended.stderr


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


def shown(cluster: Cluster, name: str, *options: str) -> list[dict[str, Any]]:
    ended = minilog(cluster, "consume", name, "--exit-at-end", *options)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(json.dumps, rows))


@pytest.mark.dear("it runs many programs of the command line")
def test_rows_go_in_as_json_and_come_out_as_json_csv_and_a_table(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    made(cluster, "flights")
    sent = minilog(cluster, "produce", "flights", "--format", "json", stdin=lines(ROWS))
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "4 rows acknowledged\n")
    assert in_order(shown(cluster, "flights")) == in_order(ROWS)
    late = shown(cluster, "flights", "--columns", "delay,carrier", "--where", "delay > 10")
    assert in_order(late) == in_order([{"delay": 33, "carrier": "AA"}, {"delay": 71, "carrier": "UA"}])
    (one,) = shown(cluster, "flights", "--columns", "carrier", "--where", "delay = 33", "--metadata")
    assert (one["carrier"], one["_topic"], one["_offset"] >= 0, one["_key"]) == ("AA", "flights", True, "QUE=")
    table = minilog(cluster, "consume", "flights", "--exit-at-end", "--format", "table").stdout
    assert [table.count(each) for each in ("carrier", "UA", "2024-05-01T10:40:00+00:00", "null")] == [1, 2, 1, 4]

    text = minilog(cluster, "consume", "flights", "--exit-at-end", "--format", "csv").stdout
    (tmp_path / "flights.csv").write_text(text)
    assert pcsv.read_csv(tmp_path / "flights.csv").column_names == ["carrier", "delay", "at", "raw"]
    made(cluster, "again")
    told = minilog(cluster, "produce", "again", "--format", "csv", str(tmp_path / "flights.csv"), "--json")
    parts = [json.loads(line) for line in told.stdout.splitlines()]
    assert sum(each["last_offset"] - each["first_offset"] + 1 for each in parts) == 4
    assert in_order(shown(cluster, "again")) == in_order(ROWS)
    (record,) = shown(cluster, "again", "--json", "-n", "1")
    assert set(record) == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    assert json.loads(record["value"]) in ROWS


def test_parquet_files_one_after_another(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    made(cluster, "parquet")
    for number in range(2):
        table = pa.table({"delay": pa.array(range(100_000), pa.int32()), "carrier": ["UA"] * 100_000})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    files = [str(tmp_path / f"{number}.parquet") for number in range(2)]
    sent = minilog(cluster, "produce", "parquet", "--format", "parquet", *files)
    assert (sent.returncode, sent.stderr) == (0, "200000 rows acknowledged\n")
    found = shown(cluster, "parquet", "--columns", "delay", "--where", "delay >= 99990")
    assert sorted(each["delay"] for each in found) == sorted([*range(99_990, 100_000)] * 2)


def test_a_bad_line_is_told_with_what_was_written_before(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    made(cluster, "bad")
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(lines(ROWS))
    bad.write_text(lines(ROWS) + '{"carrier":"UA","delay":"late"}\n' + lines(ROWS))
    refused = minilog(cluster, "produce", "bad", "--format", "json", str(bad))
    reason = f"{bad}: line 5: column 'delay' is int, and 'late' does not fit"
    assert (refused.returncode, refused.stderr) == (1, f"minilog: {reason} (nothing is written)\n")
    refused = minilog(cluster, "produce", "bad", "--format", "json", str(good), str(bad))
    written = f"4 rows are written, up to line 4 of {good}, and none after it"
    assert (refused.returncode, refused.stderr) == (1, f"minilog: {reason} ({written})\n")
    assert in_order(shown(cluster, "bad")) == in_order(ROWS)
    (tmp_path / "bad.csv").write_text("carrier,delay\nUA,1\nUA,late\n")
    refused = minilog(cluster, "produce", "bad", "--format", "csv", str(tmp_path / "bad.csv"))
    assert "bad.csv: row 3: column 'delay' is int: invalid value 'late' (nothing is written)" in refused.stderr


def test_a_group_commits_how_far_rows_were_printed(cluster: Cluster) -> None:
    made(cluster, "grouped")
    minilog(cluster, "produce", "grouped", "-p", "0", "--format", "json", stdin=lines(ROWS))
    first = shown(cluster, "grouped", "-g", "report", "-n", "1")
    rest = shown(cluster, "grouped", "-g", "report", "--where", "delay is not null")
    assert [*first, *rest] == [ROWS[0], ROWS[1], ROWS[3]]
    assert shown(cluster, "grouped", "-g", "report") == []
    assert shown(cluster, "grouped", "-p", "0", "-o", "-1") == ROWS[3:]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["produce", "typed"], 1, "topic typed has a schema: give the format of the rows, --format json, csv or"),
        (["produce", "plain", "--format", "json"], 1, "topic plain has no schema: leave --format out"),
        (["produce", "typed", "--format", "json", "-k", "a"], 2, "rows have key and time in columns"),
        (["produce", "typed", "--format", "json", "--key-delimiter", ":"], 2, "rows have key and time in columns"),
        (["produce", "typed", "a.json"], 2, "files hold rows of a typed topic: give --format"),
        (["produce", "typed", "--format", "xml"], 2, "'xml'"),
        (["produce", "typed", "--format", "json", "no-such.json"], 1, "No such file or directory: no-such.json"),
        (["produce", "typed", "--format", "parquet"], 2, "a Parquet file is read from its end"),
        (["consume", "plain", "--where", "a = 1"], 1, "topic plain has no schema, and --where is for rows"),
        (["consume", "plain", "--format", "csv"], 1, "topic plain has no schema, and --format is for rows"),
        (["consume", "plain", "--metadata"], 1, "topic plain has no schema, and --metadata is for rows"),
        (
            ["consume", "typed", "--json", "--columns", "delay"],
            2,
            "--json prints whole records, and --columns is for rows",
        ),
        (["consume", "typed", "--columns", "gate"], 1, "there is no column 'gate'"),
        (["consume", "typed", "--where", "gate = 1"], 1, "gate"),
        (["consume", "typed", "--where", "delay >"], 1, "cannot be read"),
    ],
)
def test_options_that_do_not_fit_the_topic_are_refused(
    cluster: Cluster, arguments: list[str], code: int, reason: str
) -> None:
    known = json.loads(minilog(cluster, "topic", "list", "--json").stdout)
    if "typed" not in known:
        made(cluster, "typed")
        assert minilog(cluster, "topic", "create", "plain").returncode == 0
    refused = minilog(cluster, *arguments, stdin="{}\n")
    assert (refused.returncode, reason in " ".join(refused.stderr.split())) == (code, True), refused.stderr
    if code == 1:
        assert refused.stderr.count("\n") == 1


def test_deletions_that_consume_prints_are_taken_by_produce(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    made(cluster, "deleted")
    made(cluster, "deleted-copy")
    deletion = {"carrier": "UA", "_deleted": True}
    given = lines([ROWS[0], deletion, ROWS[1] | {"_deleted": False}, {"carrier": "DL", "delay": 5, "_deleted": True}])
    sent = minilog(cluster, "produce", "deleted", "--format", "json", stdin=given)
    assert (sent.returncode, sent.stderr) == (0, "4 rows acknowledged\n")
    printed = shown(cluster, "deleted")
    assert in_order(printed) == in_order([ROWS[0], deletion, ROWS[1], {"carrier": "DL", "_deleted": True}])
    assert minilog(cluster, "produce", "deleted-copy", "--format", "json", stdin=lines(printed)).returncode == 0
    assert in_order(shown(cluster, "deleted-copy")) == in_order(printed)
    assert in_order(shown(cluster, "deleted", "--columns", "carrier")) == in_order(
        [{"carrier": "UA"}, {"carrier": "AA"}]
    )
    late = shown(cluster, "deleted", "--columns", "delay,carrier", "--where", "delay > 10", "--deletes")
    assert in_order(late) == in_order(
        [{"carrier": "UA", "_deleted": True}, {"delay": 33, "carrier": "AA"}, {"carrier": "DL", "_deleted": True}]
    )
    csv = minilog(
        cluster, "consume", "deleted", "--exit-at-end", "--format", "csv", "--columns", "carrier", "--deletes"
    )
    assert sorted(csv.stdout.splitlines()) == sorted(
        ['"carrier","_deleted"', '"UA",false', '"UA",true', '"AA",false', '"DL",true']
    )
    records = shown(cluster, "deleted", "--json")
    assert sorted(record["key"] for record in records if record["value"] is None) == ["DL", "UA"]
    refused = minilog(cluster, "produce", "deleted", "--format", "json", stdin='{"delay": 5, "_deleted": true}\n')
    assert refused.returncode == 1
    assert "line 1: the deletion has no value for key column 'carrier'" in " ".join(refused.stderr.split())


def test_a_view_prints_the_newest_row_of_each_key_and_ends(cluster: Cluster) -> None:
    made(cluster, "latest")
    assert minilog(cluster, "produce", "latest", "--format", "json", stdin=lines(ROWS)).returncode == 0
    newest = minilog(cluster, "consume", "latest", "--view", "latest")
    assert newest.stderr == ""
    assert in_order([json.loads(line) for line in newest.stdout.splitlines()]) == in_order(ROWS[1:])
    few = minilog(cluster, "consume", "latest", "--view", "latest", "--columns", "delay", "--where", "delay < 60")
    assert few.stdout == '{"delay":33}\n'
    table = minilog(
        cluster, "consume", "latest", "--view", "latest", "--format", "csv", "--columns", "carrier", "-n", "2"
    )
    assert table.stdout.splitlines()[0] == '"carrier"'
    assert len(table.stdout.splitlines()) == 3


def test_a_view_of_keys_and_values_prints_records(cluster: Cluster) -> None:
    assert minilog(cluster, "topic", "create", "pairs", "-p", "1", "-r", "3").returncode == 0
    text = "a 1\nb 2\na 3\n"
    assert minilog(cluster, "produce", "pairs", "--key-delimiter", " ", stdin=text).returncode == 0
    assert minilog(cluster, "produce", "pairs", stdin="no key\n").returncode == 0
    ended = minilog(cluster, "consume", "pairs", "--view", "latest", "-f", r"%k %s %o\n")
    assert ended.stdout == "b 2 1\na 3 2\n"
    assert ended.stderr == "1 records of topic pairs have no key: the newest rows of its keys are without them\n"
    assert minilog(cluster, "consume", "pairs", "--view", "latest").stdout == "2\n3\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "end"], "leave -o out"),
        (["-g", "readers"], "leave -g out"),
        (["--json"], "leave --json and -f out"),
    ],
)
def test_options_that_a_view_does_not_have_are_refused(cluster: Cluster, options: list[str], message: str) -> None:
    if "--json" in options:
        made(cluster, "rows")
    ended = minilog(cluster, "consume", "rows", "--view", "latest", *options)
    assert ended.returncode != 0
    assert message in " ".join(ended.stderr.replace("│", " ").split())
