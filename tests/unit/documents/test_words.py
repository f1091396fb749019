"""docs/guides/words.md: what it calls a name of minilog is one."""

from __future__ import annotations

import pathlib
import re

import minilog
from minilog.config import config_names
from minilog.queues.message import Message
from minilog_broker.coordinators.queues.settings import _FIELDS

PAGE = (pathlib.Path(__file__).parents[3] / "docs/guides/words.md").read_text()
OURS = [row.strip("|").split("|")[-1] for row in re.findall(r"^\|.*\|$", PAGE, re.M)]
KNOWN = {name: getattr(minilog, name) for name in ("Producer", "Consumer", "Admin", "QueueConsumer")} | {
    "Message": Message
}


def test_the_last_column_has_names_of_minilog() -> None:
    names = [name for cell in OURS for name in re.findall(r"`([A-Za-z_.]+)`", cell)]
    assert len(names) > 25
    classes = [name.partition(".")[::2] for name in names if name[0].isupper()]
    assert [name for name in classes if not _has(*name)] == []
    settings = {name for name in names if not name[0].isupper()}
    assert settings <= {*config_names(), *_FIELDS}


def _has(owner: str, name: str) -> bool:
    return hasattr(KNOWN[owner], name) or name in KNOWN[owner].__annotations__
