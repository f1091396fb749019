"""Every command line of every guide, run in its order against a cluster, as a reader would type it.

What differs from what a reader types are addresses, files and passwords. A process that a guide starts is not started:
there is a cluster already. What goes on for ever is ended. A command ends with exit code 0, or with the error that is
named here: it is about what a program of the guide would have done before.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from minilog import Admin
from minilog.properties import properties_file
from tests import documents, programs
from tests.cluster import free_ports, running_cluster, running_program

GUIDES = ["docs/start.md", *(name for name in documents.READ_BY_USERS if name.startswith("docs/guides/"))]
SECURED = ("docs/guides/security.md", "docs/guides/passwords.md")
STARTS_A_PROCESS = ("up", "broker", "console")
ENDS_WITHIN_S = 6.0
ROWS = '{"carrier": "UA", "delay": 2}\n'
GIVEN = {
    "docs/guides/passwords.md": {"user alter": "user create report"},
    "docs/guides/security.md": {"token create": "user delete alice"},
    "docs/guides/groups.md": {"group list": "consume flights -g report --exit-at-end"},
}
"""What a guide takes for granted: before the first command that begins so."""
EXPECTED = {
    "group seek report -t flights -p 0 -o 42": "offset 42 is outside flights-0",
    "group remove-member report worker-3": "worker-3",
    "consume flights -g report": "has members",  # the one before was killed
    "topic schema evolve flights --drop carrier --dry-run": "cannot be dropped. Write to a new topic",
    """echo {"carrier": "UA", "delay": "late"} | produce flights --format json""": "column 'delay' is int, and 'late'",
}
"""Errors: of what no program has done before, and those that a guide shows."""


class Reader:
    """Somebody who types the commands of one guide. `address`: the options that name the cluster."""

    def __init__(self, settings: dict[str, str], address: list[str], folder: pathlib.Path) -> None:
        self.address = address
        self.folder = folder
        (folder / "new-password").write_text("a-new-password-1\n")
        with Admin(settings) as admin:
            if topics := admin.list_topics():
                admin.delete_topics(topics)

    def types(self, words: list[str], stdin: str = "") -> str:
        """Run a command. The error of it, empty where there is none."""
        given = self._as_here(words)
        try:
            done = programs.run(*given, stdin=stdin or self._stdin(words), timeout_s=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            return "" if words[0] == "consume" else "it does not end"
        return "" if done.returncode == 0 else f"exit code {done.returncode}: {programs.unboxed(done.stderr)}"

    def _as_here(self, words: list[str]) -> list[str]:
        kept, rest = list[str](), iter(words)
        for word in rest:
            if word in ("-b", "--command-config"):
                next(rest)
            elif word in ("FILE", "new-password"):
                kept.append(str(self.folder / "new-password"))
            elif word == "ID":
                kept.append(self._token())
            elif word.endswith((".json", ".csv", ".properties")):
                kept.append(str(self.folder / word))
                if word.endswith(".json"):
                    (self.folder / word).write_text(ROWS)
                elif word.endswith(".csv"):
                    (self.folder / word).write_text("carrier,delay\nUA,2\n")
            else:
                kept.append(word)
        if words[:2] == ["user", "create"] and "--password-file" not in words:
            kept += ["--password-file", str(self.folder / "new-password")]
        return [*kept, *self.address]

    def _token(self) -> str:
        listed = programs.run("token", "list", "--json", *self.address)
        return str(json.loads(listed.stdout)[0]["id"])

    def _stdin(self, words: list[str]) -> str:
        if words[0] == "produce":
            return ROWS if "json" in words else "a:late\n"
        return "a-new-password-1\n" if "--password-stdin" in words else ""


def commands(guide: str) -> Iterator[documents.Piped]:
    return (piped for piped in documents.piped_commands(guide) if piped.words[0] not in STARTS_A_PROCESS)


def failures(guide: str, reader: Reader) -> list[str]:
    wrong, given = [], dict(GIVEN.get(guide, {}))
    for piped in commands(guide):
        line = " ".join(piped.words)
        for beginning in [each for each in given if line.startswith(each)]:
            assert reader.types(given.pop(beginning).split()) == ""
        error = reader.types(piped.words, piped.stdin)
        if piped.stdin.startswith("{"):
            line = f"echo {piped.stdin.strip()} | {line}"
        expected = EXPECTED.get(line)
        if bool(error) != bool(expected) or (expected and not re.search(expected, error)):
            wrong.append(f"{guide}: minilog {line}: {error or 'no error'}")
    return wrong


@pytest.mark.dear("it runs many programs of the command line")
def test_the_commands_of_the_guides_run(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path, brokers=1) as cluster:
        wrong = []
        for guide in GUIDES:
            if guide not in SECURED and any(commands(guide)):
                wrong += failures(guide, Reader(cluster.client, ["-b", cluster.bootstrap_servers], tmp_path))
    assert not wrong, "\n".join(wrong)


@pytest.mark.dear("it runs many programs of the command line")
@pytest.mark.parametrize("guide", SECURED)
def test_the_commands_of_a_secured_cluster_run(guide: str, tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    command = [*programs.MINILOG, "up", "--secure", "--brokers", "1", "--port", str(port), "--http-port", "0"]
    with running_program([*command, "--data-dir", str(tmp_path / "data")]) as process:
        assert process.stdout is not None
        assert documents.PRINTED in process.stdout.readline()
        file = str(tmp_path / "data/client.properties")
        wrong = failures(guide, Reader(properties_file(file), ["--command-config", file], tmp_path))
        process.terminate()  # a killed `up` would leave its broker
        assert process.wait(30.0) == 0
    assert not wrong, "\n".join(wrong)
