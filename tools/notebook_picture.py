"""Take the guide's picture of the notebook: its cells, run against a real broker, with what they print.

.venv/bin/python -m tools.notebook_picture     needs `chromium` and `chromedriver`, writes docs/images/notebook.png
"""

from __future__ import annotations

import contextlib
import html
import io
import pathlib
import sys
import tempfile

from minilog.testing import running_cluster
from tests.console.browser import running_browser
from tests.documents import ROOT, blocks

PAGE = "docs/guides/reading.md"
PICTURE = ROOT / "docs" / "images" / "notebook.png"
_WIDTH = 1060
_STYLE = """
body { margin: 0; padding: 16px 20px; background: #fff; color: #1d2433; font: 15px system-ui, sans-serif }
div { display: grid; grid-template-columns: 64px 1fr; margin: 0 0 10px }
span { color: #2f5fb3; font: 13px monospace; padding-top: 9px }
pre { margin: 0; padding: 8px 12px; font: 13px/1.45 "DejaVu Sans Mono", monospace; white-space: pre-wrap }
pre.code { background: #f4f6fa; border: 1px solid #d5dbe6; border-radius: 4px }
"""


def cells(servers: str) -> list[tuple[str, str]]:
    """The code of each cell of the page, and what it prints. Cells share their variables, as in a notebook."""
    variables: dict[str, object] = {"__name__": "notebook"}
    run = list[tuple[str, str]]()
    for block in blocks(PAGE):
        printed = io.StringIO()
        code = block.code.replace("127.0.0.1:9092", servers)
        with contextlib.redirect_stdout(printed):
            exec(compile(code, block.place, "exec"), variables)
        run.append((block.code, printed.getvalue()))
    return run


def page_of(run: list[tuple[str, str]]) -> str:
    """The cells as one page of HTML."""
    parts = [f"<!doctype html><meta charset=utf-8><title>Reading rows</title><style>{_STYLE}</style>"]
    for number, (code, printed) in enumerate(run, 1):
        parts.append(f"<div><span>[{number}]</span><pre class=code>{html.escape(code.rstrip())}</pre></div>")
        if printed:
            parts.append(f"<div><span></span><pre>{html.escape(printed.rstrip())}</pre></div>")
    return "\n".join(parts)


def main() -> int:
    with running_cluster() as cluster:
        page = page_of(cells(cluster.bootstrap_servers))
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        file = pathlib.Path(folder) / "notebook.html"
        file.write_text(page)
        browser.look(_WIDTH, 800)
        browser.open(file.as_uri())
        browser.picture(PICTURE, int(browser.run("return document.documentElement.scrollHeight")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
