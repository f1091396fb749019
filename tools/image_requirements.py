"""Write the packages of the container image, with the SHA-256 of each file, for `pip install --require-hashes`.

    .venv/bin/python -m tools.image_requirements     writes deploy/container/requirements-*.txt

Run it after a change of constraints.txt. The versions come from there, and the hashes from the package registry. The
image has Debian's Python 3.11 on x86_64 or aarch64. PySpark comes as source, and so do setuptools and wheel, which
build it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import defaultdict

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "container"
_MACHINES = ("x86_64", "aarch64")
_TAGS = ("manylinux2014", "manylinux_2_28", "manylinux_2_34")


def hashes(wanted: list[str], machine: str | None) -> dict[str, set[str]]:
    """The SHA-256 of the file that pip would install, for each `name==version`. Without a machine it is this one, and
    sources count, too: pip builds PySpark to learn what it needs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", "--target", folder]
        if machine is not None:
            command += ["--python-version", "3.11", "--implementation", "cp", "--only-binary", ":all:"]
            command += [word for tag in _TAGS for word in ("--platform", f"{tag}_{machine}")]
        environment = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        made = subprocess.run([*command, *wanted], check=True, stdout=subprocess.PIPE, env=environment)
    found: dict[str, set[str]] = defaultdict(set)
    for each in json.loads(made.stdout)["install"]:
        if each["metadata"]["name"] != "pyspark-minilog":
            version = f"{each['metadata']['name'].lower()}=={each['metadata']['version']}"
            found[version].add(each["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def write(name: str, found: dict[str, set[str]]) -> None:
    parts = ["# Made by tools/image_requirements.py for the Containerfile."]
    parts += [
        " \\\n".join([version, *(f"    --hash=sha256:{each}" for each in sorted(found[version]))])
        for version in sorted(found)
    ]
    (FOLDER / f"requirements-{name}.txt").write_text("\n".join(parts) + "\n")


def main() -> int:
    broker: dict[str, set[str]] = defaultdict(set)
    for machine in _MACHINES:
        for version, found in hashes([f"{ROOT}[broker]"], machine).items():
            broker[version] |= found
    write("broker", broker)
    build = hashes(["setuptools", "wheel"], None)
    write("build", build)
    spark = hashes([f"{ROOT}[spark]"], None)
    write(
        "spark", {version: found for version, found in spark.items() if version not in broker and version not in build}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
