"""Users, quotas and delegation tokens: the messages of Admin's requests, and its results from the answers. Pure."""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from minilog.errors import InvalidArgument, UnacceptableCredential
from minilog.security.protocols import SCRAM_SHA_512
from minilog.security.quota_keys import NO_QUOTA
from minilog.security.scram import DEFAULT_ITERATIONS, ScramCredential, ScramMechanism
from minilog.security.scram_messages import ScramError
from minilog.security.scram_wire import mechanism_from_wire, mechanism_to_wire, verifier_of
from minilog.security.secret import Secret
from minilog.v1 import security_pb2


class UserExpectation(enum.Enum):
    """Whether a user must exist before. NEW raises DuplicateResource if the user exists. EXISTING raises
    ResourceNotFound if the user does not exist."""

    ANYTHING = security_pb2.USER_EXPECTATION_NONE
    NEW = security_pb2.USER_EXPECTATION_NEW
    EXISTING = security_pb2.USER_EXPECTATION_EXISTING


@dataclass(frozen=True, slots=True)
class UserUpsertion:
    """A new password of a user under one mechanism. The client sends keys that it derives, and never the password."""

    name: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = DEFAULT_ITERATIONS
    expectation: UserExpectation = UserExpectation.ANYTHING


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """Delete the user's credential under this mechanism, or, with None, the user with all credentials."""

    name: str
    mechanism: ScramMechanism | None = None


UserAlteration = UserUpsertion | UserDeletion


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user, and the iterations of its credential under each mechanism."""

    name: str
    iterations: dict[ScramMechanism, int]


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota of `User:alice`, or of `default`, which counts for all users without a quota of that key. See
    minilog.security.quota_keys."""

    entity: str
    key: str
    value: int


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """A new value of a quota. None or -1 removes the quota."""

    entity: str
    key: str
    value: int | None


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """The public part of a delegation token. `owner` and `renewers` are principals, such as `User:alice`. Times are
    milliseconds since 1970. Nobody can renew the token above `max_timestamp_ms`."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with its secret, in base64: told once, when it is created."""

    information: TokenInformation
    hmac: Secret

    def client_settings(self) -> dict[str, str | Secret]:
        """How a client logs in with it: to be put beside bootstrap.servers, security.protocol=SASL_SSL and the like."""
        return {
            "sasl.mechanism": SCRAM_SHA_512,
            "sasl.username": self.information.token_id,
            "sasl.password": self.hmac,
            "sasl.tokenauth": "true",
        }


def upsertion_message(wanted: UserUpsertion, salt: bytes) -> security_pb2.UserAlteration:
    """The message, with the keys derived from the password. This is slow: some 0.6 us an iteration. Raises
    UnacceptableCredential."""
    try:
        credential = ScramCredential.derive(
            wanted.mechanism, Secret(wanted.password), salt=salt, iterations=wanted.iterations
        )
    except ScramError as error:
        raise UnacceptableCredential(str(error)) from None
    return security_pb2.UserAlteration(
        name=wanted.name,
        mechanism=mechanism_to_wire(wanted.mechanism),
        verifier=verifier_of(credential),
        expectation=wanted.expectation.value,
    )


def deletion_message(wanted: UserDeletion) -> security_pb2.UserAlteration:
    mechanism = security_pb2.SCRAM_MECHANISM_NONE if wanted.mechanism is None else mechanism_to_wire(wanted.mechanism)
    return security_pb2.UserAlteration(name=wanted.name, mechanism=mechanism)


def described_user(message: security_pb2.DescribedUser) -> UserDescription:
    return UserDescription(
        message.name,
        {mechanism_from_wire(credential.mechanism): credential.iterations for credential in message.credentials},
    )


def quota_message(wanted: QuotaAlteration) -> security_pb2.QuotaAlteration:
    """The message. Raises InvalidArgument for a value that is no whole number."""
    value = wanted.value
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not NO_QUOTA <= value < 2**63):
        raise InvalidArgument(f"{wanted.key} of {wanted.entity} cannot be {value!r}: give a whole number, or None")
    return security_pb2.QuotaAlteration(entity=wanted.entity, key=wanted.key, value=value)


def quotas_from_wire(messages: Iterable[security_pb2.Quota]) -> list[Quota]:
    return [Quota(message.entity, message.key, message.value) for message in messages]


def token_from_wire(message: security_pb2.DelegationToken) -> TokenInformation:
    return TokenInformation(
        message.token_id,
        message.owner,
        tuple(message.renewers),
        message.issue_timestamp_ms,
        message.expiry_timestamp_ms,
        message.max_timestamp_ms,
    )


def created_token(answer: security_pb2.CreateDelegationTokenResponse) -> DelegationToken:
    return DelegationToken(token_from_wire(answer.token), Secret(base64.b64encode(answer.hmac).decode("ascii")))


def checked_period_ms(period_ms: int | None, what: str) -> int | None:
    """The period itself. Raises InvalidArgument if it is no whole number of milliseconds."""
    if period_ms is not None and (isinstance(period_ms, bool) or not isinstance(period_ms, int)):
        raise InvalidArgument(f"{what} cannot be {period_ms!r}: give milliseconds, a whole number, or None")
    if period_ms is not None and not -(2**63) <= period_ms < 2**63:
        raise InvalidArgument(f"{what} cannot be {period_ms}: give fewer milliseconds")
    return period_ms
