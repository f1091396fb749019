"""Kafka's .properties files: what Java reads of them is read, and secrets that others can read are refused.

What is expected was compared with java.util.Properties; tests/spark/test_config_file.py does so again, at random."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import minilog
from minilog.client_config import ClientConfig
from minilog.config import config_names, parse_config
from minilog.errors import InvalidConfig
from minilog.properties import parse_properties
from minilog.security.secret import Secret, is_secret

TYPICAL = """\
# made by hand
! and this is a comment, too
bootstrap.servers=127.0.0.1:9092,127.0.0.1:9093

  client.id : nightly report
linger.ms 5
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="alice" \\
    password="a=b:c";
path=C:\\\\data\\tlogs
"""


def test_a_typical_file_is_read_as_java_reads_it() -> None:
    assert parse_properties(TYPICAL) == {
        "bootstrap.servers": "127.0.0.1:9092,127.0.0.1:9093",
        "client.id": "nightly report",
        "linger.ms": "5",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="a=b:c";',
        "path": "C:\\data\tlogs",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("\\", {}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("a  b", {"a": "b"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b\\:c=d", {"a=b:c": "d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b  \t", {"a": "b"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=x\\zy\\", {"a": "xzy"}),
        ("a=b\\\r\n  c\rd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# a \\\nb=c", {"b": "c"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("\\\n# a", {}),
        ("a=b#c", {"a": "b#c"}),
        ("a=\x0b\u2028x\x85y", {"a": "\u2028x\x85y"}),
    ],
)
def test_each_rule_of_the_format(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize("text", ["a=b\nc=\\u12x4", "a=b\nc=\\u", "\nc\\uzzzz=hidden"])
def test_a_broken_escape_is_told_by_its_line_alone(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^line 2 has \\u without four hexadecimal digits") as refused:
        parse_properties(text)
    assert "hidden" not in str(refused.value)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="line 1 has half of a character"):
        parse_properties("a=\\ud83d")


def stored(text: str, *, is_key: bool) -> str:
    """As `Properties.store` writes it: all that means anything is escaped, and what is no ASCII."""
    out = []
    for position, each in enumerate(text):
        if each == " " and (is_key or position == 0):
            out.append("\\ ")
        elif each in "\t\n\r\f":
            out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[each])
        elif each in "=:#!\\":
            out.append("\\" + each)
        elif " " <= each <= "~":
            out.append(each)
        else:
            halves = each.encode("utf-16-be")
            out += [f"\\u{halves[at : at + 2].hex()}" for at in range(0, len(halves), 2)]
    return "".join(out)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=8))
def test_properties_stored_by_java_are_read_back(settings: dict[str, str]) -> None:
    lines = [f"{stored(key, is_key=True)}={stored(value, is_key=False)}" for key, value in settings.items()]
    trimmed = {key: value.strip("".join(map(chr, range(33)))) for key, value in settings.items()}
    assert parse_properties("#a comment\n" + "\n".join(lines)) == trimmed


@given(st.text(st.sampled_from("ab=: \t\f\\\n\r#!u0\u00e9"), max_size=40))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    if re.search(r"(?<!\\)(\\\\)*\\u", text) is None:
        found = parse_properties(text)
        assert all(value == value.strip() for value in found.values())
        assert len(found) <= len(text.splitlines())
        return
    with contextlib.suppress(InvalidConfig):  # in a comment it means nothing
        assert isinstance(parse_properties(text), dict)


@given(st.text(st.sampled_from("ab=: \\#!"), max_size=30), st.text(st.sampled_from("ab=: \\#!"), max_size=30))
def test_a_line_may_go_on_in_the_next_one(head: str, tail: str) -> None:
    """Behind an escape and before a blank it would be another line, and comments do not go on."""
    assume(head.strip() and head.strip()[0] not in "#!" and not head.endswith("\\") and not tail.startswith(" "))
    line = head + tail
    assert parse_properties(head + "\\\n \t" + tail) == parse_properties(line)


@pytest.mark.parametrize(
    ("content", "value"),
    [("a=é".encode(), "é"), ("a=é".encode("latin-1"), "é"), (b"\xef\xbb\xbfa=b", "b")],
)
def test_files_are_utf_8_or_else_latin_1(tmp_path: pathlib.Path, content: bytes, value: str) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(content)
    assert minilog.properties_file(file) == {"a": value}
    assert minilog.properties_file(str(file)) == {"a": value}


SECRETS = [
    "ssl.key.password",
    "ssl.truststore.password",
    "sasl.jaas.config",
    "client.secret",
    "bearer.token",
    "ssl.keystore.key",
]


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_can_read_is_refused(tmp_path: pathlib.Path, key: str, mode: int) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"client.id=c\n{key}=hidden\n")
    file.chmod(mode)
    with pytest.raises(InvalidConfig) as refused:
        minilog.properties_file(file)
    assert str(refused.value) == f"{file} holds {key!r}, and other users may read it: chmod 600 {file}"
    file.chmod(0o600)
    assert minilog.properties_file(file)[key] == "hidden"


def test_a_file_without_secrets_may_be_read_by_all(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=c\n")
    file.chmod(0o644)
    assert minilog.properties_file(file) == {"client.id": "c"}
    places = ("ssl.keystore.location", "sasl.oauthbearer.token.file", "ssl.password.location")
    assert not any(is_secret(name) for name in ("client.id", "bootstrap.servers", *places))


def test_secrets_of_a_client_are_secrets_in_a_file_too() -> None:
    values = vars_of(parse_config({"bootstrap.servers": "a:1"}))
    kept = {name.replace("_", ".") for name, value in values.items() if isinstance(value, Secret)}
    assert kept == {name for name in config_names() if is_secret(name)} - {"sasl.jaas.config"} == {"sasl.password"}


def vars_of(config: ClientConfig) -> dict[str, object]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def test_a_file_of_kafkas_clients_with_jaas(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=org.apache."
        'kafka.common.security.scram.ScramLoginModule required \\\n  username="alice" \\\n  password="a=b:c";\n'
    )
    file.chmod(0o600)
    config = parse_config(minilog.properties_file(file))
    assert (config.sasl_username, config.sasl_password) == ("alice", Secret("a=b:c"))


def test_texts_that_are_no_properties_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none cannot be read \(No such file or directory\)"):
        minilog.properties_file(tmp_path / "none")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        minilog.properties_file(tmp_path)
    large = tmp_path / "large"
    large.write_bytes(b"a" * (1024 * 1024 + 1))
    with pytest.raises(InvalidConfig, match="is longer than"):
        minilog.properties_file(large)
    large.write_text("a=\\u")
    with pytest.raises(InvalidConfig, match=rf"^{large}: line 1 has"):
        minilog.properties_file(large)


def test_names_that_no_client_has_are_refused_by_the_client(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nlinger.msec=5\n")
    with pytest.raises(InvalidConfig, match=r"no setting 'linger.msec': the nearest is 'linger.ms'"):
        minilog.Admin(minilog.properties_file(file))
