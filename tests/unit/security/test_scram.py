"""Both sides of SCRAM joined by a fake wire; what the server tells of names; and messages that are none."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.security.saslprep import UnpreparedText, saslprep
from minilog.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramClient, ScramCredential, ScramMechanism
from minilog.security.scram_messages import MAX_MESSAGE_BYTES, ScramError, ScramRefused
from minilog.security.secret import Secret
from minilog_broker.security.scram_server import WAYS, CredentialShape, ProvenUser, Refused, ScramServer, ServerState
from tests.unit.security.test_scram_client import (
    CLIENT_FINAL,
    CLIENT_FIRST,
    NONCE,
    PENCIL,
    SALT,
    SERVER_FINAL,
    SERVER_FIRST,
    WHOLE_NONCE,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
UNKNOWN_USER_SECRET = bytes(range(32))
SERVER_NONCE = WHOLE_NONCE.removeprefix(NONCE)
RFC_USER = ScramCredential.derive(SHA_256, PENCIL, salt=base64.b64decode(SALT), iterations=4096)
Wire = Callable[[bytes], bytes]


class Users:
    """Credentials by mechanism and name, as a broker's image has them."""

    def __init__(self, *names: str, password: Secret = PENCIL) -> None:
        salt = b"s" * SALT_BYTES
        self._held = {
            (mechanism, name): ScramCredential.derive(mechanism, password, salt=salt, iterations=DEFAULT_ITERATIONS)
            for mechanism in ScramMechanism
            for name in names
        }

    def __call__(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return self._held.get((mechanism, name))


ALICE = Users("alice")


def rfc_user(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
    return RFC_USER if (mechanism, name) == (SHA_256, "user") else None


def rfc_server() -> ScramServer:
    return ScramServer(SHA_256, rfc_user, SERVER_NONCE, UNKNOWN_USER_SECRET)


def server(users: Users = ALICE, mechanism: ScramMechanism = SHA_256, nonce: str = "server" * 4) -> ScramServer:
    return ScramServer(mechanism, users, nonce, UNKNOWN_USER_SECRET)


def exchange(client: ScramClient, server: ScramServer, wire: Wire = lambda message: message) -> ProvenUser | Refused:
    """The whole of it; `wire` may change each message."""
    outcome = server.final(wire(client.answer(wire(server.first(wire(client.first_message()))))))
    client.check(wire(outcome.answer))
    return outcome


def client(name: str = "alice", password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(mechanism, name, Secret(password), "client" * 4)


def test_the_exchange_of_rfc_7677() -> None:
    side = rfc_server()
    assert side.first(CLIENT_FIRST) == SERVER_FIRST
    assert side.final(CLIENT_FINAL) == ProvenUser("user", SERVER_FINAL)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_both_sides_agree(mechanism: ScramMechanism) -> None:
    user = client(mechanism=mechanism)
    outcome = exchange(user, server(mechanism=mechanism))
    assert isinstance(outcome, ProvenUser)
    assert outcome.name == "alice"
    assert user.is_done


@pytest.mark.parametrize(("name", "password"), [("alice", "pencil2"), ("bob", "pencil"), ("bob", "pencil2")])
def test_a_wrong_user_and_a_wrong_password_are_refused_in_the_same_words(name: str, password: str) -> None:
    user, broker = client(name, password), server()
    outcome = broker.final(user.answer(broker.first(user.first_message())))
    assert outcome == Refused("the user is not known or the password is wrong", b"e=invalid-proof")
    with pytest.raises(ScramRefused, match="check the name and the password"):
        user.check(outcome.answer)
    assert not user.is_done


@settings(max_examples=20, deadline=None)
@given(
    st.text(st.characters(), min_size=1, max_size=20),
    st.text(st.characters(), min_size=1, max_size=20),
    st.sampled_from(ScramMechanism),
)
def test_any_name_and_password_that_can_be_stored_can_be_used(
    name: str, password: str, mechanism: ScramMechanism
) -> None:
    try:
        stored = saslprep(name, what="the name", stored=True)
        users = Users(stored, password=Secret(password))
    except (UnpreparedText, ScramError):
        return
    user = client(name, password, mechanism)
    outcome = exchange(user, server(users, mechanism))
    assert isinstance(outcome, ProvenUser)
    assert outcome.name == stored


def challenge(name: str, users: Users = ALICE, secret: bytes = UNKNOWN_USER_SECRET) -> list[str]:
    made = ScramServer(SHA_256, users, "server" * 4, secret)
    return made.first(client(name).first_message()).decode().split(",")


def test_an_unknown_user_is_challenged_as_one_that_is_known() -> None:
    known, unknown = challenge("alice"), challenge("bob")
    assert [len(each) for each in known] == [len(each) for each in unknown]
    assert known[2] == unknown[2]  # iterations
    assert unknown == challenge("bob")
    assert unknown[1] != challenge("carol")[1]
    assert unknown[1] != challenge("bob", secret=bytes(32))[1]


def told_of(name: str, *shapes: CredentialShape, mechanism: ScramMechanism = SHA_256) -> tuple[int, int]:
    """The iterations and the length of the salt that an unknown user is told."""
    made = ScramServer(mechanism, Users(), "server" * 4, UNKNOWN_USER_SECRET, shapes=shapes)
    first = client(name, mechanism=mechanism).first_message()
    told = dict(each.split("=", 1) for each in made.first(first).decode().split(","))
    return int(told["i"]), len(base64.b64decode(told["s"]))


def test_an_unknown_user_has_what_users_have() -> None:
    """Else iterations of their own would say of users that they are there."""
    assert told_of("bob") == (DEFAULT_ITERATIONS, SALT_BYTES)
    assert told_of("bob", CredentialShape(5_000, 16)) == (5_000, 16)
    assert told_of("bob", CredentialShape(5_000, 128)) == (5_000, 128)


def test_unknown_users_have_all_that_users_have_and_each_always_the_same() -> None:
    shapes = (CredentialShape(4_096, 24), CredentialShape(16_384, 24), CredentialShape(100_000, 16))
    names = [f"user-{number}" for number in range(60)]
    found = {name: told_of(name, *shapes) for name in names}
    assert set(found.values()) == {(each.iterations, each.salt_bytes) for each in shapes}
    assert {name: told_of(name, *reversed(shapes), mechanism=SHA_512) for name in names} == found


def test_a_new_user_changes_what_few_unknown_users_are_told() -> None:
    """A user that is there is told the same until the password changes."""
    former = (CredentialShape(4_096, 24), CredentialShape(16_384, 24))
    new = CredentialShape(100_000, 24)
    for number in range(60):
        before, after = (told_of(f"user-{number}", *each) for each in (former, (*former, new)))
        assert after in (before, (new.iterations, new.salt_bytes))


def test_whom_a_client_says_that_it_is() -> None:
    side = server()
    assert side.tried == ""
    side.first(client("eve").first_message())
    assert side.tried == "user:eve"


def test_a_user_of_another_mechanism_is_unknown_to_this() -> None:
    wrong = ScramCredential.derive(SHA_512, PENCIL, salt=b"s" * SALT_BYTES, iterations=DEFAULT_ITERATIONS)
    broker, user = ScramServer(SHA_256, lambda _mechanism, _name: wrong, "server" * 4, UNKNOWN_USER_SECRET), client()
    asked = broker.first(user.first_message())
    assert asked.decode().split(",") == challenge("alice", Users())
    outcome = broker.final(user.answer(asked))
    assert isinstance(outcome, Refused)


@pytest.mark.parametrize("key_bytes", [0, 31, 64])
def test_a_credential_that_is_damaged_lets_nobody_in(key_bytes: int) -> None:
    damaged = ScramCredential(SHA_256, b"s" * SALT_BYTES, DEFAULT_ITERATIONS, bytes(key_bytes), bytes(key_bytes))
    broker, user = ScramServer(SHA_256, lambda _mechanism, _name: damaged, "server" * 4, UNKNOWN_USER_SECRET), client()
    assert isinstance(broker.final(user.answer(broker.first(user.first_message()))), Refused)


def test_a_client_without_the_password_cannot_use_what_it_has_overheard() -> None:
    """The proof belongs to both nonces."""
    user, broker = client(), server()
    proof = user.answer(broker.first(user.first_message()))
    assert isinstance(broker.final(proof), ProvenUser)
    again = server(nonce="another nonce's turn".replace(" ", "-"))
    again.first(client().first_message())
    assert again.final(proof) == Refused("the nonce belongs to another exchange", b"e=other-error")


def test_the_servers_credential_does_not_make_a_client() -> None:
    held = ALICE(SHA_256, "alice")
    assert held is not None
    broker = server()
    first = client().first_message()
    server_first = broker.first(first).decode()
    without_proof = f"c=biws,r={server_first.split(',')[0][2:]}"
    bare = ",".join((first.decode()[3:], server_first, without_proof)).encode()
    forged = base64.b64encode(SHA_256.signature(held.stored_key, bare)).decode()
    assert isinstance(broker.final(f"{without_proof},p={forged}".encode()), Refused)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"", "begins with n,,"),
        (b"\xff", "not UTF-8"),
        (b"n,,n=alice,r=" + b"x" * MAX_MESSAGE_BYTES, "at most 4096"),
        (b"n,,n=alice", "has not the attributes n, r"),
        (b"n,,r=" + b"x" * 20 + b",n=alice", "has not the attributes n, r"),
        (b"n,,m=1,n=alice,r=" + b"x" * 20, "has not the attributes n, r"),
        (b"n,,n=,r=" + b"x" * 20, "has not the attributes n, r"),
        (b"n,,n=alice,r=short", "fewer than 16"),
        (b"n,,n=alice,r=" + b"x" * 257, "a nonce that is none"),
        (b"n,,n=a=3Xb,r=" + b"x" * 20, "an escape that is none"),
        (b"n,,n=a=2cb,r=" + b"x" * 20, "an escape that is none"),
        (b"n,,n=" + b"x" * 256 + b",r=" + b"x" * 20, "a user name of 256"),
        (b"n,,n=a\x07,r=" + b"x" * 20, "an invalid user name"),
        (b"n,a=root,n=alice,r=" + b"x" * 20, "act as another user"),
        (b"n,root,n=alice,r=" + b"x" * 20, "begins with n,,"),
        (b"p=tls-exporter,,n=alice,r=" + b"x" * 20, "demands channel binding"),
        (b"x,,n=alice,r=" + b"x" * 20, "begins with n,,"),
    ],
)
def test_a_first_message_that_is_none_ends_the_exchange(message: bytes, told: str) -> None:
    broker = server()
    with pytest.raises(ScramError, match=told):
        broker.first(message)
    with pytest.raises(ScramError, match="ENDED"):
        broker.first(client().first_message())


@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,", b"n,a=us=65r,"])
def test_headers_that_bind_nothing_are_taken_where_nobody_else_is_meant(header: bytes) -> None:
    broker = rfc_server()
    first = header + CLIENT_FIRST.removeprefix(b"n,,")
    if b"=65" in header:
        with pytest.raises(ScramError, match="an escape that is none"):
            broker.first(first)
    else:
        assert broker.first(first) == SERVER_FIRST


def test_a_header_that_was_changed_on_the_way_is_noticed() -> None:
    """Who makes `y` of `n` could have a client that binds believe that we do not."""
    broker = rfc_server()
    broker.first(b"y" + CLIENT_FIRST[1:])
    outcome = broker.final(CLIENT_FINAL)
    assert isinstance(outcome, Refused)
    assert outcome.answer == b"e=channel-bindings-dont-match"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"c=biws",
        b"c=biws,r=" + WHOLE_NONCE.encode(),
        b"c=biws,r=" + WHOLE_NONCE.encode() + b",p=",
        b"c=biws,r=" + WHOLE_NONCE.encode() + b",p=AAAA",
        b"c=biws,r=" + WHOLE_NONCE.encode() + b",p=!",
        b"c=biws,m=1,r=" + CLIENT_FINAL[9:],
        CLIENT_FINAL + b",x=1",
    ],
)
def test_a_last_message_that_is_none_ends_the_exchange(message: bytes) -> None:
    broker = rfc_server()
    broker.first(CLIENT_FIRST)
    with pytest.raises(ScramError):
        broker.final(message)
    with pytest.raises(ScramError, match="ENDED"):
        broker.final(CLIENT_FINAL)


def test_each_bit_of_the_proof_counts() -> None:
    without, _, proof = CLIENT_FINAL.partition(b",p=")
    whole = int.from_bytes(base64.b64decode(proof), "big")
    for bit in range(256):
        broker = rfc_server()
        broker.first(CLIENT_FIRST)
        changed = base64.b64encode((whole ^ (1 << bit)).to_bytes(32, "big"))
        assert isinstance(broker.final(without + b",p=" + changed), Refused)


def test_methods_are_called_once_and_in_order() -> None:
    with pytest.raises(ScramError, match="NEW"):
        rfc_server().final(CLIENT_FINAL)
    done = rfc_server()
    done.first(CLIENT_FIRST)
    with pytest.raises(ScramError, match="CHALLENGED"):
        done.first(CLIENT_FIRST)
    assert isinstance(done.final(CLIENT_FINAL), ProvenUser)
    with pytest.raises(ScramError, match="ENDED"):
        done.final(CLIENT_FINAL)


def test_the_table_of_states_is_the_code() -> None:
    gone = set()

    class Noting(ScramServer):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "_state" and hasattr(self, "_state"):
                gone.add((self._state, value))
            super().__setattr__(name, value)

    for first in (b"", CLIENT_FIRST):
        broker = Noting(SHA_256, rfc_user, SERVER_NONCE, UNKNOWN_USER_SECRET)
        try:
            broker.first(first)
            broker.final(CLIENT_FINAL)
        except ScramError:
            continue
    assert gone == set(WAYS)
    assert {state for way in WAYS for state in way} == set(ServerState)


def test_a_short_secret_for_unknown_users_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        ScramServer(SHA_256, ALICE, "server" * 4, b"short")


PIECES = st.sampled_from(
    ["n,,", "n=", "r=", "c=", "p=", "m=", "a=", "y", "p=x,", ",", "alice", "biws", WHOLE_NONCE, SALT, "=2C", "=", "\0"]
)
CHANGES = st.one_of(
    st.binary(max_size=80),
    st.lists(PIECES, max_size=12).map("".join).map(str.encode),
    st.text(max_size=40).map(str.encode),
)


@settings(deadline=None)
@given(CHANGES)
def test_no_bytes_raise_anything_else_or_are_believed(message: bytes) -> None:
    fresh, asked = rfc_server(), rfc_server()
    asked.first(CLIENT_FIRST)
    for take in (fresh.first, asked.final):
        try:
            outcome = take(message)
        except ScramError:
            continue
        assert not isinstance(outcome, ProvenUser)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(0, 2_000), st.integers(1, 255))
def test_a_byte_changed_on_the_way_is_noticed_by_one_side(which: int, where: int, change: int) -> None:
    passed = 0

    def wire(message: bytes) -> bytes:
        nonlocal passed
        passed += 1
        if passed - 1 != which:
            return message
        place = where % len(message)
        return message[:place] + bytes([message[place] ^ change]) + message[place + 1 :]

    user, broker = client(), server()
    with pytest.raises(ScramError):
        exchange(user, broker, wire)
    assert not user.is_done
