"""Addresses of documents: https alone, with nothing in them that must not be shown."""

from __future__ import annotations

import pytest

from minilog_broker.security.https_url import HttpsUrl


def test_a_url_is_a_host_a_port_and_what_is_asked_for() -> None:
    assert HttpsUrl.parse("https://issuer.example") == HttpsUrl("issuer.example", 443, "/")
    found = HttpsUrl.parse("HTTPS://Issuer.Example:8443/realms/a/certs?p=x&q")
    assert found == HttpsUrl("issuer.example", 8443, "/realms/a/certs?p=x&q")
    assert found.authority == "issuer.example:8443"
    assert HttpsUrl.parse("https://[::1]:8443/").authority == "[::1]:8443"


def test_a_query_is_never_shown() -> None:
    assert str(HttpsUrl.parse("https://issuer.example/jwks?key=hunter2")) == "https://issuer.example/jwks?***"


@pytest.mark.parametrize(
    "text",
    [
        "http://issuer.example/jwks",
        "file:///etc/keys",
        "ftp://issuer.example",
        "issuer.example/jwks",
        "//issuer.example/jwks",
        "https:/issuer.example",
        "https://",
        "https:///jwks",
        "https://alice:hunter2@issuer.example/",
        "https://alice@issuer.example/",
        "https://issuer.example/#hunter2",
        "https://issuer.example\\@evil.example/",
        "https://issuer.example/a b",
        "https://issuer.example/\r\nHost: evil.example",
        "https://issuer.example:0/",
        "https://issuer.example:65536/",
        "https://issuer.example:x/",
        "https://[::1/",
        "https://\u0456ssuer.example/",
        "https://issuer.example/" + "x" * 3_000,
        "https://%41.example/",
        "",
    ],
)
def test_everything_else_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        HttpsUrl.parse(text)
    assert "hunter2" not in str(refused.value)
