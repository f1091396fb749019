"""What one broker runs with: its own configuration, and before it what was set while it runs (Kafka's precedence).

    for this broker by its number > for all brokers > command line, environment, file > default

The metadata log keeps the first two (controller/broker_settings.py). `apply` is called with what the image has whenever
that changed, also by a snapshot: each part that has a use for a setting has subscribed to it, and is given the new
configuration. Nobody looks again by himself. So a value counts on each broker from the moment that it has replayed it.

A name or value that this version does not take (a later one wrote it) counts for nothing here: the broker goes on with
what it would have without it, and says so.
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
    parse_setting,
    setting_names,
    told_settings,
    unknown_name,
)

logger = structlog.get_logger()

Kept = Mapping[int, Mapping[str, str]]
"""Of MetadataImage.broker_settings: by broker, or ALL_BROKERS."""
_ASKED = "set while running"


def check_dynamic(name: str, value: str | None) -> None:
    """Raises InvalidConfig unless a running broker takes this value of the setting; None: unless it could have one."""
    if name not in setting_names():
        raise unknown_name(name, DYNAMIC_NAMES, _ASKED)
    if name not in DYNAMIC_NAMES:
        raise InvalidConfig(
            f"{name} needs a restart: put it into the file or on the command line of each broker, and start them anew "
            "one by one"
        )
    if value is not None:
        parse_setting(name, value, _ASKED)


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
        """What counts now."""

    def subscribe(self, names: Iterable[str], changed: Callable[[BrokerConfig], None]) -> None:
        """Call `changed` with the new configuration whenever one of these settings is another than before."""
        wanted = frozenset(names)
        if not wanted <= DYNAMIC_NAMES:
            raise AssertionError(f"{sorted(wanted - DYNAMIC_NAMES)} do not change while a broker runs")
        self._subscribers.append((wanted, changed))

    @property
    def subscribed(self) -> frozenset[str]:
        """The names that somebody has a use for."""
        return frozenset().union(*(names for names, _ in self._subscribers))

    def apply(self, kept: Kept) -> None:
        """The metadata log says this now."""
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
        for whose in (ALL_BROKERS, self._broker_id):
            where = "all brokers" if whose == ALL_BROKERS else f"broker {whose}"
            for name, text in kept.get(whose, {}).items():
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
        """Each setting as it counts now, and who says so."""
        return told_settings(self.config, self._origins)


def _value(config: BrokerConfig, name: str) -> Any:
    return getattr(config, name.replace(".", "_"))
