"""The pages of Spark's users in docs/guides name all options of the connector, and quote its sentences."""

from __future__ import annotations

import pathlib
import re

import pytest

from pyspark_minilog.options import table as options
from pyspark_minilog.options.config_file import OWNED
from tests.rules import proves

pytestmark = proves("SPO.22")

ROOT = pathlib.Path(__file__).parents[3]
PAGES = {file.name: file.read_text() for file in sorted((ROOT / "docs/guides").glob("spark*.md"))}
GUIDE = "\n".join(PAGES.values())
OPTIONS = PAGES["spark-options.md"]


@pytest.mark.parametrize("option", sorted({*options._SOURCE, *options._SINK}))
def test_every_option_is_in_the_guide(option: str) -> None:
    assert f"`{option}`" in OPTIONS


@pytest.mark.parametrize("setting", sorted(OWNED))
def test_every_setting_that_the_connector_owns_is_in_the_guide(setting: str) -> None:
    assert f"`{setting}`" in OPTIONS


def test_every_job_is_in_the_guide() -> None:
    jobs = [each for each in (ROOT / "jobs").glob("*.py") if "__main__" in each.read_text()]
    assert [each.name for each in jobs if f"jobs/{each.name}" not in GUIDE] == []


def headings(text: str) -> set[str]:
    return {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).strip().lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }


def test_every_link_leads_somewhere() -> None:
    wrong = []
    for page, link in [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([^)]+)\)", text)]:
        name, _, heading = link.partition("#")
        file = ROOT / "docs/guides" / (name or page)
        if not link.startswith("http") and not (
            file.exists() and (not heading or heading in headings(file.read_text()))
        ):
            wrong.append(link)
    assert wrong == []


# Of the client and the brokers; the sentences of the connector itself are compared by documents/test_troubleshooting.
TROUBLESHOOTING = (ROOT / "docs/guides/troubleshooting.md").read_text()
_, _, _BEHIND = TROUBLESHOOTING.partition("## Before the connector speaks")
EXPLAINED = re.findall(r"^\| (.*?) \|", _BEHIND.partition("\n## ")[0], re.MULTILINE)
QUOTED = {each for row in EXPLAINED for each in re.findall(r"`([^`]+)`", row) if each != "minilog"}
OF_OTHERS = (
    "DATA_SOURCE_NOT_FOUND",
    "ModuleNotFound",
    "CONCURRENT_STREAM_LOG_UPDATE",
    "INSERT_COLUMN_ARITY_MISMATCH",
    "ErrorIfExists",
    "UNAVAILABLE",
)
_CHANGING = re.compile(r"…|'[^']*'|flights-0|flights|other-0|[0-9]+")


@pytest.mark.parametrize("message", sorted(each for each in QUOTED if not any(other in each for other in OF_OTHERS)))
def test_every_message_that_the_guide_explains_is_said(message: str) -> None:
    """The longest words of it between what changes; what Spark and Python say is theirs."""
    assert max(_CHANGING.split(message), key=len).strip() in SAID


def _literals() -> str:
    """The code that says something to users of Spark, its string literals joined as Python joins them."""
    folders = (
        "spark_connector",
        "client/minilog",
        "broker/minilog_broker/coordinators",
        "broker/minilog_broker/server/access",
        "broker/minilog_broker/server/services",
    )
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    return re.sub(r"\"\s*\n\s*f?\"", "", "\n".join(each.read_text() for each in files))


SAID = _literals()
