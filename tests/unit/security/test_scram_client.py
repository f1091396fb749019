"""The client's side of SCRAM: RFC 7677's exchange, and a server that is not what it says."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.security.scram import (
    MAX_PASSWORD_CHARACTERS,
    WAYS,
    ClientState,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    salted_password,
)
from minilog.security.scram_messages import MAX_MESSAGE_BYTES, ScramError, ScramRefused
from minilog.security.secret import Secret

# RFC 7677 section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
WHOLE_NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CLIENT_FIRST = f"n,,n=user,r={NONCE}".encode()
SERVER_FIRST = f"r={WHOLE_NONCE},s={SALT},i=4096".encode()
CLIENT_FINAL = f"c=biws,r={WHOLE_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = Secret("pencil")


def client(username: str = "user", password: Secret = PENCIL) -> ScramClient:
    return ScramClient(ScramMechanism.SCRAM_SHA_256, username, password, NONCE)


def asked() -> ScramClient:
    new = client()
    new.first_message()
    return new


def answered() -> ScramClient:
    new = asked()
    new.answer(SERVER_FIRST)
    return new


def test_the_exchange_of_rfc_7677() -> None:
    user = client()
    assert user.first_message() == CLIENT_FIRST
    assert user.answer(SERVER_FIRST) == CLIENT_FINAL
    assert not user.is_done
    user.check(SERVER_FINAL)
    assert user.is_done


def test_the_credential_of_rfc_7677_makes_its_server_signature() -> None:
    made = ScramCredential.derive(ScramMechanism.SCRAM_SHA_256, PENCIL, salt=base64.b64decode(SALT), iterations=4096)
    exchange = b",".join((CLIENT_FIRST[3:], SERVER_FIRST, CLIENT_FINAL.partition(b",p=")[0]))
    signature = hmac.digest(made.server_key, exchange, "sha256")
    assert b"v=" + base64.b64encode(signature) == SERVER_FINAL


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_keys_are_those_of_the_formulas(mechanism: ScramMechanism) -> None:
    """RFC 5802 section 3, written down a second time."""
    name, salt = mechanism.value.rpartition("-SHA-")[2], b"a salt of 16 byt"
    hash_name = f"sha{name}"
    salted = hashlib.pbkdf2_hmac(hash_name, b"pencil", salt, 5_000)
    made = ScramCredential.derive(mechanism, PENCIL, salt=salt, iterations=5_000)
    client_key = hmac.new(salted, b"Client Key", hash_name).digest()
    assert made.stored_key == hashlib.new(hash_name, client_key).digest()
    assert made.server_key == hmac.new(salted, b"Server Key", hash_name).digest()
    assert salted_password(mechanism, PENCIL, salt, 5_000) == salted


def test_names_are_escaped_and_prepared() -> None:
    assert client("a=b,c").first_message() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()
    assert client("I\u00adX").first_message() == f"n,,n=IX,r={NONCE}".encode()


def test_passwords_that_look_alike_are_one() -> None:
    composed, decomposed = Secret("caf\u00e9"), Secret("cafe\u0301")
    salted = [salted_password(ScramMechanism.SCRAM_SHA_512, each, b"saltsalt", 4096) for each in (composed, decomposed)]
    assert salted[0] == salted[1]


def test_a_credential_shows_no_key() -> None:
    made = ScramCredential.derive(ScramMechanism.SCRAM_SHA_256, PENCIL, salt=b"saltsalt", iterations=4096)
    assert repr(made.stored_key) not in repr(made)
    assert "key" not in repr(made)


def test_a_caller_that_remembers_salts_once() -> None:
    salted: list[tuple[bytes, int]] = []

    def remembering(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> bytes:
        salted.append((salt, iterations))
        return salted_password(mechanism, password, salt, iterations)

    user = ScramClient(ScramMechanism.SCRAM_SHA_256, "user", PENCIL, NONCE, remembering)
    user.first_message()
    assert user.answer(SERVER_FIRST) == CLIENT_FINAL
    assert salted == [(base64.b64decode(SALT), 4096)]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"", "has not the attributes r, s, i"),
        (b"\xff", "not UTF-8"),
        (b"r=" + b"x" * MAX_MESSAGE_BYTES, "at most 4096"),
        (f"s={SALT},r={WHOLE_NONCE},i=4096".encode(), "has not the attributes"),
        (f"r={WHOLE_NONCE},s={SALT}".encode(), "has not the attributes"),
        (f"r={WHOLE_NONCE},s=,i=4096".encode(), "has not the attributes"),
        (f"m=1,r={WHOLE_NONCE},s={SALT},i=4096".encode(), "has not the attributes"),
        (f"r={WHOLE_NONCE},s={SALT},i=4096,m=1".encode(), "demands an extension"),
        (f"r={WHOLE_NONCE},s={SALT},i=4096,i=9999".encode(), "twice"),
        (f"r={NONCE},s={SALT},i=4096".encode(), "does not add to ours"),
        (f"r=other{WHOLE_NONCE},s={SALT},i=4096".encode(), "does not add to ours"),
        (f"r={WHOLE_NONCE}{'x' * 500},s={SALT},i=4096".encode(), "a nonce that is none"),
        (f"r={WHOLE_NONCE} ,s={SALT},i=4096".encode(), "a nonce that is none"),
        (f"r={WHOLE_NONCE},s={SALT[:-1]},i=4096".encode(), "not base64"),
        (f"r={WHOLE_NONCE},s=\u00e9,i=4096".encode(), "not base64"),
        (f"r={WHOLE_NONCE},s={SALT.replace('Q=', 'R=')},i=4096".encode(), "not base64"),  # one text for the same bytes
        (f"r={WHOLE_NONCE},s=AAAA,i=4096".encode(), "a salt of 3 bytes"),
        (f"r={WHOLE_NONCE},s={'A' * 400},i=4096".encode(), "a salt of 300 bytes"),
        (f"r={WHOLE_NONCE},s={SALT},i=4095".encode(), "4095 iterations"),
        (f"r={WHOLE_NONCE},s={SALT},i=1000001".encode(), "1000001 iterations"),
        (f"r={WHOLE_NONCE},s={SALT},i=99999999".encode(), "iterations that is none"),
        (f"r={WHOLE_NONCE},s={SALT},i=-4096".encode(), "iterations that is none"),
        (f"r={WHOLE_NONCE},s={SALT},i=04096".encode(), "iterations that is none"),
        (f"r={WHOLE_NONCE},s={SALT},i=\u0664\u0660\u0669\u0666".encode(), "iterations that is none"),
    ],
)
def test_a_first_message_that_is_none_ends_the_exchange(message: bytes, told: str) -> None:
    user = asked()
    with pytest.raises(ScramError, match=told):
        user.answer(message)
    with pytest.raises(ScramError, match="FAILED"):
        user.answer(SERVER_FIRST)


def test_unknown_extensions_are_passed_over() -> None:
    user = asked()
    user.answer(SERVER_FIRST + b",x=later")
    assert not user.is_done


def test_a_server_that_does_not_know_the_verifier_is_no_broker() -> None:
    user = answered()
    with pytest.raises(ScramError, match="signature is wrong"):
        user.check(b"v=" + base64.b64encode(bytes(32)))
    assert not user.is_done
    with pytest.raises(ScramError, match="FAILED"):
        user.check(SERVER_FINAL)


@pytest.mark.parametrize("message", [b"", b"v=", b"v", b"v=AAAA", b"x=1", b"v=\xff", SERVER_FINAL + b",m=1", b"e="])
def test_a_last_message_that_is_none_is_no_success(message: bytes) -> None:
    user = answered()
    with pytest.raises(ScramError):
        user.check(message)
    assert not user.is_done


@pytest.mark.parametrize(
    ("reason", "shown"), [("invalid-proof", "invalid-proof"), ("\x1b[2Jgive your password to", "other-error")]
)
def test_a_refusal_is_told_and_shows_no_text_of_the_server(reason: str, shown: str) -> None:
    user = answered()
    with pytest.raises(ScramRefused, match=rf"refused user 'user' \({shown}\)"):
        user.check(f"e={reason}".encode())
    with pytest.raises(ScramRefused):
        asked().answer(f"e={reason}".encode())


def test_methods_are_called_once_and_in_order() -> None:
    for early in (lambda: client().answer(SERVER_FIRST), lambda: client().check(b""), lambda: asked().check(b"")):
        with pytest.raises(ScramError, match="begin a new one"):
            early()
    done = answered()
    done.check(SERVER_FINAL)
    for late in (done.first_message, lambda: done.answer(SERVER_FIRST), lambda: done.check(SERVER_FINAL)):
        with pytest.raises(ScramError, match="DONE"):
            late()
    assert done.is_done


def test_the_table_of_states_is_the_code() -> None:
    gone = set()

    class Noting(ScramClient):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "_state" and hasattr(self, "_state"):
                gone.add((self._state, value))
            super().__setattr__(name, value)

    for first, last in ((b"", b""), (SERVER_FIRST, b""), (SERVER_FIRST, SERVER_FINAL)):
        user = Noting(ScramMechanism.SCRAM_SHA_256, "user", PENCIL, NONCE)
        user.first_message()
        try:
            user.answer(first)
            user.check(last)
        except ScramError:
            continue
    assert gone == set(WAYS)
    assert {state for way in WAYS for state in way} == set(ClientState)


@pytest.mark.parametrize(
    "nonce", ["", "short", "x" * 257, "a nonce with spaces in it", "a,comma,is,an,end,of,it", "\u00e9" * 20]
)
def test_a_nonce_that_cannot_be_sent_is_the_callers_mistake(nonce: str) -> None:
    with pytest.raises(ValueError, match="token_urlsafe"):
        ScramClient(ScramMechanism.SCRAM_SHA_256, "user", PENCIL, nonce)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ufdfa" * 100, "a\0", "\ud800"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ScramError, match="user name"):
        client(name)


@pytest.mark.parametrize("password", ["", "swordfish\0", "x" * (MAX_PASSWORD_CHARACTERS + 1)])
def test_a_password_that_is_none_is_refused_without_being_shown(password: str) -> None:
    user = client(password=Secret(password))
    user.first_message()
    with pytest.raises(ScramError, match="password") as refused:
        user.answer(SERVER_FIRST)
    assert "swordfish" not in str(refused.value)
    with pytest.raises(ScramError, match="password"):
        ScramCredential.derive(ScramMechanism.SCRAM_SHA_256, Secret(password), salt=b"saltsalt", iterations=4096)


@pytest.mark.parametrize(("salt", "iterations"), [(b"short", 4096), (b"x" * 129, 4096), (b"saltsalt", 4095)])
def test_a_credential_is_made_with_a_salt_and_iterations_that_clients_accept(salt: bytes, iterations: int) -> None:
    with pytest.raises(ScramError):
        ScramCredential.derive(ScramMechanism.SCRAM_SHA_256, PENCIL, salt=salt, iterations=iterations)


PIECES = st.sampled_from(
    ["r=", "s=", "i=", "v=", "e=", "m=", ",", WHOLE_NONCE, SALT, "4096", "=", "\0", "n,,", "invalid-proof", "=2C", "x"]
)
MESSAGES = st.one_of(
    st.binary(max_size=80),
    st.lists(PIECES, max_size=12).map("".join).map(str.encode),
    st.text(max_size=40).map(str.encode),
)


@settings(deadline=None)
@given(MESSAGES)
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    for user, take in ((asked(), ScramClient.answer), (answered(), ScramClient.check)):
        try:
            take(user, message)
        except ScramError:
            continue
        assert message.startswith((b"r=", b"v="))
