"""How a verb of the command line is declared: a function of its own arguments, which returns or yields its output.

`verb` gives the function the options that verbs share: --json, and where an argument is a Cluster, also
--bootstrap-server and --command-config. The function returns an Output, yields several, or prints by itself while it
runs. An error that it raises becomes one line and an exit code in app.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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


def command(function: Verb) -> Callable[..., None]:
    """The function with the options that verbs share. It prints what the given one returns or yields.

    A parameter whose type is a dataclass stands for the fields of it, which are options, too.
    """
    given = list(inspect.signature(function, eval_str=True).parameters.values())
    asking = next((parameter.name for parameter in given if parameter.annotation is Cluster), None)
    own = [parameter for parameter in given if parameter.name != asking]
    shared = inspect.signature(_of_cluster if asking else _of_each, eval_str=True).parameters.values()

    @wraps(function)
    def run(*, as_json: bool, **arguments: Any) -> None:
        with contextlib.ExitStack() as stack:
            collected = {parameter.name: _collected(parameter, arguments) for parameter in own}
            if asking:
                collected[asking] = Cluster(arguments, stack, as_json=as_json)
            said = function(**collected)
            for output in [said] if isinstance(said, Output) else said or ():
                output.print(as_json=as_json)

    options = [*(option for parameter in own for option in _expanded(parameter)), *shared]
    in_order = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    run.__signature__ = inspect.Signature(in_order)  # type: ignore[attr-defined]
    run.__annotations__ = {}  # the signature has them, evaluated
    return run


def _of_cluster(
    bootstrap_servers: BootstrapServers = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """The options of a verb that asks a cluster."""


def _of_each(as_json: AsJson = False) -> None:
    """The options of another verb."""


def _fields(parameter: inspect.Parameter) -> Iterable[inspect.Parameter]:
    """The fields of a parameter whose type is a dataclass, else none."""
    kind = parameter.annotation
    if not dataclasses.is_dataclass(kind):
        return ()
    return inspect.signature(cast("type[object]", kind), eval_str=True).parameters.values()


def _expanded(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    return [option for field in _fields(parameter) for option in _expanded(field)] or [parameter]


def _collected(parameter: inspect.Parameter, arguments: dict[str, Any]) -> Any:
    """The parameter's value, taken out of the arguments."""
    fields = {field.name: _collected(field, arguments) for field in _fields(parameter)}
    return parameter.annotation(**fields) if fields else arguments.pop(parameter.name)


def verb(app: typer.Typer, *shown: str, name: str | None = None) -> Callable[[Verb], Verb]:
    """Declare a function as a verb of `app`, by its own name or by `name`. Its help ends with the command lines that
    are `shown`, two or more."""

    def declared(function: Verb) -> Verb:
        app.command(name, epilog=examples(*shown))(command(function))
        return function

    return declared
