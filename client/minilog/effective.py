"""An effective setting with its origin, for people who look for the reason of a value. It never has a secret as
text."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from minilog.security.secret import HIDDEN, Secret, is_secret


class Source(enum.Enum):
    """The layer of a setting. A later layer wins over an earlier one."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"
    METADATA = "metadata"
    """The metadata log: a setting of one running broker, or of all."""
    DERIVED = "derived"
    """The value follows from another setting."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`where` is the file, the variable, the option, or the other setting of a derived value. Empty for a default."""

    source: Source
    where: str = ""


DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One effective setting. `value` is in the form that a person would type, or `***` for a secret that is set."""

    name: str
    value: str
    origin: Origin


def told_value(name: str, value: Any, none_word: str = "") -> str:
    """A parsed value of the setting `name` in the form that a person would type, or `***` for a secret that is not
    empty."""
    if isinstance(value, Secret):
        return HIDDEN if value.reveal() else ""
    if value is None:
        return none_word
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return HIDDEN if text and is_secret(name) else text
