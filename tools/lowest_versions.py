"""Prints constraints for pip: the lowest version of each package that pyproject.toml asks for, and the others of
constraints.txt. `make test-lowest` installs by them."""

from __future__ import annotations

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
_BOUND = re.compile(r"([\w-]+)>=([\w.]+)")


def constraints() -> list[str]:
    """Lines such as grpcio==1.72.1."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["broker"], *extras["spark"]]
    lowest = {found[1]: found[2] for each in asked if (found := _BOUND.match(each))}
    others = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in others if "==" in line and _name(line) not in map(_name, lowest)]
    return [*kept, *(f"{name}=={version}" for name, version in lowest.items())]


def _name(line: str) -> str:
    return line.partition("==")[0].lower().replace("_", "-")


if __name__ == "__main__":
    print("\n".join(constraints()))
