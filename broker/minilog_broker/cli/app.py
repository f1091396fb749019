"""The tree of commands, and how every failure ends: one line saying what and what to do, and the right exit code."""

from __future__ import annotations

import contextlib
import os
import sys

import typer

from minilog.errors import InvalidConfig, InvalidRequiredAcks, MinilogError
from minilog_broker.cli import (
    acl,
    broker,
    cert,
    cluster,
    config,
    consume,
    demo,
    group,
    produce,
    quota,
    token,
    topic,
    transaction,
    up,
    user,
)
from minilog_broker.cli.common import say
from minilog_broker.failure import CommandFailed

DONE, FAILED, WRONG_USAGE = 0, 1, 2
_INTERRUPTED_BY_TYPER = 130

app = typer.Typer(
    name="minilog",
    help="A replicated, columnar commit log for Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: minilog up --brokers 3 --data-dir /tmp/minilog")(up.up)
app.command(epilog="Example: minilog broker --id 1 --listen 127.0.0.1:9092 --data-dir d --voters 1@127.0.0.1:9092")(
    broker.broker
)
app.command(epilog="Example: minilog demo --report report.json")(demo.demo)
app.command(epilog="Example: printf 'UA:late\\n' | minilog produce flights --key-delimiter :")(produce.produce)
app.command(epilog="Example: minilog consume flights -o start --exit-at-end --json")(consume.consume)
app.add_typer(acl.app, name="acl", help="Who may do what.")
app.add_typer(cert.app, name="cert", help="Keys and certificates, of an authority for tests and trials.")
app.add_typer(cluster.app, name="cluster", help="The brokers and who controls them.")
app.add_typer(config.app, name="config", help="Which settings count, and who says so.")
app.add_typer(group.app, name="group", help="How far the groups of consumers have got.")
app.add_typer(transaction.app, name="transaction", help="List, describe and abort transactions.")
app.add_typer(quota.app, name="quota", help="How much a user may do.")
app.add_typer(topic.app, name="topic", help="Create, list, describe, delete and alter topics.")
app.add_typer(token.app, name="token", help="Delegation tokens: to log in for a while in the name of their owner.")
app.add_typer(user.app, name="user", help="Who may log in by SCRAM.")


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        app(arguments, prog_name="minilog")
    except SystemExit as ended:
        return _exit_code(ended.code)
    except (InvalidConfig, InvalidRequiredAcks) as error:
        return _tell(error, WRONG_USAGE)
    except (CommandFailed, MinilogError) as error:
        return _tell(error, FAILED)
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        name = f": {error.filename}" if error.filename else ""
        return _tell(f"{error.strerror or error}{name}", FAILED)
    except Exception as error:
        return _tell(f"unexpected {type(error).__name__}: {error}: this is a bug in minilog, please report it", FAILED)
    return DONE


def _exit_code(code: object) -> int:
    if code == _INTERRUPTED_BY_TYPER:
        return _tell("interrupted", FAILED)
    return code if isinstance(code, int) else DONE


def _tell(message: object, code: int) -> int:
    line = " ".join(str(message).split())
    with contextlib.suppress(OSError):
        say(f"minilog: {line}", error=True)
    return code


def _reader_left() -> int:
    """Whoever read our output has closed it, as `head` does: the rest is not wanted, and nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
