"""Users, access rules, quotas and delegation tokens as metadata records (level 3), and back.

    user_scram_credential   the credential of a user under one mechanism; without a verifier it is removed
    access_rule             a rule, or a removed one; all its fields identify it, so that a second record adds nothing
    quota                   one quota of an entity; without a value it is removed
    delegation_token        a whole token with the verifiers of its secret, or a removed one

The removal of a missing thing changes nothing. Each record has the whole state of its thing, so that the last one
counts, in any order of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from minilog.errors import InvalidArgument
from minilog.security.access_rules import AccessRule, rule_from_wire, rule_to_wire
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.security.scram_wire import credential_from_wire, mechanism_from_wire, mechanism_to_wire, verifier_of
from minilog.v1 import records_pb2, security_pb2
from minilog.versions import written_later
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.delegation_token import IssuedToken

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Records = Iterator[records_pb2.MetadataRecord]


# -- written


def credential_record(user: str, credential: ScramCredential) -> records_pb2.MetadataRecord:
    record = records_pb2.UserScramCredentialRecord(
        user=user, mechanism=mechanism_to_wire(credential.mechanism), verifier=verifier_of(credential)
    )
    return records_pb2.MetadataRecord(user_scram_credential=record)


def credential_removal(user: str, mechanism: ScramMechanism) -> records_pb2.MetadataRecord:
    record = records_pb2.UserScramCredentialRecord(user=user, mechanism=mechanism_to_wire(mechanism))
    return records_pb2.MetadataRecord(user_scram_credential=record)


def rule_record(rule: AccessRule, *, removed: bool = False) -> records_pb2.MetadataRecord:
    return records_pb2.MetadataRecord(
        access_rule=records_pb2.AccessRuleRecord(rule=rule_to_wire(rule), removed=removed)
    )


def quota_record(entity: str, key: str, value: int | None) -> records_pb2.MetadataRecord:
    """The record of a quota. `value`: None removes it."""
    return records_pb2.MetadataRecord(quota=records_pb2.QuotaRecord(entity=entity, key=key, value=value))


def token_to_wire(token: IssuedToken) -> security_pb2.DelegationToken:
    return security_pb2.DelegationToken(
        token_id=token.token_id,
        owner=token.owner,
        renewers=token.renewers,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiry_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
    )


def token_record(token: IssuedToken) -> records_pb2.MetadataRecord:
    verifiers = {mechanism: verifier_of(credential) for mechanism, credential in token.credentials.items()}
    record = records_pb2.DelegationTokenRecord(
        token=token_to_wire(token),
        scram_sha_256=verifiers.get(ScramMechanism.SCRAM_SHA_256),
        scram_sha_512=verifiers.get(ScramMechanism.SCRAM_SHA_512),
    )
    return records_pb2.MetadataRecord(delegation_token=record)


def token_removal(token_id: str) -> records_pb2.MetadataRecord:
    token = security_pb2.DelegationToken(token_id=token_id)
    return records_pb2.MetadataRecord(delegation_token=records_pb2.DelegationTokenRecord(token=token, removed=True))


def credentials_of(image: MetadataImage) -> Records:
    for user, credentials in sorted(image.users.items()):
        for _, credential in sorted(credentials.items()):
            yield credential_record(user, credential)


def rules_of(image: MetadataImage) -> Records:
    for rule in sorted(image.access_rules, key=lambda rule: rule.order):
        yield rule_record(rule)


def quotas_of(image: MetadataImage) -> Records:
    for entity, values in sorted(image.quotas.items()):
        for key, value in sorted(values.items()):
            yield quota_record(entity, key, value)


def tokens_of(image: MetadataImage) -> Records:
    for _, token in sorted(image.tokens.items()):
        yield token_record(token)


# -- replayed. An unknown choice raises UnsupportedVersion: a later version wrote it.


def apply_credential(image: MetadataImage, offset: int, record: records_pb2.UserScramCredentialRecord) -> None:
    what = f"a credential of user {record.user!r} in the metadata log"
    try:
        mechanism = mechanism_from_wire(record.mechanism)
    except InvalidArgument:
        raise written_later(what) from None
    credentials = dict(image.users.get(record.user, {}))
    if record.HasField("verifier"):
        credentials[mechanism] = credential_from_wire(mechanism, record.verifier)
    else:
        credentials.pop(mechanism, None)
    _replace(image.users, record.user, credentials)
    image.changes.security = True


def apply_rule(image: MetadataImage, offset: int, record: records_pb2.AccessRuleRecord) -> None:
    try:
        rule = rule_from_wire(record.rule)
    except InvalidArgument:
        raise written_later(f"an access rule of {record.rule.principal!r} in the metadata log") from None
    if record.removed:
        image.access_rules.discard(rule)
    else:
        image.access_rules.add(rule)
    image.changes.security = True


def apply_quota(image: MetadataImage, offset: int, record: records_pb2.QuotaRecord) -> None:
    values = dict(image.quotas.get(record.entity, {}))
    if record.HasField("value"):
        values[record.key] = record.value
    else:
        values.pop(record.key, None)
    _replace(image.quotas, record.entity, values)
    image.changes.security = True


def apply_token(image: MetadataImage, offset: int, record: records_pb2.DelegationTokenRecord) -> None:
    token = record.token
    image.changes.security = True
    if record.removed:
        image.tokens.pop(token.token_id, None)
        return
    credentials = {}
    if record.HasField("scram_sha_256"):
        credentials[ScramMechanism.SCRAM_SHA_256] = record.scram_sha_256
    if record.HasField("scram_sha_512"):
        credentials[ScramMechanism.SCRAM_SHA_512] = record.scram_sha_512
    image.tokens[token.token_id] = IssuedToken(
        token_id=token.token_id,
        owner=token.owner,
        renewers=tuple(token.renewers),
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiry_timestamp_ms=token.expiry_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
        credentials={
            mechanism: credential_from_wire(mechanism, verifier) for mechanism, verifier in credentials.items()
        },
    )


def _replace(of: dict[str, Mapping[_Key, _Value]], name: str, values: Mapping[_Key, _Value]) -> None:
    if values:
        of[name] = values
    else:
        of.pop(name, None)
