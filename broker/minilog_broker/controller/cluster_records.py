"""The records of the cluster itself: its level, its voters, its brokers and their settings, and the blocks of producer
ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from minilog.v1 import common_pb2, records_pb2
from minilog.versions import range_from_wire
from minilog_broker.controller.image import ALL_BROKERS, BrokerRegistration, Cordon, MetadataImage
from minilog_broker.quorum.cluster import level_record
from minilog_broker.quorum.voters import Voter, replaced, voters_of, wire_voters
from minilog_broker.security.producer_proof import ProducerKey

Records = Iterator[records_pb2.MetadataRecord]


def apply_level(image: MetadataImage, offset: int, record: records_pb2.ClusterLevelRecord) -> None:
    image.level = record.level


def level_of(image: MetadataImage) -> Records:
    if image.cluster_id is not None:
        yield level_record(image.level)


def apply_cluster(image: MetadataImage, offset: int, record: records_pb2.ClusterRecord) -> None:
    image.cluster_id = record.cluster_id
    image.voters = voters_of(record)


def cluster_of(image: MetadataImage) -> Records:
    if image.cluster_id is not None:
        cluster = records_pb2.ClusterRecord(cluster_id=image.cluster_id, voters=wire_voters(image.voters))
        yield records_pb2.MetadataRecord(cluster=cluster)


def apply_voters(image: MetadataImage, offset: int, record: records_pb2.VotersRecord) -> None:
    image.voters = voters_of(record)
    image.has_voter_addresses = True


def changed_voters_of(image: MetadataImage) -> Records:
    """In a snapshot the first entry names the same voters: a version that knows no other record reads that."""
    if image.has_voter_addresses:
        yield voters_record(image.voters)


def voters_record(voters: Iterable[Voter]) -> records_pb2.MetadataRecord:
    """From this record on these voters count, at these addresses."""
    return records_pb2.MetadataRecord(voters=records_pb2.VotersRecord(voters=wire_voters(voters)))


def apply_voter_replaced(image: MetadataImage, offset: int, record: records_pb2.VoterReplacedRecord) -> None:
    image.voters = replaced(image.voters, record)


def apply_registration(image: MetadataImage, offset: int, record: records_pb2.BrokerRegistrationRecord) -> None:
    """Note a registration. In a snapshot the record carries its broker epoch, since its offset there is another one."""
    image.brokers[record.broker_id] = BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch if record.HasField("broker_epoch") else offset,
        directory_id=record.directory_id,
        host=record.host,
        port=record.port,
        rack=record.rack if record.HasField("rack") else None,
        failure_domain=record.failure_domain,
        kernel_boot_id=record.kernel_boot_id,
        levels=range_from_wire(record.levels),
        version=record.version,
        clean_stop_broker_epoch=record.clean_stop_broker_epoch if record.HasField("clean_stop_broker_epoch") else None,
        own_peer_address=(record.peer_host, record.peer_port) if record.HasField("peer_host") else None,
        host_label=record.host_label if record.HasField("host_label") else None,
        listeners=tuple((listener.name, (listener.host, listener.port)) for listener in record.listeners),
    )
    image.changes.brokers.add(record.broker_id)


def registrations_of(image: MetadataImage) -> Records:
    for _, broker in sorted(image.brokers.items()):
        yield records_pb2.MetadataRecord(broker_registration=_registration(broker))


def _registration(broker: BrokerRegistration) -> records_pb2.BrokerRegistrationRecord:
    return records_pb2.BrokerRegistrationRecord(
        broker_id=broker.broker_id,
        directory_id=broker.directory_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        failure_domain=broker.failure_domain,
        kernel_boot_id=broker.kernel_boot_id,
        broker_epoch=broker.broker_epoch,
        levels=broker.levels.to_wire(),
        version=broker.version,
        clean_stop_broker_epoch=broker.clean_stop_broker_epoch,
        peer_host=None if broker.own_peer_address is None else broker.own_peer_address[0],
        peer_port=0 if broker.own_peer_address is None else broker.own_peer_address[1],
        host_label=broker.host_label,
        listeners=[
            common_pb2.ListenerAddress(name=name, host=host, port=port) for name, (host, port) in broker.listeners
        ],
    )


def apply_broker_state(image: MetadataImage, offset: int, record: records_pb2.BrokerStateRecord) -> None:
    """Change the state of a broker's current life. Records of former lives change nothing."""
    broker = image.brokers.get(record.broker_id)
    if broker is not None and broker.broker_epoch == record.broker_epoch:
        mark = broker.clean_stop_broker_epoch if record.fenced else None
        image.brokers[record.broker_id] = replace(
            broker, fenced=record.fenced, stopping=record.stopping, clean_stop_broker_epoch=mark
        )
        image.changes.brokers.add(record.broker_id)


def broker_states_of(image: MetadataImage) -> Records:
    """The states of brokers. A fenced broker needs none: its registration means the same."""
    for _, broker in sorted(image.brokers.items()):
        if not broker.fenced or broker.stopping:
            yield records_pb2.MetadataRecord(
                broker_state=records_pb2.BrokerStateRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    fenced=broker.fenced,
                    stopping=broker.stopping,
                )
            )


def apply_cordon(image: MetadataImage, offset: int, record: records_pb2.BrokerCordonRecord) -> None:
    image.cordons.pop(record.broker_id, None)
    if record.cordoned:
        decommissioning = record.decommissioning
        image.cordons[record.broker_id] = Cordon(decommissioning, record.throttle_bytes_per_second)
    image.changes.brokers.add(record.broker_id)


def cordons_of(image: MetadataImage) -> Records:
    for broker_id, cordon in sorted(image.cordons.items()):
        yield cordon_record(broker_id, cordon)


def cordon_record(broker_id: int, cordon: Cordon | None) -> records_pb2.MetadataRecord:
    """The record of a cordon, None for its end."""
    record = records_pb2.BrokerCordonRecord(broker_id=broker_id, cordoned=cordon is not None)
    if cordon is not None:
        record.decommissioning = cordon.decommissioning
        record.throttle_bytes_per_second = cordon.throttle_bytes_per_second
    return records_pb2.MetadataRecord(broker_cordon=record)


def apply_unregister(image: MetadataImage, offset: int, record: records_pb2.UnregisterBrokerRecord) -> None:
    """The cordon and the settings of the id go with the broker: another broker may come with that id."""
    image.brokers.pop(record.broker_id, None)
    image.cordons.pop(record.broker_id, None)
    image.changes.brokers.add(record.broker_id)
    if image.broker_settings.pop(record.broker_id, None) is not None:
        image.changes.broker_settings = True


def apply_block(image: MetadataImage, offset: int, record: records_pb2.ProducerIdBlockRecord) -> None:
    image.next_producer_id = record.next_producer_id
    if record.proof_key:
        image.producer_key = ProducerKey(record.proof_key, record.first_proven_id)


def block_of(image: MetadataImage) -> Records:
    if image.next_producer_id:
        block = records_pb2.ProducerIdBlockRecord(broker_id=-1, next_producer_id=image.next_producer_id)
        if image.producer_key is not None:
            block.proof_key, block.first_proven_id = image.producer_key.key, image.producer_key.first_id
        yield records_pb2.MetadataRecord(producer_id_block=block)


def broker_setting_record(broker_id: int, name: str, value: str | None) -> records_pb2.MetadataRecord:
    """The record of a setting. `broker_id`: a broker, or ALL_BROKERS. `value`: None removes the setting."""
    wire_id = None if broker_id == ALL_BROKERS else broker_id
    return records_pb2.MetadataRecord(
        broker_setting=records_pb2.BrokerSettingRecord(broker_id=wire_id, name=name, value=value)
    )


def apply_broker_setting(image: MetadataImage, offset: int, record: records_pb2.BrokerSettingRecord) -> None:
    broker_id = record.broker_id if record.HasField("broker_id") else ALL_BROKERS
    values = dict(image.broker_settings.get(broker_id, {}))
    if record.HasField("value"):
        values[record.name] = record.value
    else:
        values.pop(record.name, None)
    image.broker_settings[broker_id] = values
    if not values:
        del image.broker_settings[broker_id]
    image.changes.broker_settings = True


def broker_settings_of(image: MetadataImage) -> Records:
    for broker_id, values in sorted(image.broker_settings.items()):
        for name, value in sorted(values.items()):
            yield broker_setting_record(broker_id, name, value)
