"""What is derived of a password is what section 3 of RFC 7677 has, and the iterations are bounded."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from minilog.errors import UnacceptableCredential
from minilog.security.scram import ScramCredential, ScramMechanism

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
AUTH_MESSAGE = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}".encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_keys_are_those_of_the_rfc() -> None:
    credential = ScramCredential.derive(ScramMechanism.SCRAM_SHA_256, "pencil", salt=SALT, iterations=4_096)
    assert hmac.digest(credential.server_key, AUTH_MESSAGE, "sha256") == SIGNATURE
    signature = hmac.digest(credential.stored_key, AUTH_MESSAGE, "sha256")
    client_key = bytes(one ^ other for one, other in zip(PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_key_is_as_long_as_its_hash(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.derive(mechanism, "pencil", salt=SALT, iterations=4_096)
    assert {len(credential.stored_key), len(credential.server_key)} == {mechanism.digest_bytes}


@pytest.mark.parametrize(("password", "iterations"), [("", 4_096), ("pencil", 4_095), ("pencil", 1_000_001)])
def test_what_is_no_password_or_costs_too_little_or_too_much_is_refused(password: str, iterations: int) -> None:
    with pytest.raises(UnacceptableCredential):
        ScramCredential.derive(ScramMechanism.SCRAM_SHA_512, password, salt=SALT, iterations=iterations)
