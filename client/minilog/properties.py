"""Kafka's client.properties: the format of Java's `java.util.Properties`, as a dictionary for any of the clients.

The result is the same as in Java and Kafka: the last of several equal keys counts, and white space around a value does
not. A file is UTF-8, or else Latin-1. The constructor of a client checks names and values (config.py). No error shows
the content of a file, since it may be a password. An error names a line by its number.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from minilog.errors import InvalidConfig
from minilog.security.secret import is_secret

_MAX_BYTES = 1024 * 1024  # some dozen lines, and perhaps certificates. A longer file is not a .properties file
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_NEWLINE = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_TRIMMED = "".join(map(chr, range(0x21)))  # what Java's trim takes off
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
# A key ends before the first blank, = or : that no backslash stands before; behind it blanks, and one = or :.
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def properties_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a .properties file, for `Producer`, `Consumer` and `Admin`.

    Raises InvalidConfig for a file that this process cannot read, for a file in another form, and for a file with a
    secret that other users than its owner may read.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidConfig(f"{name} cannot be read ({error.strerror}): name a .properties file") from None
    if len(content) > _MAX_BYTES:
        raise InvalidConfig(f"{name} is longer than {_MAX_BYTES} bytes: name a .properties file")
    try:
        settings = parse_properties(_decoded(content))
    except InvalidConfig as error:
        raise InvalidConfig(f"{name}: {error}") from None
    secret = next((key for key in settings if is_secret(key)), None)
    if secret is not None and mode & _OTHERS_READ:
        raise InvalidConfig(f"{name} holds {secret!r}, and other users may read it: chmod 600 {name}")
    return settings


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a .properties file. Raises InvalidConfig that names the line."""
    settings = {}
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # it matches the empty text
        key, value = _unescaped(match[1], number), _unescaped(line[match.end() :], number)
        settings[key] = value.strip(_TRIMMED)
    return settings


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with content, with their numbers. Comments are left out, and continued lines are joined."""
    begun, first = "", 0
    for number, natural in enumerate(_NEWLINE.split(text), start=1):
        part = natural.lstrip(_BLANKS)
        if not begun:
            if not part or part[0] in "#!":
                continue
            first = number
        if _goes_on(part):
            begun += part[:-1]
            continue
        yield first, begun + part
        begun = ""
    if begun:
        yield first, begun


def _goes_on(line: str) -> bool:
    """Whether a line ends in a backslash that is not escaped itself."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise InvalidConfig(
                f"line {line} has \\u without four hexadecimal digits behind it: write \\uXXXX, or \\\\u"
            )
        return _ESCAPED.get(match[2], match[2])

    plain = _ESCAPE.sub(character, text)
    try:
        # Java's characters are halves of those above U+FFFF.
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise InvalidConfig(f"line {line} has half of a character (\\uD800 to \\uDFFF): write both halves") from None
