"""The site of the documents: this tool lays out the pages, Zensical builds them, and the tool checks the result.

    python -m tools.build_site        # or `make docs`. Begin at artifacts/site/html/index.html

Pages are the files of docs/, and some files of the root, which keep their place in git (`MOVED`). Each relative link
leads to the place of its file in the site. A diagram in Mermaid's language becomes the picture that
tools/draw_diagrams.py drew of it. Zensical, in its strict mode, refuses a link to a missing page or heading. Then the
tool follows each address in the built pages. All must be inside the site, with their anchors. A page must load nothing
from the net, so that the site works from a folder.
"""

from __future__ import annotations

import hashlib
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "artifacts/site/pages"
BUILT = ROOT / "artifacts/site/html"
DIAGRAMS = "docs/images/diagrams"
MOVED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "internals/architecture.md",
    "HACKING.md": "internals/hacking.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "SECURITY.md": "internals/reporting.md",
    "CHANGELOG.md": "reference/changelog.md",
}
"""Documents outside of docs/, with their places in the site."""

MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
_LOADING = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_OF_THE_THEME = "__"  # anchors that its own scripts look after
_FROM_THE_NET_IN_CSS = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(https?:)?//")


class SiteError(Exception):
    """A fault of the documents or of the built site: its place, and what to do."""


def main() -> int:
    try:
        lay_out(PAGES)
        _build()
        wrong = list(faults(BUILT))
    except SiteError as error:
        wrong = [str(error)]
    for line in wrong:
        print(f"docs: {line}", file=sys.stderr)
    if not wrong:
        print(f"the site is built: {BUILT.relative_to(ROOT) / 'index.html'}")
    return 1 if wrong else 0


def lay_out(pages: pathlib.Path) -> None:
    """Write the sources of all pages into one folder."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    for source in (*(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md")), *MOVED):
        target = pages / place_of(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(source, (ROOT / source).read_text()))


def place_of(source: str) -> str:
    """The place of a file of the repository in the site, empty where it has none."""
    if source in MOVED:
        return MOVED[source]
    return source.removeprefix("docs/") if source.startswith("docs/") else ""


def page(source: str, text: str) -> str:
    """A document as a page of the site."""

    def drawn(match: re.Match[str]) -> str:
        picture = picture_of(match[1])
        if not (ROOT / picture).is_file():
            raise SiteError(f"{source}: a diagram has no picture: run python -m tools.draw_diagrams (npm and Chromium)")
        return f"![Diagram]({os.path.relpath(picture, pathlib.Path(source).parent)})"

    return _LINK.sub(lambda match: match[1] + _moved(source, match[2]) + match[3], MERMAID.sub(drawn, text))


def picture_of(diagram: str) -> str:
    """The file for the picture of this text. Another text has another file."""
    return f"{DIAGRAMS}/{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def _moved(source: str, link: str) -> str:
    """The link as the page of `source` has it in the site."""
    path, mark, anchor = link.partition("#")
    if not path or "://" in link:
        return link
    target = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if not (ROOT / target).exists():
        return link  # not a link, or one that Zensical refuses
    place = place_of(target)
    if not place:
        raise SiteError(f"{source}: the link to {link} leaves the documents: name the file in backquotes instead")
    return os.path.relpath(place, os.path.dirname(place_of(source)) or ".") + mark + anchor


def _build() -> None:
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode:
        raise SiteError(f"the site was not built:\n{_COLOURS.sub('', built.stdout.decode(errors='replace'))}")


@dataclass
class _Page(html.parser.HTMLParser):
    """The anchors of a built page, the addresses that it loads, and its links."""

    anchors: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in _LOADING and _LOADING[tag] in values:
            self.loaded.append(values[_LOADING[tag]])


def faults(built: pathlib.Path) -> Iterator[str]:
    """The faults of the built pages, one line for each."""
    pages = {file: _read(file) for file in sorted(built.rglob("*.html"))}
    if not pages:
        yield f"{built} has no page"
    for file, contents in pages.items():
        name = file.relative_to(built)
        for address in contents.loaded:
            if urllib.parse.urlsplit(address).netloc:
                yield f"{name} loads {address} from the net"
            elif not _target(built, file, address).is_file():
                yield f"{name} loads {address}, which is not there"
        for address in contents.links:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = _target(built, file, address)
            if target not in pages and not target.is_file():
                yield f"{name} links to {address}, which is not there"
            elif target in pages and not _has(pages[target], parts.fragment):
                yield f"{name} links to {address}, and that page has no such anchor"
    for sheet in built.rglob("*.css"):
        if _FROM_THE_NET_IN_CSS.search(sheet.read_text()):
            yield f"{sheet.relative_to(built)} loads something from the net"


def _has(page: _Page, anchor: str) -> bool:
    return not anchor or anchor.startswith(_OF_THE_THEME) or anchor in page.anchors


def _read(file: pathlib.Path) -> _Page:
    contents = _Page()
    contents.feed(file.read_text())
    return contents


def _target(built: pathlib.Path, file: pathlib.Path, address: str) -> pathlib.Path:
    path = urllib.parse.unquote(urllib.parse.urlsplit(address).path)
    target = built / path.lstrip("/") if path.startswith("/") else (file.parent / path if path else file)
    target = pathlib.Path(os.path.normpath(target))
    return target / "index.html" if target.is_dir() else target


if __name__ == "__main__":
    sys.exit(main())
