"""The options of one broker process: its id, its place, its voters and its settings."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

from minilog.addresses import Address
from minilog.effective import Origin
from minilog.versions import VersionRange
from minilog_broker.levels import SUPPORTED_LEVELS
from minilog_broker.server.client_listeners import ClientListener, client_listeners
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.console_options import ConsoleOptions, console_options


@dataclasses.dataclass(frozen=True, slots=True)
class VoterAddress:
    """One voter of the metadata quorum, as `--voters` names it."""

    id: int
    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of one broker process."""

    broker_id: int
    listen: Address | None
    """The address for clients, and for brokers without a listener of their own; None: `listeners` has the addresses."""
    data_dir: pathlib.Path
    voters: tuple[VoterAddress, ...]
    """1, 3 or 5 brokers, whose majority agrees on metadata."""
    rack: str | None = None
    host_label: str | None = None
    """The host of the broker, which other brokers may share; None where it is not given."""
    http: tuple[str, int] | None = None
    """The address of health and metrics; None: without."""
    config: BrokerConfig = dataclasses.field(default_factory=BrokerConfig)
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict)
    """The origin of each setting that is not a default, for people."""
    levels: VersionRange = SUPPORTED_LEVELS
    """The levels that this broker can read and write. Tests make another version of it by another range."""

    def client_listeners(self) -> tuple[ClientListener, ...]:
        """All listeners of clients, that of `listen` first. Raises InvalidConfig where there is none."""
        return client_listeners(self.listen, self.config)

    def console(self) -> ConsoleOptions | None:
        """The console that this broker serves, None where it serves none. Raises InvalidConfig."""
        return console_options(self.listen, self.config)
