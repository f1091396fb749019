"""How a verb of the command line is declared: a function of its own arguments, which returns or yields its output.

`verb` gives the function the options that verbs share: --json, and where its first argument is the `cluster` also
--bootstrap-server and --command-config. The function returns an Output, yields several, or prints by itself while it
runs. An error that it raises becomes one line and an exit code in app.py.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from minilog_broker.printable import say
from minilog_tools.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
)
from minilog_tools.cli.examples import examples

if TYPE_CHECKING:
    from minilog import Admin


class TextTable(NamedTuple):
    """A table for people, as print_table takes it."""

    columns: Iterable[str]
    rows: Iterable[Iterable[object]]
    title: str | None = None


class Output:
    """The output of a verb: for machines the `document`, for people the lines and tables of `text`."""

    def __init__(self, document: object, *text: str | TextTable) -> None:
        self.document = document
        self.text = text

    def print(self, *, as_json: bool) -> None:
        """Print it on stdout."""
        if as_json:
            print_json(self.document)
            return
        for part in self.text:
            if isinstance(part, str):
                say(part)
            else:
                print_table(*part)


class Cluster:
    """The cluster that one command line names. The command connects when it first uses `admin`. So the command tells
    wrong usage before that."""

    def __init__(self, given: Mapping[str, str | None], open_until: contextlib.ExitStack, *, as_json: bool) -> None:
        self.as_json = as_json
        self._given = given
        self._open_until = open_until

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings of a client of it. Raises InvalidConfig."""
        return client_settings(**self._given)

    def check_settings(self) -> None:
        """Read the settings before the command reads anything else. Raises InvalidConfig."""
        assert self.settings

    @cached_property
    def admin(self) -> Admin:
        """An Admin, until the command ends. Raises InvalidConfig."""
        return self._open_until.enter_context(admin_client(self.settings))


Verb = Callable[..., Output | Iterable[Output] | None]
_OF_CLUSTER = {"bootstrap_servers": BootstrapServers, "command_config": CommandConfig}


def command(function: Verb) -> Callable[..., None]:
    """The function with the options that verbs share. It prints what the given one returns or yields."""
    given = inspect.signature(function, eval_str=True)
    own = list(given.parameters.values())
    asks_cluster = bool(own) and own[0].name == "cluster"
    shared = {**_OF_CLUSTER, "as_json": AsJson} if asks_cluster else {"as_json": AsJson}

    @wraps(function)
    def run(*, as_json: bool, **arguments: Any) -> None:
        with contextlib.ExitStack() as stack:
            if asks_cluster:
                named = {name: arguments.pop(name) for name in _OF_CLUSTER}
                arguments["cluster"] = Cluster(named, stack, as_json=as_json)
            said = function(**arguments)
            for output in [said] if isinstance(said, Output) else said or ():
                output.print(as_json=as_json)

    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=False if name == "as_json" else None,
            annotation=annotation,
        )
        for name, annotation in shared.items()
    ]
    run.__signature__ = given.replace(parameters=[*own[asks_cluster:], *options])  # type: ignore[attr-defined]
    run.__annotations__ = {}  # the signature has them, evaluated
    return run


def verb(app: typer.Typer, *shown: str, name: str | None = None) -> Callable[[Verb], Verb]:
    """Declare a function as a verb of `app`, by its own name or by `name`. Its help ends with the command lines that
    are `shown`, two or more."""

    def declared(function: Verb) -> Verb:
        app.command(name, epilog=examples(*shown))(command(function))
        return function

    return declared
