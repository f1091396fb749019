"""A page: its path, and the function that builds it. And one piece of a long list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minilog_tools.console.cluster_view import ClusterView
from minilog_tools.console.record_reader import RecordReader

ON_ONE_PAGE = 50
MAX_FILTER_CHARACTERS = 255

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Visit:
    """A viewer's request for a page. `fields`: those of the query."""

    view: ClusterView
    fields: dict[str, str]
    reader: RecordReader

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Page:
    """`section`: the page's entry in the navigation. `is_live`: the browser asks for the page again and again."""

    path: str
    template: str
    section: str
    build: Callable[[Visit], Awaitable[Mapping[str, Any]]]
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class ListPiece(Generic[Item]):
    """One piece of a long list. `number` counts from 1."""

    items: Sequence[Item]
    number: int
    count: int
    total: int
    query: str

    def of(self, items: Sequence[Other]) -> ListPiece[Other]:
        """The same piece, with `items` in the place of its own."""
        return ListPiece(items, self.number, self.count, self.total, self.query)


def piece_of(
    visit: Visit, every: Sequence[Item], name: Callable[[Item], str], size: int = ON_ONE_PAGE
) -> ListPiece[Item]:
    """One piece, of `size` items, of those whose name has the text of the field `q`. The field `page` is its number."""
    query = visit.field("q")[:MAX_FILTER_CHARACTERS]
    chosen = [item for item in every if query.lower() in name(item).lower()]
    count = max(1, -(-len(chosen) // size))
    page = visit.field("page")
    number = min(count, max(1, int(page))) if page.isascii() and page.isdigit() and len(page) < 10 else 1
    return ListPiece(chosen[(number - 1) * size : number * size], number, count, len(chosen), query)
