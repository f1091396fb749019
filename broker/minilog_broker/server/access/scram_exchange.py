"""SCRAM on a broker: users of the metadata, those of a file that are known without it (the first administrators), and
delegation tokens, whose id is the name and whose secret the password (tokenauth=true in the first message, as Kafka
has it): a token is no user, and a user no token, whatever they are called.

The file has one JSON object a line: name, mechanism, iterations, and salt, stored_key, server_key in base64
(`minilog user verifier` makes one). It counts before the metadata: whoever may write it owns the broker anyway.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from minilog.errors import AuthenticationFailed, InvalidConfig
from minilog.security.scram import ScramCredential, ScramMechanism
from minilog.security.scram_messages import ScramError
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.delegation_token import DelegationToken
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.scram_server import Accepted, FindCredential, ScramServer, Shape
from minilog_broker.server.access.server_mechanism import ServerMechanism

Credentials = Mapping[tuple[str, ScramMechanism], ScramCredential]


class ScramUsers:
    """Whom this broker believes a password. `common_secret`: what all brokers have and no client. Raises InvalidConfig
    where the file is not right."""

    def __init__(self, image: MetadataImage, file: str, wall_us: Callable[[], int], common_secret: bytes = b"") -> None:
        self._image = image
        self._wall_us = wall_us
        content = _read(file) if file else b""
        self._of_file: Credentials = dict(_parsed(content, file))
        # The same on all brokers, and after a restart: else two of them tell two salts of an unknown user.
        self._unknown_user_secret = hashlib.sha256(b"users that are not known" + common_secret + content).digest()
        self._known = dict(image.users)
        self._shapes = self._shapes_of_all()
        self._known_tokens = dict(image.tokens)

    def begin(self, mechanism: str) -> ServerMechanism:
        """An exchange. Raises AuthenticationFailed."""
        if mechanism not in tuple(ScramMechanism):
            raise AuthenticationFailed(f"the mechanism {mechanism[:40]!a} is not taken here")
        return _Exchange(ScramMechanism(mechanism), self, self._unknown_user_secret)

    def shapes(self, mechanism: ScramMechanism) -> Sequence[Shape]:
        """Those that users' credentials have, the most frequent first."""
        return self._shapes.get(mechanism, ())

    def _shapes_of_all(self) -> dict[ScramMechanism, Sequence[Shape]]:
        counted = {mechanism: Counter[Shape]() for mechanism in ScramMechanism}
        of_image = (each for credentials in self._image.users.values() for each in credentials.values())
        for credential in (*self._of_file.values(), *of_image):
            counted[credential.mechanism][Shape.of(credential)] += 1
        return {
            mechanism: sorted(found, key=lambda shape: (-found[shape], shape)) for mechanism, found in counted.items()
        }

    def find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """Of a user."""
        return self._of_file.get((name, mechanism)) or self._image.users.get(name, {}).get(mechanism)

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """Of a delegation token that is not expired."""
        token = self._image.tokens.get(token_id)
        return None if token is None or token.is_expired(self._wall_ms()) else token.credentials.get(mechanism)

    def token(self, token_id: str) -> tuple[DelegationToken, float]:
        """One that was found, and how many milliseconds it is good for. Raises KeyError."""
        token = self._image.tokens[token_id]
        return token, token.expiry_timestamp_ms - self._wall_ms()

    def _wall_ms(self) -> float:
        return self._wall_us() / 1000

    def take_changed_tokens(self) -> frozenset[str]:
        """Tokens that are no more since the last call, or that end sooner."""
        former, now = self._known_tokens, dict(self._image.tokens)
        self._known_tokens = now
        return frozenset(
            token_id
            for token_id, each in former.items()
            if token_id not in now or now[token_id].expiry_timestamp_ms < each.expiry_timestamp_ms
        )

    def take_changed(self) -> frozenset[str]:
        """Users whose credentials are others than at the last call, or are no more."""
        former, self._known = self._known, dict(self._image.users)
        self._shapes = self._shapes_of_all()
        return frozenset(name for name, each in former.items() if self._known.get(name) != each)


class _Exchange:
    """One exchange of SCRAM as AuthenticationService drives it."""

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, unknown_user_secret: bytes) -> None:
        self._mechanism = mechanism
        self._users = users
        nonce = secrets.token_urlsafe(24)
        self._server = ScramServer(
            mechanism,
            self._found(users.find),
            nonce,
            unknown_user_secret,
            self._found(users.find_token),
            users.shapes(mechanism),
        )
        self._credential: ScramCredential | None = None
        self._challenged = False
        self.principal: Principal | None = None
        self.lifetime_ms: float | None = None
        self.token_id: str | None = None

    @property
    def tried(self) -> str:
        return self._server.tried

    def _found(self, find: FindCredential) -> FindCredential:
        def found(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
            self._credential = find(mechanism, name)
            return self._credential

        return found

    def named(self, content: bytes) -> str:
        return self._server.named(content)

    async def respond(self, content: bytes) -> bytes:
        try:
            if not self._challenged:
                self._challenged = True
                return self._server.first(content)
            judged = self._server.final(content)
        except ScramError as error:
            raise AuthenticationFailed(str(error)) from None
        if not isinstance(judged, Accepted):
            raise AuthenticationFailed(judged.reason)
        find = self._users.find_token if judged.is_token else self._users.find
        if find(self._mechanism, judged.name) != self._credential:
            raise AuthenticationFailed("the user was deleted, or got another password, meanwhile")
        if judged.is_token:
            token, left_ms = self._users.token(judged.name)
            self.token_id, self.lifetime_ms = token.token_id, max(1.0, left_ms)
            self.principal = Principal.parse(token.owner)
        else:
            self.principal = Principal(USER, judged.name)
        return judged.answer


def _read(file: str) -> bytes:
    path = pathlib.Path(file)
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"sasl.scram.users.file={file} cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidConfig(f"sasl.scram.users.file={file} is not its owner's alone: chmod 600 {file}")
    return content


def _parsed(content: bytes, file: str) -> Iterator[tuple[tuple[str, ScramMechanism], ScramCredential]]:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                told = json.loads(line)
                mechanism = ScramMechanism(told["mechanism"])
                keys = {each: base64.b64decode(told[each], validate=True) for each in _KEYS}
                credential = ScramCredential(mechanism, iterations=int(told["iterations"]), **keys)
                if {len(keys["stored_key"]), len(keys["server_key"])} != {mechanism.digest_bytes}:
                    raise ValueError("a key has another length")
                yield (str(told["name"]), mechanism), credential
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidConfig(f"sasl.scram.users.file={file}: line {number} is no verifier ({error!r})") from None


_KEYS = ("salt", "stored_key", "server_key")


def verifier_line(name: str, credential: ScramCredential) -> str:
    """A line of such a file."""
    keys = {each: base64.b64encode(getattr(credential, each)).decode() for each in _KEYS}
    told = {"name": name, "mechanism": str(credential.mechanism), "iterations": credential.iterations, **keys}
    return json.dumps(told) + "\n"
