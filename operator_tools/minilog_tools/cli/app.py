"""The tree of commands. Each failure ends with one line, which names the problem and the remedy, and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Container
from typing import Annotated, Any

import typer

from minilog.errors import InvalidConfig, InvalidRequiredAcks, MinilogError
from minilog_broker.failure import CommandFailed
from minilog_broker.imports import uncollected
from minilog_broker.printable import say
from minilog_broker.version import say_version
from minilog_tools.cli.completion import ASKED_VARIABLE, words_to_complete
from minilog_tools.cli.examples import examples
from minilog_tools.extras import missing_extra

DONE, FAILED, WRONG_USAGE = 0, 1, 2
_INTERRUPTED_BY_TYPER = 130

# Each command is a function in the module of its name. Here are its summary for the list of commands and its examples.
_COMMANDS = {
    "up": (
        "Run a local cluster until SIGINT or SIGTERM.",
        examples("minilog up --data-dir /tmp/minilog", "minilog up --brokers 5 --port 0 --secure"),
    ),
    "check": (
        "Read every file in the data directory of a stopped broker, and report damage.",
        examples("minilog check /var/lib/minilog", "minilog check /var/lib/minilog --repair-indexes --json"),
    ),
    "demo": (
        "Replicate the flights of 2013, let Spark join them with the weather, kill a broker, and count.",
        examples("minilog demo", "minilog demo --records 50000 --report report.json"),
    ),
    "produce": (
        "Write one record per line of stdin. With --format: the rows of files, or of stdin, to a typed topic.",
        examples(
            "printf 'UA:late\\n' | minilog produce flights --key-delimiter :",
            "minilog produce flights -k UA -H source=radar --file late.json",
            "minilog produce typed --format csv flights.csv",
        ),
    ),
    "consume": (
        "Print records until a signal. Ctrl-C is a clean end.",
        examples(
            "minilog consume flights -o start --exit-at-end --json",
            "minilog consume flights weather -f '%t-%p@%o %k: %s\\n'",
        ),
    ),
    "completion": (
        "Print the script by which a shell completes verbs and options.",
        examples(
            'eval "$(minilog completion bash)"',
            "minilog completion zsh > ~/.zfunc/_minilog",
            "minilog completion fish > ~/.config/fish/completions/minilog.fish",
        ),
    ),
    "console": (
        "Serve pages about a cluster, for a browser, until SIGINT or SIGTERM.",
        examples(
            "minilog console -b 127.0.0.1:9092",
            "minilog console --listen 0.0.0.0:9644 --ssl-keystore console.pem --command-config console.properties",
        ),
    ),
}
# Each group is the `app` of the module of its name.
_GROUPS = {
    "acl": "Add, list and remove access rules.",
    "broker": "Run one broker until SIGINT or SIGTERM. Its verbs alter settings of brokers, and retire brokers.",
    "cert": "Make keys and certificates for tests and trials.",
    "cluster": "Describe, upgrade, rebalance, back up and restore the cluster.",
    "config": "Print settings as they count, with their origins.",
    "group": "List, describe, seek and delete groups.",
    "queue": "List, describe, alter and delete queues, show their records, and redrive dead letters.",
    "transaction": "List, describe and abort transactions.",
    "quota": "Set, list and remove quotas of users.",
    "topic": "Create, list, describe, delete and alter topics.",
    "token": "Create, renew, expire and list delegation tokens.",
    "user": "Create, alter, delete and list users, which log in by SCRAM.",
}
VERBS = (*_COMMANDS, *_GROUPS)


def tree(loaded: Container[str] = VERBS) -> typer.Typer:
    """The tree of commands. A verb that is not in `loaded` has only its name and help. Its module is not imported."""
    app = typer.Typer(
        name="minilog",
        help="A replicated, columnar commit log for Apache Spark.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_minilog)
    for name, (summary, shown) in _COMMANDS.items():
        verb = getattr(_module(name), name) if name in loaded else _not_loaded
        app.command(name, help=None if name in loaded else summary, epilog=shown)(verb)
    for name, summary in _GROUPS.items():
        app.add_typer(_module(name).app if name in loaded else typer.Typer(), name=name, help=summary)
    return app


def _module(name: str) -> Any:
    return importlib.import_module(f"minilog_tools.cli.{name}")


def _not_loaded() -> None:
    """Stands for a command that the command line does not name."""


def _version(is_wanted: bool) -> None:
    if is_wanted:
        say_version()
        raise typer.Exit


def _minilog(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run one command line, and return its exit code."""
    try:
        typed = words_to_complete(os.environ) if ASKED_VARIABLE in os.environ else arguments
        named = [word for word in typed if not word.startswith("-")][:1]
        with uncollected():
            commands = tree(loaded=named)
        commands(arguments, prog_name="minilog")
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
    except ModuleNotFoundError as error:
        return _tell(missing_extra(error) or _bug(error), FAILED)
    except Exception as error:
        return _tell(_bug(error), FAILED)
    return DONE


def _bug(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error}: this is a bug in minilog, please report it"


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
    """The reader of our output has closed it, as `head` does. It does not want the rest, and nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
