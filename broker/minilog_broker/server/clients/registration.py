"""The registration of a broker: its identity, its addresses, and the state of its disk."""

from __future__ import annotations

from minilog.addresses import Address, parse_address
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, peer_pb2
from minilog.v1.peer_pb2 import RecoveryFinding
from minilog_broker.server.broker_options import BrokerOptions
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.log_directory import FoundLog, LogDirectory
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.log import Log
from minilog_broker.storage.recovery import Finding

_FINDINGS = {
    Finding.WHOLE: RecoveryFinding.RECOVERY_FINDING_WHOLE,
    Finding.TORN: RecoveryFinding.RECOVERY_FINDING_TORN,
    Finding.DOUBTFUL: RecoveryFinding.RECOVERY_FINDING_DOUBTFUL,
}


def recovered_replicas(logs_found: list[FoundLog], logs: LogDirectory) -> list[peer_pb2.RecoveredReplica]:
    """The replicas for a registration: every existing log that is not damaged."""
    return [
        _recovered(replica.key, _FINDINGS[replica.log.recovery.finding], replica.log)
        for replica in logs_found
        if replica.log.recovery.finding in _FINDINGS
    ] + _unreadable(logs)


def unsettled_replicas(logs: LogDirectory) -> list[peer_pb2.RecoveredReplica]:
    """The replicas for a heartbeat, for a controller that did not get the registration."""
    torn = RecoveryFinding.RECOVERY_FINDING_TORN
    return [_recovered(key, torn, log) for key, log in logs.torn()] + _unreadable(logs)


def _recovered(key: PartitionKey, finding: RecoveryFinding.ValueType, log: Log) -> peer_pb2.RecoveredReplica:
    end_offset, last_epoch = log.log_end_offset, None
    if finding == RecoveryFinding.RECOVERY_FINDING_TORN:
        last_epoch = log.epoch_before(end_offset)
    return peer_pb2.RecoveredReplica(
        partition_id=key.to_wire(),
        finding=finding,
        last_epoch=-1 if last_epoch is None else last_epoch,
        end_offset=end_offset,
    )


def _unreadable(logs: LogDirectory) -> list[peer_pb2.RecoveredReplica]:
    finding = RecoveryFinding.RECOVERY_FINDING_UNREADABLE
    return [peer_pb2.RecoveredReplica(partition_id=key.to_wire(), finding=finding) for key in list(logs.unreadable)]


def peer_address(config: BrokerConfig) -> Address | None:
    """The address of this broker for other brokers, if they have a listener of their own."""
    if config.inter_broker_listen is None:
        return None
    return parse_address(config.inter_broker_advertised_address or config.inter_broker_listen)


def own_peer_address(options: BrokerOptions) -> Address:
    """Where this broker reaches itself as another broker: as `--voters` says, where it listens there or says so.

    An advertised address may be one that this machine does not reach, or nobody does.
    """
    clients = {listener.name: listener.advertised for listener in options.client_listeners()}
    registered, listen = peer_address(options.config) or clients[""], options.listen
    if options.config.inter_broker_listen is not None:
        listen = parse_address(options.config.inter_broker_listen)
    given = next(((voter.host, voter.port) for voter in options.voters if voter.id == options.broker_id), None)
    return given if given is not None and given in (registered, listen) else registered


def registration_request(
    options: BrokerOptions,
    client: common_pb2.ClientIdentity,
    directory: DataDirectory,
    recovered: list[FoundLog],
    logs: LogDirectory,
) -> peer_pb2.RegisterRequest:
    """The request of a registration. `recovered`: the logs that recovery has opened, some of them damaged."""
    addresses = {listener.name: listener.advertised for listener in options.client_listeners()}
    peer = peer_address(options.config)
    host, port = addresses.pop("", ("", 0))
    domain = options.rack or options.host_label or host or ("" if peer is None else peer[0])
    return peer_pb2.RegisterRequest(
        client=client,
        cluster_id=directory.cluster_id or "",
        broker_id=options.broker_id,
        directory_id=bytes.fromhex(directory.directory_id),
        host=host,
        port=port,
        rack=options.rack,
        clean_stop_broker_epoch=directory.clean_stop_epoch,
        kernel_boot_id=directory.boot_id,
        damaged_replicas=[replica.key.to_wire() for replica in recovered if replica.log.recovery.damaged],
        recovered_replicas=recovered_replicas(recovered, logs),
        failure_domain=domain,
        voters=[
            peer_pb2.VoterAddress(broker_id=voter.id, host=voter.host, port=voter.port) for voter in options.voters
        ],
        levels=options.levels.to_wire(),
        peer_host=None if peer is None else peer[0],
        peer_port=0 if peer is None else peer[1],
        host_label=options.host_label,
        listeners=[
            common_pb2.ListenerAddress(name=name, host=host, port=port) for name, (host, port) in addresses.items()
        ],
    )
