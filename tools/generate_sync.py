"""Generates the blocking clients of client/minilog/sync from the documented ones for asyncio. With --check it tells
whether what is checked in is fresh.

A class is made in one of two ways. Most calls of an Admin or a transaction are passed on: the background loop runs the
method of the class for asyncio. The methods of a Producer or a Consumer are turned: the same lines without `await`, so
that a record is taken, decoded and handed out on the thread of the program. Only what they ask of the shell runs on the
loop. Private methods are never generated: the class in minilog.sync.base has those of the same names, for threads.

In both ways the docstring is the one of the class for asyncio. A method that a program may call while the loop is
elsewhere first looks whether this process has forked, and what a program gives is copied on the program's thread
(`own`), since an iterator of it may wait, or call minilog.
"""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIENT = ROOT / "client"
SYNC = CLIENT / "minilog" / "sync"
ITERATED = re.compile(r"\b(Iterable|Mapping|Sequence|Topics)\b")  # in the annotation of what may be an iterator
RENAMED = {"__aiter__": "__iter__", "__anext__": "__next__"}
Method: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Edit: TypeAlias = tuple[int, int, bytes]  # the bytes from here to there become these


@dataclass(frozen=True)
class Facade:
    """One blocking class: the module and name of the class for asyncio, and its methods that the facade leaves out."""

    module: str
    name: str
    is_turned: bool = False
    without: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        return f"{self.name}Base"


FILES: dict[str, tuple[str, tuple[Facade, ...]]] = {
    "admin": ("The blocking admin client.", (Facade("minilog.aio.admin", "Admin"),)),
    "consumer": (
        "The blocking consumer: streams on the background loop, decoding on the caller's thread.",
        (Facade("minilog.aio.consumer", "Consumer", is_turned=True),),
    ),
    "producer": (
        "The blocking producer. `send` appends to a batch under a lock, and the background loop does everything else.",
        (Facade("minilog.aio.producer", "Producer", is_turned=True),),
    ),
    "queue_consumer": (
        "The blocking consumer of a queue: all of it on the background loop, but for the messages that are here "
        "already.",
        (Facade("minilog.aio.queue_consumer", "QueueConsumer", is_turned=True),),
    ),
    "transaction": (
        "Transactions for blocking programs. The classes of minilog.aio do the work, on the background loop.",
        (
            Facade("minilog.aio.transaction", "Transaction", without=("abandon",)),  # the end of the block does it
            Facade("minilog.aio.participation", "Participation", without=("transactions",)),
            # A joint transaction gives the signs of life, and ends attempts.
            Facade(
                "minilog.transactions.client",
                "Transactions",
                without=("keep_alive", "keep_alive_until_fenced", "end"),
            ),
            Facade("minilog.aio.joint_transaction", "JointTransaction", without=("leave",)),  # `close` does it
        ),
    ),
}
HOMES = {facade.name: f"minilog.sync.{file}" for file, (_, facades) in FILES.items() for facade in facades}


class Source:
    """A module's text, and where its names come from."""

    def __init__(self, module: str) -> None:
        path = CLIENT / module.replace(".", "/")
        self.text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_bytes()
        self.tree = ast.parse(self.text)
        self._lines = [0]
        for line in self.text.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def between(self, first: int, last: int, edits: list[Edit]) -> str:
        """The text from `first` to `last` with these changes."""
        text, at = b"", first
        for begin, end, new in sorted(edit for edit in edits if first <= edit[0] < last):
            text += self.text[at:begin] + new
            at = end
        return (text + self.text[at:last]).decode()

    def class_of(self, name: str) -> ast.ClassDef:
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def imports(self) -> dict[str, tuple[str, bool]]:
        """Each imported name: its import, and whether types alone need it."""
        found: dict[str, tuple[str, bool]] = {}
        for node in self.tree.body:
            is_of_types = isinstance(node, ast.If)
            for one in node.body if isinstance(node, ast.If) else [node]:
                if isinstance(one, ast.Import | ast.ImportFrom):
                    module = f"from {one.module} " if isinstance(one, ast.ImportFrom) else ""
                    for alias in one.names:
                        found[alias.asname or alias.name] = f"{module}import {ast.unparse(alias)}", is_of_types
        return found

    def defined(self) -> set[str]:
        """The names that the module defines."""
        names = {name.id for node in self.tree.body if isinstance(node, ast.Assign) for name in _names(node)}
        return names | {
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }


def methods_of(source: Source, facade: Facade) -> Iterator[Method]:
    """The methods that the facade has: the public ones, and iteration."""
    for node in source.class_of(facade.name).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name not in facade.without and (name in RENAMED or not name.startswith("_")):
                    yield node


def written(source: Source, facade: Facade) -> str:
    """The class, as text."""
    doc = ast.get_docstring(source.class_of(facade.name), clean=False)
    parts = [f'class {facade.name}({facade.base}):\n    """{blocking(doc or "")}"""\n']
    parts += [method(source, facade, node) for node in methods_of(source, facade)]
    return "\n".join(parts)


def method(source: Source, facade: Facade, node: Method) -> str:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    decorators = "".join(f"    @{ast.unparse(decorator)}\n" for decorator in node.decorator_list)
    begin, body_begin = source.start(node), source.start(body[0])
    edits = [*turned(source, node, begin)]
    head = source.between(begin, body_begin, edits).rstrip()
    if facade.is_turned:
        first = "" if isinstance(node, ast.AsyncFunctionDef) or node.name in RENAMED else _CHECK
        rest = first + source.between(body_begin, source.end(node) + 1, edits).rstrip()
    else:
        rest = "self._close()" if node.name == "close" else passed_on(node)
    return f"{decorators}    {head}\n        {rest}\n"


_CHECK = "self._loop.check_process()\n        "


def passed_on(node: Method) -> str:
    """The body of a method that the loop runs."""
    if node.decorator_list:  # a property
        return f"return self._inner.{node.name}"
    copied = _iterated(node)
    given = [f"own({name})" if name in copied else name for name in (arg.arg for arg in node.args.args[1:])]
    given += [
        f"{name}=own({name})" if name in copied else f"{name}={name}" for name in (a.arg for a in node.args.kwonlyargs)
    ]
    call = f"self._inner.{node.name}({', '.join(given)})"
    if not isinstance(node, ast.AsyncFunctionDef):
        call = f"called(lambda: {call})"
    is_none = isinstance(node.returns, ast.Constant) and node.returns.value is None
    return f"{'' if is_none else 'return '}self._loop.run({call})"


def turned(source: Source, method: Method, begin: int) -> Iterator[Edit]:
    """The changes that make a method for asyncio one for threads."""
    copied = _iterated(method)
    if isinstance(method, ast.AsyncFunctionDef):
        yield begin, begin + len(b"async "), b""
    if method.name in RENAMED:
        at = source.text.index(method.name.encode(), begin)
        yield at, at + len(method.name), RENAMED[method.name].encode()
    for comment in re.finditer(rb"  # noqa: ASYNC109", source.text[begin : source.end(method)]):
        yield begin + comment.start(), begin + comment.end(), b""
    for node in ast.walk(method):
        match node:
            case ast.Await(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self")))):
                yield source.start(node), source.start(node.value), b""
            case ast.Await(value=ast.Call() as call):
                yield source.start(node), source.start(call), b"self._loop.run("
                yield source.end(call), source.end(call), b")"
                for given in call.args:
                    if isinstance(given, ast.Name) and given.id in copied:
                        yield source.start(given), source.end(given), f"own({given.id})".encode()
            case ast.Await():
                raise SystemExit(f"{method.name} awaits what is no call: a facade has no way to wait for it")
            case ast.Name(id="StopAsyncIteration"):
                yield source.start(node), source.end(node), b"StopIteration"
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="Future"):
                yield source.start(node), source.end(node), b"Future"
            case ast.Constant(value=str(text)) if ast.get_docstring(method, clean=False) == text:
                yield source.start(node), source.end(node), f'"""{blocking(text)}"""'.encode()


def blocking(text: str) -> str:
    """A docstring without the words of asyncio."""
    return re.sub(r"\bawait ", "", re.sub(r"\basync (with|for)\b", r"\1", text))


def _iterated(node: Method) -> set[str]:
    given = (*node.args.args, *node.args.kwonlyargs)
    return {arg.arg for arg in given if arg.annotation is not None and ITERATED.search(ast.unparse(arg.annotation))}


def _names(node: ast.AST) -> list[ast.Name]:
    return [found for found in ast.walk(node) if isinstance(found, ast.Name)]


def imports_of(body: str, file: str, sources: list[Source]) -> tuple[list[str], list[str]]:
    """The imports of the names in `body`, and those that types alone need. What the base defines comes from the base,
    and a blocking class from its own file."""
    base = f"minilog.sync.base.{file}"
    known: dict[str, tuple[str, bool]] = {"Future": ("from concurrent.futures import Future", False)}
    for source in sources:
        known |= source.imports()
    for module in ("minilog.sync.base", base):
        known |= {name: (f"from {module} import {name}", False) for name in Source(module).defined()}
    known |= {name: (f"from {home} import {name}", False) for name, home in HOMES.items()}
    tree = ast.parse(body)
    local = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    local |= {arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg)}
    local |= {name.id for name in _names(tree) if isinstance(name.ctx, ast.Store)}
    used = sorted({name.id for name in _names(tree)} - local)
    wanted = [known[name] for name in used if name in known]  # builtins, and what a method imports itself, are not
    return [one for one, is_of_types in wanted if not is_of_types], [one for one, is_of_types in wanted if is_of_types]


def generated(file: str) -> str:
    """The text of one file of minilog.sync."""
    says, facades = FILES[file]
    sources = [Source(facade.module) for facade in facades]
    body = "\n\n".join(written(source, facade) for source, facade in zip(sources, facades, strict=True))
    imports, of_types = imports_of(body, file, sources)
    lines = [f'"""{says}', "", "Generated from the classes for asyncio by tools/generate_sync.py: do not edit.", '"""']
    lines += ["from __future__ import annotations", *imports]
    if of_types:
        lines += ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", *(f"    {line}" for line in of_types)]
    return formatted("\n".join([*lines, body]), SYNC / f"{file}.py")


def formatted(text: str, path: pathlib.Path) -> str:
    ruff = (sys.executable, "-m", "ruff")
    name = ("--stdin-filename", str(path), "-")
    for command in (("check", "--quiet", "--fix", "--select", "I,RET505"), ("format", "--quiet")):
        done = subprocess.run([*ruff, *command, *name], input=text, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"ruff refuses {path.name}: {done.stderr}")
        text = done.stdout
    return text


def check() -> int:
    """Tell each checked-in file that differs from what the classes for asyncio give. Returns the exit code."""
    stale = [file for file in FILES if (SYNC / f"{file}.py").read_text() != generated(file)]
    for file in stale:
        print(f"client/minilog/sync/{file}.py is not what minilog.aio gives: run `make sync`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        raise SystemExit(check())
    for file in FILES:
        (SYNC / f"{file}.py").write_text(generated(file))
