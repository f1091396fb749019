"""The names that topics may have: Kafka's rule."""

from __future__ import annotations

import re

from minilog.errors import InvalidTopic

MAX_NAME_LENGTH = 249  # Kafka's: a directory is named <topic>-<partition>, and a file name has at most 255 bytes
INTERNAL_PREFIX = "__"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises InvalidTopic unless a client may give a topic this name."""
    if name in ("", ".", ".."):
        raise InvalidTopic(f"{name!r} is not a topic name: give one of letters, digits, '.', '_' and '-'")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(f"a topic name has at most {MAX_NAME_LENGTH} characters, and {name[:20]}... has {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"{name!r} is not a topic name: only ASCII letters, digits, '.', '_' and '-' are allowed")
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidTopic(
            f"only the brokers' own topics have names that begin with {INTERNAL_PREFIX}: choose another name for {name}"
        )
