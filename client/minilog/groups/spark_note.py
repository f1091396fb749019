"""The note of a Spark query in the metadata of its committed offsets. People recognize the query's group by it. Pure.

The note names the host of the query's driver. Anybody who may commit for a group may write such a note. So it only
informs people, and no code decides anything by it.
"""

from __future__ import annotations

import json

MAX_HOST_CHARACTERS = 255
_SPARK, _DRIVER = "spark", "driver"


def spark_note(driver: str) -> str:
    """The note of a query whose driver runs on this host."""
    return json.dumps({_SPARK: {_DRIVER: driver[:MAX_HOST_CHARACTERS]}})


def spark_driver(metadata: str) -> str | None:
    """The host of the driver in a note. None if the metadata is no such note."""
    if not metadata.startswith('{"' + _SPARK):
        return None
    try:
        driver = json.loads(metadata)[_SPARK][_DRIVER]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return driver[:MAX_HOST_CHARACTERS] if isinstance(driver, str) else None
