"""The settings of a console have no credentials."""

from __future__ import annotations

import pytest

from minilog.addresses import is_loopback
from minilog.config import parse_config
from minilog.errors import InvalidConfig
from minilog_tools.console.settings import console_settings, viewer_client

SECURED = {
    "bootstrap.servers": "127.0.0.1:9092",
    "security.protocol": "SASL_SSL",
    "ssl.truststore.location": "/etc/minilog/clients.pem",
}


def test_credentials_of_the_file_are_lent_to_nobody() -> None:
    given = {**SECURED, "sasl.username": "admin", "sasl.password": "secret"}
    settings = console_settings(given, has_actions=False, has_tls=False)
    assert settings.has_logins
    assert "secret" not in str(settings.client)
    assert not {name for name in settings.client if name.startswith("sasl.")}


def test_a_viewer_brings_his_own() -> None:
    settings = console_settings({**SECURED, "sasl.mechanism": "SCRAM-SHA-256"}, has_actions=False, has_tls=False)
    client = viewer_client(settings, "alice", "own", is_token=True)
    config = parse_config(client)
    assert (config.sasl_username, config.sasl_tokenauth) == ("alice", True)
    assert config.sasl_mechanism == "SCRAM-SHA-256"


def test_a_certificate_would_be_lent_to_everybody() -> None:
    given = {**SECURED, "security.protocol": "SSL", "ssl.keystore.location": "/etc/minilog/me.pem"}
    with pytest.raises(InvalidConfig, match="lend the rights"):
        console_settings(given, has_actions=False, has_tls=False)


def test_a_setting_that_is_wrong_is_told_at_the_start() -> None:
    with pytest.raises(InvalidConfig, match="no-port"):
        console_settings({"bootstrap.servers": "no-port"}, has_actions=False, has_tls=False)


def test_a_cluster_in_the_clear_has_no_logins() -> None:
    assert not console_settings({"bootstrap.servers": "127.0.0.1:1"}, has_actions=False, has_tls=False).has_logins


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LOCALHOST", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback_is_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected
