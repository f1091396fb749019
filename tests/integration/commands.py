"""Commands of `minilog` against the cluster of a test."""

from __future__ import annotations

import subprocess

from tests import programs
from tests.cluster import Cluster


def minilog(cluster: Cluster, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command's end. Whatever goes wrong, a person sees no traceback."""
    ended = programs.run(*arguments, stdin=stdin, environment={"MINILOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers})
    assert "Traceback" not in ended.stderr
    return ended


def done(cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    """What a command that succeeds prints."""
    ended = minilog(cluster, *arguments, stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
