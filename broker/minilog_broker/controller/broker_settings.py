"""Settings of brokers that count while they run, kept in the metadata log (Kafka's dynamic configs, KIP-226).

    the value for the broker's number > the value for all brokers > command line, environment, file > the default

The controller keeps the first two. `check` judges each by the table of a broker's own configuration, and refuses an
unknown name, a wrong value, and a setting that needs a restart. A broker applies them by its own image
(server/running_config.py). A request is one decision: the controller checks all of it before it writes any. It does
not write a value that is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from minilog.errors import InvalidConfig, ResourceNotFound
from minilog.v1 import admin_pb2
from minilog_broker.controller.cluster_records import broker_setting_record
from minilog_broker.controller.image import ALL_BROKERS
from minilog_broker.controller.ledger import Ledger
from minilog_broker.levels import OPERATIONS_LEVEL, check_reached
from minilog_broker.printable import shortened

CheckSetting = Callable[[str, str | None], None]
"""The check of a name and its new value, None for a removal. Raises InvalidConfig."""


class BrokerSettings:
    """The controller's part that checks, writes and describes the settings of running brokers."""

    def __init__(self, ledger: Ledger, check: CheckSetting) -> None:
        self._ledger = ledger
        self._check = check

    def alter(self, request: admin_pb2.AlterBrokerSettingsRequest) -> admin_pb2.AlterBrokerSettingsResponse:
        """Set and remove settings. The answer has their former values.

        Raises LevelNotReached, InvalidConfig, and ResourceNotFound for a broker that never registered, since the number
        may be mistyped. A request that raises has changed nothing.
        """
        image = self._ledger.image
        check_reached(image.level, OPERATIONS_LEVEL, "settings of brokers cannot be changed while they run: they came")
        broker_id = request.broker_id if request.HasField("broker_id") else ALL_BROKERS
        if request.HasField("broker_id") and broker_id not in image.brokers:
            raise ResourceNotFound(
                f"broker {broker_id} has never registered, and has no settings: the brokers are "
                f"{', '.join(map(str, sorted(image.brokers))) or 'none'}"
            )
        former = image.broker_settings.get(broker_id, {})
        wanted = dict(self._wanted(request, former))
        for name, value in sorted(wanted.items()):
            if former.get(name) != value:
                self._ledger.write(broker_setting_record(broker_id, name, value))
        settings = [_setting_message(broker_id, name, former[name]) for name in sorted(wanted) if name in former]
        return admin_pb2.AlterBrokerSettingsResponse(former=settings)

    def _wanted(
        self, request: admin_pb2.AlterBrokerSettingsRequest, former: Mapping[str, str]
    ) -> Iterator[tuple[str, str | None]]:
        if not request.set_configs and not request.unset_configs:
            raise InvalidConfig("no setting is named: give one to set, or to delete")
        for name, value in request.set_configs.items():
            if name in request.unset_configs:
                raise InvalidConfig(f"{shortened(name)} is to be set and deleted at once: choose one of the two")
            self._check(name, value)
            yield name, value
        for name in request.unset_configs:
            if name not in former:  # a kept setting can go, also one of a name that only another version knows
                self._check(name, None)
            yield name, None

    def describe(self, request: admin_pb2.DescribeBrokerSettingsRequest) -> admin_pb2.DescribeBrokerSettingsResponse:
        """All settings that the metadata log has."""
        kept = sorted(self._ledger.image.broker_settings.items())
        settings = [
            _setting_message(broker_id, name, value)
            for broker_id, values in kept
            for name, value in sorted(values.items())
        ]
        return admin_pb2.DescribeBrokerSettingsResponse(settings=settings)


def _setting_message(broker_id: int, name: str, value: str) -> admin_pb2.BrokerSetting:
    return admin_pb2.BrokerSetting(broker_id=None if broker_id == ALL_BROKERS else broker_id, name=name, value=value)
