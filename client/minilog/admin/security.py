"""Users, access rules and quotas: what Admin asks for, and what it makes of the answers. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from minilog.errors import InvalidArgument, UnacceptableCredential
from minilog.security.quota_keys import NO_QUOTA
from minilog.security.scram import DEFAULT_ITERATIONS, ScramCredential, ScramMechanism
from minilog.security.scram_messages import ScramError
from minilog.security.scram_wire import mechanism_from_wire, mechanism_to_wire, verifier_of
from minilog.security.secret import Secret
from minilog.v1 import security_pb2


class UserExpectation(enum.Enum):
    """What there has to be of a user: NEW raises DuplicateResource where it exists, EXISTING ResourceNotFound where
    it does not."""

    ANYTHING = security_pb2.USER_EXPECTATION_NONE
    NEW = security_pb2.USER_EXPECTATION_NEW
    EXISTING = security_pb2.USER_EXPECTATION_EXISTING


@dataclass(frozen=True, slots=True)
class UserUpsertion:
    """A user's password under one mechanism, in the place of the former one. It is not sent: what is made of it is."""

    name: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = DEFAULT_ITERATIONS
    expectation: UserExpectation = UserExpectation.ANYTHING


@dataclass(frozen=True, slots=True)
class UserDeletion:
    """The credential under this mechanism; None: the user with all of them."""

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
    """One quota of `User:alice`, or of `default`: of all who have none of that key. See minilog.security.quota_keys."""

    entity: str
    key: str
    value: int


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """`value`: None, or -1, is none."""

    entity: str
    key: str
    value: int | None


def upsertion_message(wanted: UserUpsertion, salt: bytes) -> security_pb2.UserAlteration:
    """The slow step: some 0.6 us an iteration. Raises UnacceptableCredential."""
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


def described_user(told: security_pb2.DescribedUser) -> UserDescription:
    return UserDescription(
        told.name, {mechanism_from_wire(each.mechanism): each.iterations for each in told.credentials}
    )


def quota_message(wanted: QuotaAlteration) -> security_pb2.QuotaAlteration:
    """Raises InvalidArgument for what is no whole number."""
    value = wanted.value
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not NO_QUOTA <= value < 2**63):
        raise InvalidArgument(f"{wanted.key} of {wanted.entity} cannot be {value!r}: give a whole number, or None")
    return security_pb2.QuotaAlteration(entity=wanted.entity, key=wanted.key, value=value)


def told_quotas(told: Iterable[security_pb2.Quota]) -> list[Quota]:
    return [Quota(each.entity, each.key, each.value) for each in told]
