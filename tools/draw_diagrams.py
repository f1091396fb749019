"""Pictures of the documents' diagrams in Mermaid's language, for the site, which loads nothing from the net.

    python -m tools.draw_diagrams     # needs npm and Chromium

The name of a picture comes from its text (`build_site.picture_of`). A changed diagram has no picture, and `make docs`
reports that.
"""

from __future__ import annotations

import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tools.build_site import DIAGRAMS, MERMAID, MOVED, ROOT, picture_of

_MERMAID = "mermaid@12.3.0"
_PAGE = """<!doctype html><meta charset="utf-8"><pre class="mermaid">{diagram}</pre>
<script src="{library}"></script>
<script>mermaid.initialize({{startOnLoad: true, theme: "neutral", htmlLabels: false,
flowchart: {{htmlLabels: false, wrappingWidth: 320}}, fontFamily: "system-ui, sans-serif"}})</script>"""
_DRAWN_WITHIN_MS = 15_000
_SCALE = 0.85  # its letters are then as large as those of the text


def main() -> int:
    documents = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in MOVED)]
    diagrams = {picture_of(match[1]): match[1] for file in documents for match in MERMAID.finditer(file.read_text())}
    folder = ROOT / DIAGRAMS
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        if str(old.relative_to(ROOT)) not in diagrams:
            old.unlink()
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["npm", "install", "--silent", "--no-save", _MERMAID], cwd=place, check=True)
        library = pathlib.Path(place, "node_modules/mermaid/dist/mermaid.min.js")
        for picture, diagram in diagrams.items():
            if not (ROOT / picture).is_file():
                (ROOT / picture).write_text(_drawn(diagram, library, pathlib.Path(place)))
                print(f"drawn: {picture}")
    return 0


def _drawn(diagram: str, library: pathlib.Path, folder: pathlib.Path) -> str:
    """The diagram as SVG."""
    page = folder / "page.html"
    page.write_text(_PAGE.format(diagram=html.escape(diagram), library=library.as_uri()))
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    options += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
    ]
    options += [f"--virtual-time-budget={_DRAWN_WITHIN_MS}", "--dump-dom", page.as_uri()]
    dumped = subprocess.run([browser, *options], capture_output=True, check=True, timeout=120).stdout.decode()
    match = re.search(r"<svg.*?</svg>", dumped, re.DOTALL)
    if match is None:
        raise SystemExit(f"Mermaid drew nothing of:\n{diagram}")
    width, height = (float(size) * _SCALE for size in re.findall(r'viewBox="\S+ \S+ (\S+) (\S+)"', match[0])[0])
    drawn = re.sub(r"mermaid-\d+", "diagram", match[0]).replace("<br>", "<br/>")  # in HTML a break has no end
    return drawn.replace('width="100%"', f'width="{width:.0f}" height="{height:.0f}"', 1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
