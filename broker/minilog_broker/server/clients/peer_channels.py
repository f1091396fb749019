"""Channels to other brokers. Where brokers have a listener of their own they are mutual TLS: this broker shows its
certificate, and the one that answers must be the broker that was meant, by the name in its certificate.

The name is `broker-<id>.<cluster>.minilog`, a DNS name among those of its certificate (`minilog cert create broker`):
what gRPC checks in the place of a host. So neither an address that was taken over nor another broker's certificate will
do.
"""

from __future__ import annotations

from typing import TypeAlias

import grpc

from minilog.config import Address
from minilog.net.runtime import Runtime
from minilog.security.channel_security import ChannelSecurity, PemFiles
from minilog_broker.server.config import BrokerConfig

Peer: TypeAlias = tuple[int, Address]
"""A broker, and where it listens for others."""


def server_name(cluster_name: str, broker_id: int) -> str:
    """What the certificate of a broker has among its DNS names."""
    return f"broker-{broker_id}.{cluster_name}.minilog"


class PeerChannels:
    """Of one broker. Files are read anew for each channel: a certificate that was renewed counts at once."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        self._runtime = runtime
        self._cluster_name = config.cluster_name
        self._files = (
            None
            if config.inter_broker_listen is None
            else PemFiles(config.inter_broker_ssl_keystore_location, config.inter_broker_ssl_truststore_location)
        )

    def open(self, broker_id: int, address: Address) -> grpc.aio.Channel:
        """A channel of its own to a broker. Raises InvalidConfig where a file of the certificates is missing."""
        if self._files is None:
            return self._runtime.open_channel(address)
        security = ChannelSecurity(self._files.channel_credentials(), server_name(self._cluster_name, broker_id))
        return self._runtime.open_channel(address, security)
