"""Options that are settings of the client: Kafka's names of them, and secrets, which Spark would show."""

from __future__ import annotations

import pickle

import pytest

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.table import parse_sink_options, parse_source_options
from tests.rules import proves

pytestmark = proves("SPF.20")

SOURCE = {"bootstrap.servers": "h:1", "subscribe": "t"}
SINK = {"bootstrap.servers": "h:1", "topic": "t"}
SECURED = {"minilog.security.protocol": "SASL_SSL", "minilog.sasl.username": "alice"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="planted";'
BOTH = [(parse_source_options, SOURCE), (parse_sink_options, SINK)]


@pytest.mark.parametrize(("parse", "base"), BOTH)
@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("minilog.sasl.password", "MINILOG_SASL_PASSWORD"),
        ("kafka.sasl.password", "MINILOG_SASL_PASSWORD"),
        ("MINILOG.SASL.PASSWORD", "MINILOG_SASL_PASSWORD"),
        ("kafka.sasl.jaas.config", "MINILOG_SASL_JAAS_CONFIG"),
        ("minilog.sasl.jaas.config", "MINILOG_SASL_JAAS_CONFIG"),
    ],
)
def test_a_secret_is_refused_with_where_it_belongs(parse, base, key: str, variable: str) -> None:  # type: ignore[no-untyped-def]
    for more in ({}, SECURED, {"allowsecretsinoptions": "false"}):
        with pytest.raises(InvalidOption, match=f"^option '{key}' holds a secret") as refused:
            parse({**base, **more, key: "planted"})
        said = str(refused.value)
        assert "minilog.config.file" in said
        assert variable in said
        assert "allowSecretsInOptions=true" in said
        assert "planted" not in said
        assert "\n" not in said


@pytest.mark.parametrize(("parse", "base"), BOTH)
@pytest.mark.parametrize(
    "key", ["sasl.password", "minilog.sasl.pasword", "kafka.ssl.truststore.password", "kafka.token", "pasword"]
)
def test_unknown_options_are_not_shown(parse, base, key: str) -> None:  # type: ignore[no-untyped-def]
    for allowed in ("true", "false"):
        with pytest.raises(InvalidOption, match=f"of this minilog version has no option '{key}'") as refused:
            parse({**base, key: "planted", "allowSecretsInOptions": allowed})
        assert "planted" not in str(refused.value)
        assert "did you mean 'minilog.sasl.password'" not in str(refused.value)


def test_a_misspelt_secret_is_told_where_it_belongs() -> None:
    with pytest.raises(
        InvalidOption, match=r"If you mean sasl.password, put sasl.password into the file that minilog.conf"
    ):
        parse_source_options({**SOURCE, "minilog.sasl.pasword": "planted"})


@pytest.mark.parametrize(("parse", "base"), BOTH)
def test_a_secret_option_may_be_allowed(parse, base) -> None:  # type: ignore[no-untyped-def]
    allowed = {**base, **SECURED, "allowsecretsinoptions": "TRUE"}
    assert parse({**allowed, "minilog.sasl.password": "x"}).client["sasl.password"] == "x"
    jaas = {name: value for name, value in allowed.items() if name != "minilog.sasl.username"}
    assert parse({**jaas, "kafka.sasl.jaas.config": JAAS}).client["sasl.jaas.config"] == JAAS


def test_security_has_kafkas_names() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.ssl.truststore.location": "/ca.pem",
        "KAFKA.SSL.TRUSTSTORE.TYPE": "PEM",
        "minilog.sasl.oauthbearer.token.file": "/token",  # a place, no secret
    }
    assert parse_source_options({**SOURCE, **given}).client == {
        "bootstrap.servers": "h:1",
        "isolation.level": "read_committed",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
        "sasl.oauthbearer.token.file": "/token",
    }
    with pytest.raises(InvalidOption, match=r"option minilog.ssl.keystore.type='JKS' is not possible: it must be PEM"):
        parse_source_options({**SOURCE, "kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "JKS"})


def test_two_names_of_one_setting_do_not_differ() -> None:
    twice = {"kafka.security.protocol": "SSL", "minilog.security.protocol": "SSL"}
    assert parse_source_options({**SOURCE, **twice}).client["security.protocol"] == "SSL"
    with pytest.raises(InvalidOption, match=r"option 'minilog.security.protocol' is given under two names"):
        parse_source_options({**SOURCE, **twice, "kafka.security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(("parse", "base"), BOTH)
def test_settings_of_the_environment_do_not_travel(parse, base, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("MINILOG_SASL_PASSWORD", "planted")
    options = parse({**base, **SECURED})
    assert b"planted" not in pickle.dumps(options)
    assert "planted" not in repr(options)
