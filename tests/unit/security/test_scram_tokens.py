"""SCRAM with a delegation token: Kafka's tokenauth=true in the client's first message."""

from __future__ import annotations

import pytest

from minilog.security.scram import DEFAULT_ITERATIONS, LoginKind, ScramClient, ScramMechanism
from minilog.security.scram_messages import ScramError
from minilog.security.secret import Secret
from minilog_broker.security.scram_server import CredentialShape, ProvenUser, Refused, ScramServer
from tests.rules import proves
from tests.unit.security.test_scram import SHA_256, UNKNOWN_USER_SECRET, Users

pytestmark = proves("MD.29")

HMAC = "planted+secret=="
TOKENS, USERS = Users("0f1e", "alice", password=Secret(HMAC)), Users("alice", "0f1e")
BOTH = list(ScramMechanism)


def server(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, USERS, "server" * 4, UNKNOWN_USER_SECRET, TOKENS)


def client(
    name: str = "0f1e",
    secret: str = HMAC,
    mechanism: ScramMechanism = SHA_256,
    kind: LoginKind = LoginKind.DELEGATION_TOKEN,
) -> ScramClient:
    return ScramClient(mechanism, name, Secret(secret), "client" * 4, kind=kind)


def judged(side: ScramClient, broker: ScramServer) -> ProvenUser | Refused:
    return broker.final(side.answer(broker.first(side.first_message())))


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_token_proves_itself(mechanism: ScramMechanism) -> None:
    side, broker = client(mechanism=mechanism), server(mechanism)
    outcome = judged(side, broker)
    assert isinstance(outcome, ProvenUser)
    assert (outcome.name, outcome.is_token) == ("0f1e", True)
    side.check(outcome.answer)


def test_the_first_message_is_kafkas() -> None:
    assert client().first_message() == b"n,,n=0f1e,r=clientclientclientclient,tokenauth=true"


def test_a_password_is_shown_as_before() -> None:
    side = client("alice", "pencil", kind=LoginKind.PASSWORD)
    outcome = judged(side, server())
    assert isinstance(outcome, ProvenUser)
    assert (outcome.name, outcome.is_token) == ("alice", False)


@pytest.mark.parametrize(
    ("name", "secret", "kind"),
    [
        ("0f1e", "another", LoginKind.DELEGATION_TOKEN),
        ("nobody", HMAC, LoginKind.DELEGATION_TOKEN),
        ("0f1e", HMAC, LoginKind.PASSWORD),
        ("alice", "pencil", LoginKind.DELEGATION_TOKEN),
    ],
    ids=["wrong hmac", "unknown token", "a token as a user", "a user as a token"],
)
def test_wrong_tokens_are_refused_alike(name: str, secret: str, kind: LoginKind) -> None:
    outcome = judged(client(name, secret, kind=kind), server())
    assert outcome == Refused("the user is not known or the password is wrong", b"e=invalid-proof")


def test_a_token_that_is_not_known_is_asked_as_one_that_is() -> None:
    """By the first answer nobody learns which ids there are."""
    told = {name: server().first(client(name).first_message()).decode() for name in ("0f1e", "0000")}
    assert {each.rpartition(",i=")[2] for each in told.values()} == {str(DEFAULT_ITERATIONS)}
    assert len({len(each) for each in told.values()}) == 1
    assert server().first(client("0000").first_message()).decode() == told["0000"]


def challenge(name: str, kind: LoginKind) -> str:
    """What tells of the name in the server's first answer."""
    told = server().first(client(name, kind=kind).first_message()).decode()
    return told.partition(",")[2]


@pytest.mark.parametrize("name", ["0000", "nobody"])
def test_a_name_is_not_told_by_asking_for_it_in_both_ways(name: str) -> None:
    """One salt for both said that it is neither a user nor a token, and two that it is one of them."""
    assert challenge(name, LoginKind.PASSWORD) != challenge(name, LoginKind.DELEGATION_TOKEN)


def test_an_unknown_token_has_what_tokens_have_whatever_users_have() -> None:
    side = ScramServer(SHA_256, USERS, "server" * 4, UNKNOWN_USER_SECRET, TOKENS, (CredentialShape(5_000, 16),))
    told = side.first(client("0000").first_message()).decode()
    assert told.endswith(f",i={DEFAULT_ITERATIONS}")
    assert side.tried == "delegation-token:0000"


@pytest.mark.parametrize("word", ["false", "TRUE", "true,tokenauth=true", "true,x=y", ""])
def test_another_word_is_no_message_of_scram(word: str) -> None:
    message = f"n,,n=0f1e,r=clientclientclientclient,tokenauth={word}".encode()
    with pytest.raises(ScramError):
        server().first(message)


def test_a_removed_tokenauth_is_found_out() -> None:
    """What both have said is part of the proof."""
    side, broker = client("alice", HMAC), server()
    message = side.first_message().removesuffix(b",tokenauth=true")
    assert isinstance(broker.final(side.answer(broker.first(message))), Refused)
