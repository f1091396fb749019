"""What a coordinator knows when its term is over: no more than one that never led. A broker keeps it for its next term.

All fields are compared, down to the last container, so that no reset can be missing. What goes on is named here.
"""

from __future__ import annotations

import itertools
import types
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any

GOES_ON = {
    "_count": "numbers of answers, in their order",
    "_numbers": "numbers of questions: an answer to one of an earlier term is known by its number",
    "_epoch_start": "whoever leads sets it first",
    "_activated_ms": "whoever leads sets it first",
    "slack_records": "a setting",
    "taken_bytes": "a sum, of which each call takes a difference",
}
_PLAIN = (int, float, str, bytes, bool, type(None))
_CODE = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, itertools.count)


def assert_forgotten(former: object, fresh: object) -> None:
    """`fresh`: one that never led."""
    left = known_beyond(former, fresh)
    assert not left, f"of its term a coordinator keeps {left}"


def known_beyond(one: object, fresh: object) -> list[str]:
    """What one knows otherwise than one that never led."""
    return sorted(set(_knows(one)) ^ set(_knows(fresh)))


def _knows(of: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[str]:
    """Each thing that it knows, and where."""
    if isinstance(of, _PLAIN):
        yield f"{path} = {of!r}"
    elif isinstance(of, Mapping):
        for key, value in of.items():
            yield from _knows(value, f"{path}[{key!r}]", seen)
    elif isinstance(of, (Set, list, tuple, deque)):
        for number, value in enumerate(of):
            yield from _knows(value, f"{path}[{number}]", seen)
    elif not isinstance(of, _CODE) and id(of) not in seen and type(of).__module__.startswith("minilog"):
        for name, value in _fields(of):
            if name not in GOES_ON:
                yield from _knows(value, f"{path}.{name}", seen | {id(of)})


def _fields(of: object) -> Iterator[tuple[str, Any]]:
    for kind in type(of).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(of, name):
                yield name, getattr(of, name)
    yield from vars(of).items() if hasattr(of, "__dict__") else ()
