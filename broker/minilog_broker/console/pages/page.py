"""A page: where it is, and what makes it. And a long list, one piece at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minilog_broker.console.cluster_view import ClusterView
from minilog_broker.console.record_reader import RecordReader

ON_ONE_PAGE = 50
MAX_FILTER_CHARACTERS = 255

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody asks for a page. `fields` are those of the query."""

    view: ClusterView
    fields: dict[str, str]
    reader: RecordReader

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Page:
    """`section`: the entry of the navigation that it belongs to. `is_live`: browsers ask for it again by themselves."""

    path: str
    template: str
    section: str
    build: Callable[[Visit], Awaitable[Mapping[str, Any]]]
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class Piece(Generic[Item]):
    """Some of many: `number` counts from 1."""

    items: Sequence[Item]
    number: int
    count: int
    total: int
    query: str

    def of(self, items: Sequence[Other]) -> Piece[Other]:
        """The same piece, with what was made of its items."""
        return Piece(items, self.number, self.count, self.total, self.query)


def piece_of(visit: Visit, every: Sequence[Item], name: Callable[[Item], str], size: int = ON_ONE_PAGE) -> Piece[Item]:
    """Those whose name has the text of the field `q`, the piece of `size` of them that the field `page` names."""
    query = visit.field("q")[:MAX_FILTER_CHARACTERS]
    chosen = [each for each in every if query.lower() in name(each).lower()]
    count = max(1, -(-len(chosen) // size))
    asked = visit.field("page")
    number = min(count, max(1, int(asked))) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1
    return Piece(chosen[(number - 1) * size : number * size], number, count, len(chosen), query)
