"""Kafka's sasl.jaas.config: how a file of Kafka's clients says a user's name and password. Pure.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

What Kafka reads of such a text is read, and nothing else is taken. No error shows any of it: it holds a password.
"""

from __future__ import annotations

import re

from minilog.errors import InvalidConfig
from minilog.security.secret import Secret

JAAS_CONFIG = "sasl.jaas.config"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_FORM = f'{_MODULE} required username="..." password="...";'

# A quoted text has no line breaks; a backslash stands before a quote or a backslash.
_VALUE = r'"(?:[^"\\\r\n]|\\["\'\\])*"|\'(?:[^\'\\\r\n]|\\["\'\\])*\'|[\w.\-]+'
_OPTION = re.compile(rf"\s+(username|password)\s*=\s*({_VALUE})")
_WHOLE = re.compile(rf"\s*{re.escape(_MODULE)}\s+required((?:{_OPTION.pattern})+)\s*;\s*", re.ASCII)
_ESCAPED = re.compile(r"\\(.)")


def parse_jaas(config: Secret) -> tuple[str, Secret]:
    """The user's name and password. Raises InvalidConfig, which shows neither."""
    whole = _WHOLE.fullmatch(config.reveal())
    options = [] if whole is None else [(each[1], _plain(each[2])) for each in _OPTION.finditer(whole[1])]
    found = dict(options)
    if len(found) != 2 or len(options) != 2:
        raise InvalidConfig(f"{JAAS_CONFIG} is not possible (its value is not shown): it must be {_FORM}")
    return found["username"], Secret(found["password"])


def _plain(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value[0] in "\"'" else value
