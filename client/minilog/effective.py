"""A setting as it counts, and where it comes from: for people who ask why. What is secret is never in it as text."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from minilog.properties import is_secret
from minilog.security.secret import HIDDEN, Secret


class Source(enum.Enum):
    """Which layer has said it; a later one counts more."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"
    METADATA = "metadata"
    """The metadata log: a setting of one running broker, or of all."""
    DERIVED = "derived"
    """Nobody: another setting brings it about."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`where`: the file, the variable, the option, or for what it is derived from; empty for a default."""

    source: Source
    where: str = ""


DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One of them. `value`: as it would be typed; `***` for a secret that is there."""

    name: str
    value: str
    origin: Origin


def told_value(name: str, value: Any, none_word: str = "") -> str:
    """A parsed value of the setting `name` as it would be typed, or `***` where it is a secret that is not empty."""
    if isinstance(value, Secret):
        return HIDDEN if value.reveal() else ""
    if value is None:
        return none_word
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return HIDDEN if text and is_secret(name) else text
