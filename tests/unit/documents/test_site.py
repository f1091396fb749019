"""The way of documents to pages, and the faults of built pages (tools/build_site.py)."""

from __future__ import annotations

import pathlib
import re

import pytest

from tests.rules import proves
from tools import build_site
from tools.build_site import SiteError, faults, page, picture_of, place_of

pytestmark = proves("DOC.7")

ROOT = pathlib.Path(__file__).parents[3]
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


@pytest.mark.parametrize(
    ("source", "link", "in_the_site"),
    [
        ("README.md", "docs/start.md", "start.md"),
        ("README.md", "HACKING.md", "internals/hacking.md"),
        ("HACKING.md", "ARCHITECTURE.md", "architecture.md"),
        ("HACKING.md", "docs/spec/README.md#citations", "../spec/README.md#citations"),
        ("docs/spec/README.md", "../../ARCHITECTURE.md", "../internals/architecture.md"),
        ("docs/spec/README.md", "../reference/settings.md", "../reference/settings.md"),
        ("docs/spec/README.md", "#citations", "#citations"),
        ("docs/start.md", "https://example.org/docs/start.md", "https://example.org/docs/start.md"),
    ],
)
def test_a_link_leads_to_the_same_document_in_the_site(source: str, link: str, in_the_site: str) -> None:
    assert page(source, f"see [there]({link}), and then") == f"see [there]({in_the_site}), and then"


def test_a_link_to_what_is_no_document_is_refused() -> None:
    with pytest.raises(SiteError, match=r"^HACKING\.md: the link to pyproject\.toml leaves the documents"):
        page("HACKING.md", "[settings](pyproject.toml)")


def test_a_diagram_becomes_its_picture() -> None:
    (diagram,) = build_site.MERMAID.findall((ROOT / "README.md").read_text())
    assert (ROOT / picture_of(diagram)).is_file()
    drawn = page("README.md", f"before\n\n```mermaid\n{diagram}```\n\nbehind\n")
    assert drawn == f"before\n\n![Diagram]({picture_of(diagram).removeprefix('docs/')})\n\nbehind\n"


def test_a_diagram_that_has_changed_is_to_be_drawn_anew() -> None:
    with pytest.raises(SiteError, match=r"README\.md: a diagram has no picture: run python -m tools\.draw_diagrams"):
        page("README.md", "```mermaid\nflowchart LR\n```\n")


def test_every_document_has_a_place_in_the_navigation_and_every_place_has_a_document() -> None:
    documents = [str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md")]
    places = {place_of(document) for document in (*documents, *build_site.MOVED)}
    listed = re.findall(r"(\S+\.md)$", NAVIGATION, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == places


def built(folder: pathlib.Path, **pages: str) -> list[str]:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return list(faults(folder))


def test_pages_whose_links_all_lead_somewhere_have_no_fault(tmp_path: pathlib.Path) -> None:
    (tmp_path / "style.css").write_text("a{background:url(data:image/png;base64,AA)}")
    assert not built(
        tmp_path,
        index='<link href="style.css"><a href="other.html#there">x</a><a href="https://example.org/">y</a>',
        other='<h2 id="there">z</h2><a href="#there">w</a><a href="#__top">v</a>',
    )


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "index.html links to gone.html, which is not there"),
        ('<a href="#gone">x</a>', "index.html links to #gone, and that page has no such anchor"),
        ('<img src="gone.png">', "index.html loads gone.png, which is not there"),
        ('<script src="https://example.org/x.js">', "index.html loads https://example.org/x.js from the net"),
        ('<link href="//example.org/x.css">', "index.html loads //example.org/x.css from the net"),
    ],
)
def test_a_fault_of_a_page_is_one_line(tmp_path: pathlib.Path, body: str, fault: str) -> None:
    assert built(tmp_path, index=body) == [fault]


def test_a_sheet_that_loads_a_font_from_the_net_is_a_fault(tmp_path: pathlib.Path) -> None:
    (tmp_path / "style.css").write_text("@font-face{src:url(https://example.org/x.woff2)}")
    assert built(tmp_path, index="x") == ["style.css loads something from the net"]


def test_no_pages_are_a_fault(tmp_path: pathlib.Path) -> None:
    assert list(faults(tmp_path)) == [f"{tmp_path} has no page"]
