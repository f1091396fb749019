"""SCRAM on a broker, for users of the metadata, for users of a file, and for delegation tokens.

The users of the file need no metadata: they are the first administrators. A client with a token gives the token's id as
the name and its secret as the password (tokenauth=true in the first message, as in Kafka). A token is never a user, and
a user never a token, whatever their names are.

The file has one JSON object a line: name, mechanism, iterations, and salt, stored_key, server_key in base64 (`minilog
user verifier` makes one). It counts before the metadata, since its owner controls the broker anyway.
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
from minilog_broker.security.delegation_token import IssuedToken
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.scram_server import CredentialShape, FindCredential, ProvenUser, ScramServer
from minilog_broker.server.access.server_mechanism import ServerMechanism

Credentials = Mapping[tuple[str, ScramMechanism], ScramCredential]


class ScramUsers:
    """The users and tokens of this broker. `common_secret`: known to all brokers, and to no client. Raises
    InvalidConfig where the file is not valid."""

    def __init__(self, image: MetadataImage, file: str, wall_us: Callable[[], int], common_secret: bytes = b"") -> None:
        self._image = image
        self._wall_us = wall_us
        content = _read(file) if file else b""
        self._of_file: Credentials = dict(_parsed(content, file))
        # The same on all brokers, and after a restart: else two brokers would send two salts for an unknown user.
        self._unknown_user_secret = hashlib.sha256(b"users that are not known" + common_secret + content).digest()
        self._former_users = dict(image.users)
        self._shapes = self._shapes_of_all()
        self._former_tokens = dict(image.tokens)

    def begin(self, mechanism: str) -> ServerMechanism:
        """Begin an exchange. Raises AuthenticationFailed."""
        if mechanism not in tuple(ScramMechanism):
            raise AuthenticationFailed(f"this broker does not take the mechanism {mechanism[:40]!a}")
        return _Exchange(ScramMechanism(mechanism), self, self._unknown_user_secret)

    def shapes(self, mechanism: ScramMechanism) -> Sequence[CredentialShape]:
        """The shapes of users' credentials, the most frequent first."""
        return self._shapes.get(mechanism, ())

    def _shapes_of_all(self) -> dict[ScramMechanism, Sequence[CredentialShape]]:
        counted = {mechanism: Counter[CredentialShape]() for mechanism in ScramMechanism}
        of_image = (credential for credentials in self._image.users.values() for credential in credentials.values())
        for credential in (*self._of_file.values(), *of_image):
            counted[credential.mechanism][CredentialShape.of(credential)] += 1
        return {
            mechanism: sorted(counts, key=lambda shape: (-counts[shape], shape))
            for mechanism, counts in counted.items()
        }

    def find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """The credential of a user."""
        return self._of_file.get((name, mechanism)) or self._image.users.get(name, {}).get(mechanism)

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential | None:
        """The credential of a delegation token that is not expired."""
        token = self._image.tokens.get(token_id)
        return None if token is None or token.is_expired(self._wall_ms()) else token.credentials.get(mechanism)

    def token(self, token_id: str) -> tuple[IssuedToken, float]:
        """A token that was found, and its remaining milliseconds. Raises KeyError."""
        token = self._image.tokens[token_id]
        return token, token.expiry_timestamp_ms - self._wall_ms()

    def _wall_ms(self) -> float:
        return self._wall_us() / 1000

    def take_changed_tokens(self) -> frozenset[str]:
        """The tokens that are gone since the last call, or that end sooner."""
        former, now = self._former_tokens, dict(self._image.tokens)
        self._former_tokens = now
        return frozenset(
            token_id
            for token_id, token in former.items()
            if token_id not in now or now[token_id].expiry_timestamp_ms < token.expiry_timestamp_ms
        )

    def take_changed(self) -> frozenset[str]:
        """The users whose credentials have changed since the last call, or are gone."""
        former, self._former_users = self._former_users, dict(self._image.users)
        self._shapes = self._shapes_of_all()
        return frozenset(name for name, credentials in former.items() if self._former_users.get(name) != credentials)


class _Exchange:
    """One exchange of SCRAM as AuthenticationService drives it."""

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, unknown_user_secret: bytes) -> None:
        self._mechanism = mechanism
        self._users = users
        nonce = secrets.token_urlsafe(24)
        self._server = ScramServer(
            mechanism,
            self._noting(users.find),
            nonce,
            unknown_user_secret,
            self._noting(users.find_token),
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

    def _noting(self, find: FindCredential) -> FindCredential:
        def find_and_note(mechanism: ScramMechanism, name: str) -> ScramCredential | None:
            self._credential = find(mechanism, name)
            return self._credential

        return find_and_note

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
        if not isinstance(judged, ProvenUser):
            raise AuthenticationFailed(judged.reason)
        find = self._users.find_token if judged.is_token else self._users.find
        if find(self._mechanism, judged.name) != self._credential:
            raise AuthenticationFailed("the user was deleted during the login, or got another password")
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
        raise InvalidConfig(
            f"other users may read sasl.scram.users.file={file}, which holds secrets: run chmod 600 {file}"
        )
    return content


def _parsed(content: bytes, file: str) -> Iterator[tuple[tuple[str, ScramMechanism], ScramCredential]]:
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            try:
                document = json.loads(line)
                mechanism = ScramMechanism(document["mechanism"])
                keys = {key: base64.b64decode(document[key], validate=True) for key in _KEYS}
                credential = ScramCredential(mechanism, iterations=int(document["iterations"]), **keys)
                if {len(keys["stored_key"]), len(keys["server_key"])} != {mechanism.digest_bytes}:
                    raise ValueError("a key has a wrong length")
                yield (str(document["name"]), mechanism), credential
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidConfig(
                    f"sasl.scram.users.file={file}: line {number} is not a verifier ({error!r})"
                ) from None


_KEYS = ("salt", "stored_key", "server_key")


def verifier_line(name: str, credential: ScramCredential) -> str:
    """The line of a credential for such a file."""
    keys = {field: base64.b64encode(getattr(credential, field)).decode() for field in _KEYS}
    document = {"name": name, "mechanism": str(credential.mechanism), "iterations": credential.iterations, **keys}
    return json.dumps(document) + "\n"
