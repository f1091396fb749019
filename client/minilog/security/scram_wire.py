"""Credentials on the wire and in records. Pure."""

from __future__ import annotations

from minilog.errors import InvalidArgument
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.v1 import security_pb2

_NUMBERS = {
    ScramMechanism.SCRAM_SHA_256: security_pb2.SCRAM_MECHANISM_SCRAM_SHA_256,
    ScramMechanism.SCRAM_SHA_512: security_pb2.SCRAM_MECHANISM_SCRAM_SHA_512,
}
_MECHANISMS = {number: mechanism for mechanism, number in _NUMBERS.items()}


def mechanism_to_wire(mechanism: ScramMechanism) -> security_pb2.ScramMechanism.ValueType:
    return _NUMBERS[mechanism]


def mechanism_from_wire(number: int) -> ScramMechanism:
    """Raises InvalidArgument for one that is missing or not known."""
    try:
        return _MECHANISMS[number]  # type: ignore[index]
    except KeyError:
        names = " or ".join(ScramMechanism)
        raise InvalidArgument(f"{number} is no known mechanism of SCRAM: give {names}") from None


def verifier_of(credential: ScramCredential) -> security_pb2.ScramVerifier:
    return security_pb2.ScramVerifier(
        salt=credential.salt,
        iterations=credential.iterations,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
    )


def credential_from_wire(mechanism: ScramMechanism, message: security_pb2.ScramVerifier) -> ScramCredential:
    return ScramCredential(mechanism, message.salt, message.iterations, message.stored_key, message.server_key)
