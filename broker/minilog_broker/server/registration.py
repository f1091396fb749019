"""What a broker says of itself when it registers: who it is, where it is found, and what it knows of its disk."""

from __future__ import annotations

import pathlib

from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.server.config import BrokerOptions, parse_address
from minilog_broker.server.log_directory import FoundLog
from minilog_broker.storage.data_directory import DataDirectory

BOOT_ID_FILE = pathlib.Path("/proc/sys/kernel/random/boot_id")


def kernel_boot_id() -> str:
    """Which boot of the kernel this is; empty where the system does not tell."""
    try:
        return BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


def registration_request(
    options: BrokerOptions, client: common_pb2.ClientIdentity, directory: DataDirectory, found: list[FoundLog]
) -> peer_pb2.RegisterRequest:
    """`found`: the logs that recovery has opened, some of them damaged."""
    host, port = options.host, options.port
    if options.config.advertised_address is not None:
        host, port = parse_address(options.config.advertised_address)
    damaged = [
        common_pb2.PartitionId(topic_id=each.key.topic_id, partition=each.key.partition)
        for each in found
        if each.log.recovery.damaged
    ]
    return peer_pb2.RegisterRequest(
        client=client,
        cluster_id=directory.cluster_id or "",
        broker_id=options.broker_id,
        directory_id=bytes.fromhex(directory.directory_id),
        host=host,
        port=port,
        rack=options.rack,
        clean_stop_broker_epoch=directory.clean_stop_epoch,
        kernel_boot_id=kernel_boot_id(),
        damaged_replicas=damaged,
        host_label=options.rack or host,
        voters=[peer_pb2.VoterAddress(broker_id=each.id, host=each.host, port=each.port) for each in options.voters],
    )
