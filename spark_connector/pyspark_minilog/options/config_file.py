"""The option minilog.config.file: client settings in a file on each host. Options win over the file.

Options travel with Spark's plan, and the content of the file never does. The driver and each task read the file when
they make a client.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from minilog.config import config_names, parse_config
from minilog.errors import InvalidConfig
from minilog.properties import properties_file

CONFIG_FILE = "config.file"
OPTION = f"minilog.{CONFIG_FILE}"

# The settings that the connector sets itself. It refuses them as options and in a file.
OWNED = {
    "acks": "a Spark write always uses acks=all. Leave it out",
    "enable.idempotence": "a Spark write is always idempotent. Leave it out",
    "transactional.id": "a stream has the id of its query. For a batch write, use the option transactionalId",
    "auto.offset.reset": "use the option startingOffsets instead",
    "enable.auto.commit": "the checkpoint holds the offsets. Leave it out",
    "queue": "use the option queue of a stream. Leave it out",
    "group.id": "only a source stores the progress of a query in a group. Leave it out",
}


def with_file(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a client, completed by the settings of its file, if it names one. Raises InvalidConfig, which
    shows no value of the file."""
    given = {name: value for name, value in settings.items() if name != CONFIG_FILE}
    path = settings.get(CONFIG_FILE)
    if path is None:
        return given
    whole = {**_read(path), **given}
    try:
        parse_config(whole)
    except InvalidConfig as error:
        name, _, rest = str(error).partition("=")
        if name in given or name not in whole:
            raise
        remedy = rest.rpartition(" is not possible: ")[2]
        raise InvalidConfig(f"option {OPTION}: the value of {name} in {path} is not possible: {remedy}") from None
    return whole


def _read(path: str) -> dict[str, str]:
    try:
        settings = properties_file(path)
    except InvalidConfig as error:
        raise InvalidConfig(f"option {OPTION}: {error}. The driver and each executor need this file") from None
    for name in settings:
        if name in OWNED:
            raise InvalidConfig(
                f"option {OPTION}: {path} has {name}, and the connector sets that itself: {OWNED[name]}"
            )
        if name not in config_names():
            near = difflib.get_close_matches(name, config_names(), n=1, cutoff=0)
            raise InvalidConfig(
                f"option {OPTION}: {path} has {name!r}, and no setting has that name: did you mean {near[0]!r}?"
            )
    return settings
