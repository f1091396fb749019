"""The dashboard of deploy/: its expressions, and a picture of it with what a Prometheus knows.

Grafana itself is not had here (no registry serves it; it is under the AGPL). Its components are (`@grafana/ui`, under
the Apache licence), and draw the panels of the same file: see tools/dashboard_page. Not theirs is the frame around the
panels: rows, menus, the choice of the time.
"""

from __future__ import annotations

import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from typing import Any

from tests.cluster import HOST

DEPLOY = pathlib.Path(__file__).parents[1] / "deploy"
_PAGE = pathlib.Path(__file__).parent / "dashboard_page"
_FILE = DEPLOY / "minilog-dashboard.json"
_RATE_INTERVAL = "20s"  # `$__rate_interval` is Grafana's: here a time that the load covers
_WINDOW_PX = (1616, 1730)
_DRAWN_WITHIN_MS = 20_000


def _targets() -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """Panel, target, expression."""
    return [
        (panel, target, target["expr"].replace("$__rate_interval", _RATE_INTERVAL))
        for panel in json.loads(_FILE.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def expressions() -> dict[str, str]:
    """Of the panels, by title and reference."""
    return {f"{panel['title']} {target['refId']}": expression for panel, target, expression in _targets()}


def asked(port: int, path: str, **query: str) -> Any:
    """The data of an answer of Prometheus."""
    address = f"http://{HOST}:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)["data"]


def take_picture(port: int, from_s: float, to_s: float, picture: pathlib.Path) -> None:
    """Draw what the Prometheus at `port` knows of this time. Needs npm and chromium; the first build takes minutes."""
    panels: dict[int, dict[str, Any]] = {}
    for panel, target, expression in _targets():
        found = asked(port, "query_range", query=expression, start=f"{from_s}", end=f"{to_s}", step="1")
        panels.setdefault(panel["id"], {})[target["refId"]] = found["result"]
    with tempfile.TemporaryDirectory() as folder:
        built = _built(pathlib.Path(folder))
        shutil.copy(_FILE, built / "dashboard.json")
        results = {"from_ms": 1000 * from_s, "to_ms": 1000 * to_s, "panels": panels}
        (built / "results.json").write_text(json.dumps(results))
        _photograph(built, pathlib.Path(folder) / "drawn.png")
        shutil.copy(pathlib.Path(folder) / "drawn.png", picture)


def _built(folder: pathlib.Path) -> pathlib.Path:
    """The page, built from its pinned packages elsewhere: a checkout stays as it was."""
    shutil.copytree(_PAGE, folder, dirs_exist_ok=True)
    for command in (["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "dist"


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests are this program's own."""


def _photograph(built: pathlib.Path, picture: pathlib.Path) -> None:
    """Raises RuntimeError where the page did not draw every panel."""
    handler = functools.partial(_QuietHandler, directory=str(built))
    with http.server.ThreadingHTTPServer((HOST, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page = f"http://{HOST}:{server.server_port}/index.html"
            drawn = _browsed(page, "--dump-dom").count("<canvas")
            wanted = sum(panel["type"] == "timeseries" for panel in json.loads(_FILE.read_text())["panels"])
            if drawn != wanted:
                raise RuntimeError(f"{drawn} of {wanted} plots drawn: the console of a browser says why")
            _browsed(page, f"--screenshot={picture}")
        finally:
            server.shutdown()


def _browsed(page: str, wish: str) -> str:
    width, height = _WINDOW_PX
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={width},{height}", f"--virtual-time-budget={_DRAWN_WITHIN_MS}", wish, page]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
