"""A real Postgres, started for a moment: a table, several hundred changes of it, and what logical decoding says.

It needs Postgres's programs (Debian: `apt-get install postgresql`) and writes nothing outside a temporary folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from tools.cdc_story.debezium_events import Place, Table, commit_ms, lsn_number, records_of, snapshot_record

DATABASE, TABLE = "bank", "accounts"
_SLOT = "story"
_CREATE = f"""
CREATE TABLE {TABLE} (
    id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12,2), active boolean, opened date,
    seen timestamp(3), changed timestamp, at timestamptz, photo bytea, score double precision, tags integer[],
    branch smallint
)"""
_TYPES = f"""
SELECT json_object_agg(attname, format_type(atttypid, atttypmod) ORDER BY attnum) FROM pg_attribute
WHERE attrelid = '{TABLE}'::regclass AND attnum > 0"""
_CHANGES = f"""
SELECT json_build_object('lsn', lsn::text, 'xid', xid::text, 'data', data)
FROM pg_logical_slot_get_changes('{_SLOT}', NULL, NULL, 'include-timestamp', 'on')"""
_OWNERS = ("Ann", "O'Hara", "Łukasz", "null", "a, b", "new-tuple: x", 'say "hi"', "", "line\nbreak", "{}")
_ROWS_BEFORE = 25  # they are there when the connector comes
_TRANSACTIONS = 60
_USER = "postgres"  # Postgres does not run as root


class Postgres:
    """A server with one database, behind a socket in its folder."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def run(self, program: str, *arguments: str, text: str = "") -> str:
        """One of its programs. Raises CalledProcessError, with what the program said."""
        user = {"user": _USER} if os.geteuid() == 0 else {}
        command = [_find(program), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd="/", check=False, **user)  # type: ignore[call-overload]
        if done.returncode != 0:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
        return str(done.stdout)

    def query(self, *statements: str, database: str = DATABASE) -> list[str]:
        """The lines of the answers."""
        options = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(self._directory), "-U", _USER, "-d", database]
        return self.run("psql", *options, text=";\n".join(statements) + ";\n").splitlines()


def _find(program: str) -> str:
    """Debian keeps them out of the path."""
    folders = [os.environ.get("PATH", ""), *map(str, sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin")))]
    path = shutil.which(program, path=os.pathsep.join(folders))
    if path is None:
        raise RuntimeError(f"there is no {program} here: install Postgres, or leave --postgres out")
    return path


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """It is gone afterwards, with its data."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="minilog-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(directory, _USER)
    server, data = Postgres(directory), str(directory / "data")
    try:
        server.run("initdb", "-D", data, "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = f"-c wal_level=logical -c listen_addresses= -c fsync=off -c timezone=UTC -k {directory}"
        server.run("pg_ctl", "-D", data, "-w", "-l", str(directory / "log"), "-o", settings, "start")
        try:
            server.query(f"CREATE DATABASE {DATABASE}", database="postgres")
            yield server
        finally:
            server.run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def record_changes(seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a connector that comes to a table with rows and follows it, and the rows at the end as JSON."""
    with running_postgres() as server:
        dice = random.Random(seed)
        server.query(_CREATE, *(_insert(dice, number) for number in range(_ROWS_BEFORE)))
        server.query(f"SELECT 1 FROM pg_create_logical_replication_slot('{_SLOT}', 'test_decoding')")
        types = json.loads(server.query(_TYPES)[0])
        table = Table(DATABASE, "public", TABLE, types, ("id",))
        as_texts = ", ".join(f"'{name}', {name}::text" for name in types)
        before = server.query(f"SELECT json_build_object({as_texts}) FROM {TABLE} ORDER BY id")
        server.query(*_transactions(dice))
        decoded = [json.loads(line) for line in server.query(_CHANGES)]
        rows = server.query(f"SELECT row_to_json({TABLE}) FROM {TABLE} ORDER BY id")
    first = Place(lsn_number(decoded[0]["lsn"]), 0, next(filter(None, (commit_ms(line["data"]) for line in decoded))))
    records = [snapshot_record(table, json.loads(row), first) for row in before]
    return [*records, *_records(table, decoded)], rows


def _records(table: Table, decoded: Sequence[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """A change has the time of the COMMIT behind it."""
    waiting: list[dict[str, str]] = []
    for line in decoded:
        waiting.append(line)
        if (at_ms := commit_ms(line["data"])) is not None:
            for change in waiting:
                yield from records_of(
                    table, change["data"], Place(lsn_number(change["lsn"]), int(change["xid"]), at_ms)
                )
            waiting.clear()


def _transactions(dice: random.Random) -> Iterator[str]:
    live, following = list(range(_ROWS_BEFORE)), _ROWS_BEFORE
    for _ in range(_TRANSACTIONS):
        yield "BEGIN"
        for _ in range(dice.randint(1, 6)):
            kind = dice.choices(("insert", "update", "delete", "key", "again"), (3, 6, 2, 1, 1))[0]
            chosen = dice.choice(live)
            if kind == "insert":
                yield _insert(dice, following)
                live.append(following)
                following += 1
            elif kind == "update":
                name, value = dice.choice(list(_values(dice).items()))
                yield f"UPDATE {TABLE} SET {name} = {value} WHERE id = {chosen}"
            elif kind == "key":
                yield f"UPDATE {TABLE} SET id = {following} WHERE id = {chosen}"
                live[live.index(chosen)] = following
                following += 1
            else:
                yield f"DELETE FROM {TABLE} WHERE id = {chosen}"
                live.remove(chosen)
                if kind == "again":
                    yield _insert(dice, chosen)
                    live.append(chosen)
        yield "COMMIT"


def _insert(dice: random.Random, number: int) -> str:
    values = _values(dice)
    return f"INSERT INTO {TABLE} (id, {', '.join(values)}) VALUES ({number}, {', '.join(values.values())})"


def _values(dice: random.Random) -> dict[str, str]:
    """Values of all columns but the key, as SQL; most may be null."""
    day = f"'{dice.randint(1960, 2030)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}'"
    time = f"{day[:-1]} {dice.randint(0, 23):02}:{dice.randint(0, 59):02}:{dice.randint(0, 59):02}"
    values = {
        "balance": str(dice.randint(-(10**12) + 1, 10**12 - 1) / 100 if dice.random() < 0.5 else dice.randint(-5, 5)),
        "active": dice.choice(("true", "false")),
        "opened": day,
        "seen": f"{time}.{dice.randint(0, 999):03}'",
        "changed": f"{time}.{dice.randint(0, 999999):06}'",
        "at": f"{time}.{dice.randint(0, 99):02}+0{dice.randint(0, 9)}'",
        "photo": rf"'\x{dice.randbytes(dice.randint(0, 6)).hex()}'",
        "score": repr(dice.uniform(-1e6, 1e6)),
        "tags": f"'{{{', '.join(dice.choice(('1', '-20', 'NULL')) for _ in range(dice.randint(0, 3)))}}}'",
        "branch": str(dice.randint(-300, 300)),
    }
    values = {name: "NULL" if dice.random() < 0.15 else value for name, value in values.items()}
    return {"owner": "'" + dice.choice(_OWNERS).replace("'", "''") + "'", **values}
