"""sasl.jaas.config: what Kafka's clients write is understood, and what is not understood is told without any of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.config import parse_config
from minilog.errors import InvalidConfig
from minilog.security.jaas import JaasLogin, parse_jaas
from minilog.security.secret import Secret

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECURED = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}
ALICE = f'{MODULE} required username="alice" password="planted";'


@pytest.mark.parametrize(
    "text",
    [
        ALICE,
        f'  {MODULE}\n required\n\tpassword = "planted"\n username= alice ;\n',
        f"{MODULE} required username='alice' password='planted';",
        f"{MODULE} required username=alice password=planted;",
    ],
)
def test_texts_that_kafka_reads_are_read(text: str) -> None:
    assert parse_jaas(Secret(text)) == JaasLogin("alice", Secret("planted"), is_token=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "planted",
        ALICE.removesuffix(";"),
        ALICE + ALICE,
        ALICE.replace("required", "optional"),
        ALICE.replace("scram.Scram", "plain.Plain"),
        ALICE.replace("username", "tokenauth"),
        ALICE.replace(";", ' tokenauth="perhaps";'),
        ALICE.replace(";", ' password="planted";'),
        ALICE.replace(' username="alice"', ""),
        ALICE.replace("planted", 'plan"ted'),
        ALICE.replace("planted", "plan\\ted"),
        ALICE.replace("planted", "plan\nted"),
        ALICE.replace(' password="planted"', "password=planted"),
        "x" + ALICE,
    ],
)
def test_other_texts_are_refused_without_a_word_of_them(text: str) -> None:
    for settings, environment in (
        ({**SECURED, "sasl.jaas.config": text}, {}),
        (SECURED, {"MINILOG_SASL_JAAS_CONFIG": text}),
    ):
        with pytest.raises(InvalidConfig, match=r"sasl.jaas.config is not possible .* must be org\.apache") as refused:
            parse_config(settings, environment)
        assert not any(word in str(refused.value) for word in ("plan", 'ted"', "alice", "tokenauth"))
        assert "\n" not in str(refused.value)


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=40))
def test_any_password_can_be_said(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_jaas(Secret(f'{MODULE} required username="alice" password="{quoted}";')).password == Secret(password)


def test_a_text_has_name_and_password_of_a_client() -> None:
    config = parse_config({**SECURED, "sasl.jaas.config": ALICE}, {"MINILOG_SASL_USERNAME": "of the host"})
    assert (config.sasl_username, config.sasl_password) == ("alice", Secret("planted"))
    assert "planted" not in repr(config)
    by_host = parse_config(SECURED, {"MINILOG_SASL_JAAS_CONFIG": ALICE})
    assert (by_host.sasl_username, by_host.sasl_password) == ("alice", Secret("planted"))
    assert parse_config({**SECURED, "sasl.username": "bob"}, {"MINILOG_SASL_JAAS_CONFIG": ALICE}).sasl_username == "bob"


@pytest.mark.parametrize("name", ["sasl.username", "sasl.password"])
def test_options_given_twice_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name} and sasl.jaas.config, which sets it too"):
        parse_config({**SECURED, "sasl.jaas.config": ALICE, name: "planted"})


def test_only_text_is_one() -> None:
    with pytest.raises(InvalidConfig, match=r"sasl.jaas.config is not possible: it must be text"):
        parse_config({**SECURED, "sasl.jaas.config": 5})


TOKEN = f'{MODULE} required username="0f1e" password="planted=" tokenauth="{{}}";'


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_a_text_names_a_delegation_token(word: str) -> None:
    """As Kafka writes it."""
    assert parse_jaas(Secret(TOKEN.format(word))) == JaasLogin("0f1e", Secret("planted="), is_token=True)
    config = parse_config({**SECURED, "sasl.jaas.config": TOKEN.format(word)})
    assert (config.sasl_username, config.sasl_tokenauth) == ("0f1e", True)


def test_a_password_is_no_token() -> None:
    assert not parse_jaas(Secret(TOKEN.format("false"))).is_token
    assert not parse_config({**SECURED, "sasl.jaas.config": ALICE}, {}).sasl_tokenauth


@pytest.mark.parametrize(
    "text",
    [
        TOKEN.format("yes"),
        TOKEN.format("true").replace(";", ' tokenauth="true";'),
        f'{MODULE} required username="0f1e" tokenauth="true";',
        f'{MODULE} required password="planted" tokenauth="true";',
    ],
)
def test_other_values_of_tokenauth_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_jaas(Secret(text))
    assert "planted" not in str(refused.value)


def test_a_token_is_shown_by_scram_alone() -> None:
    told = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.file": "f"}
    with pytest.raises(InvalidConfig, match=r"^sasl.tokenauth is true"):
        parse_config({"bootstrap.servers": "b:1", **told, "sasl.tokenauth": "true"}, {})
    with pytest.raises(InvalidConfig, match=r"^sasl.tokenauth is given, and security.protocol is PLAINTEXT"):
        parse_config({"bootstrap.servers": "b:1", "sasl.tokenauth": "true"}, {})
