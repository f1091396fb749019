"""What files on a disk say that end in their checksum, read without the code of the product."""

from __future__ import annotations

import json
from typing import Any

from tests.world.disk import MemoryDisk


def durable_json(disk: MemoryDisk, path: str) -> Any:
    """What a loss of power would leave of it; None where there is none that is whole."""
    return as_json(disk.durable_content(path))


def as_json(stored: bytes | None) -> Any:
    """What a durable file says; None where there is none that is whole."""
    content = content_of(stored)
    if content is None:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return None


def content_of(stored: bytes | None) -> bytes | None:
    """A durable file's, without its checksum."""
    return None if stored is None else stored.rpartition(b"\ncrc32c=")[0]
