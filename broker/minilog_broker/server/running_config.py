"""The configuration of a running broker: its own, and before it the settings in the metadata log (Kafka's precedence).

    for this broker by its number > for all brokers > command line, environment, file > default

The metadata log keeps the first two (controller/broker_settings.py). After each change of the image, also by a
snapshot, the broker calls `apply`. Each part of the broker has subscribed to the settings that it uses, and gets the
new configuration. No part looks by itself. So a value counts on each broker from the moment of its replay.

A later version may have written a name or value that this version does not take. It counts for nothing here: the broker
goes on as if it were not there, and logs that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from minilog.effective import EffectiveSetting, Origin, Source
from minilog.errors import InvalidConfig
from minilog_broker.controller.image import ALL_BROKERS
from minilog_broker.printable import shortened
from minilog_broker.server.config import (
    DYNAMIC_NAMES,
    BrokerConfig,
    effective_settings,
    parse_setting,
    setting_names,
    unknown_name,
)

logger = structlog.get_logger()

Kept = Mapping[int, Mapping[str, str]]
"""The settings of MetadataImage.broker_settings: by broker, or ALL_BROKERS."""
_PLACE = "set while running"


def check_dynamic(name: str, value: str | None) -> None:
    """Raises InvalidConfig where a running broker does not take this value, or (None) does not take the setting."""
    if name not in setting_names():
        raise unknown_name(name, DYNAMIC_NAMES, _PLACE)
    if name not in DYNAMIC_NAMES:
        raise InvalidConfig(
            f"{name} needs a restart: put it into the file or on the command line of each broker, and restart them "
            "one by one"
        )
    if value is not None:
        parse_setting(name, value, _PLACE)


class RunningConfig:
    """A broker's configuration as it counts now, and the parts of the broker that follow its changes.

    There is one in each life of a broker. It lives on the broker's event loop.
    """

    def __init__(self, broker_id: int, config: BrokerConfig, origins: Mapping[str, Origin]) -> None:
        self._broker_id = broker_id
        self._own, self._own_origins = config, origins
        self._origins: Mapping[str, Origin] = origins
        self._subscribers: list[tuple[frozenset[str], Callable[[BrokerConfig], None]]] = []
        self.config = config
        """The configuration as it counts now."""

    def subscribe(self, names: Iterable[str], changed: Callable[[BrokerConfig], None]) -> None:
        """Call `changed` with the new configuration after each change of one of these settings."""
        wanted = frozenset(names)
        if not wanted <= DYNAMIC_NAMES:
            raise AssertionError(f"{sorted(wanted - DYNAMIC_NAMES)} do not change while a broker runs")
        self._subscribers.append((wanted, changed))

    @property
    def subscribed(self) -> frozenset[str]:
        """The names of all settings with a subscriber."""
        return frozenset().union(*(names for names, _ in self._subscribers))

    def apply(self, kept: Kept) -> None:
        """Take the settings of the metadata log as they are now, and call the subscribers of those that changed."""
        values, origins = self._taken(kept)
        former, self.config = (
            self.config,
            replace(self._own, **{name.replace(".", "_"): values[name] for name in values}),
        )
        self._origins = {**self._own_origins, **origins}
        changed = {name for name in DYNAMIC_NAMES if _value(former, name) != _value(self.config, name)}
        for name in sorted(changed):
            origin = self._origins.get(name)
            logger.info(
                "a setting changed",
                setting=name,
                value=_value(self.config, name),
                former=_value(former, name),
                source="default" if origin is None else f"{origin.source.value} {origin.where}".strip(),
            )
        for names, tell in self._subscribers:
            if names & changed:
                tell(self.config)

    def _taken(self, kept: Kept) -> tuple[dict[str, Any], dict[str, Origin]]:
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}
        for broker_id in (ALL_BROKERS, self._broker_id):
            where = "all brokers" if broker_id == ALL_BROKERS else f"broker {broker_id}"
            for name, text in kept.get(broker_id, {}).items():
                try:
                    check_dynamic(name, text)
                except InvalidConfig as error:
                    logger.warning(
                        "a setting of the metadata log counts for nothing here: this version does not take it",
                        setting=shortened(name),
                        of=where,
                        reason=str(error),
                    )
                    continue
                values[name], origins[name] = parse_setting(name, text, where), Origin(Source.METADATA, where)
        return values, origins

    def effective(self) -> list[EffectiveSetting]:
        """Each setting as it counts now, with its origin."""
        return effective_settings(self.config, self._origins)


def _value(config: BrokerConfig, name: str) -> Any:
    return getattr(config, name.replace(".", "_"))
