"""Kafka's sasl.jaas.config: how a file of Kafka's clients says a user's name and password. Pure.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

A delegation token stands there with its id as the name, its hmac as the password, and tokenauth="true".

What Kafka reads of such a text is read, and nothing else is taken. No error shows any of it: it holds a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from minilog.errors import InvalidConfig
from minilog.security.secret import Secret

JAAS_CONFIG = "sasl.jaas.config"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_FORM = f'{_MODULE} required username="..." password="...";'

# A quoted text has no line breaks; a backslash stands before a quote or a backslash.
_VALUE = r'"(?:[^"\\\r\n]|\\["\'\\])*"|\'(?:[^\'\\\r\n]|\\["\'\\])*\'|[\w.\-]+'
_OPTION = re.compile(rf"\s+(username|password|tokenauth)\s*=\s*({_VALUE})")
_WHOLE = re.compile(rf"\s*{re.escape(_MODULE)}\s+required((?:{_OPTION.pattern})+)\s*;\s*", re.ASCII)
_WORDS = {"true": True, "false": False}
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """The user's name and password; `is_token`: those of a delegation token."""

    username: str
    password: Secret
    is_token: bool


def parse_jaas(config: Secret) -> JaasLogin:
    """Raises InvalidConfig, which shows neither name nor password."""
    whole = _WHOLE.fullmatch(config.reveal())
    options = [] if whole is None else [(match[1], _plain(match[2])) for match in _OPTION.finditer(whole[1])]
    values = dict(options)
    token = values.pop("tokenauth", "false").lower()
    if len(values) != 2 or len(options) > 3 or len({name for name, _ in options}) < len(options) or token not in _WORDS:
        raise InvalidConfig(f"{JAAS_CONFIG} is not possible (its value is not shown): it must be {_FORM}")
    return JaasLogin(values["username"], Secret(values["password"]), _WORDS[token])


def _plain(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value[0] in "\"'" else value
