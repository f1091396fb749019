"""delegationTokens=true: only the driver logs in by its settings, and its tasks log in by a delegation token.

The token travels in the objects that Spark pickles for a task, and nowhere else: no option, plan, log or repr has it.
Spark makes Python processes on the driver for each plan, and some of them live for one micro-batch. So a file of this
user on the driver's machine keeps the token, as ssh and Kerberos do. All jobs of the user with the same login share the
file. The first process that sees that half of the token's life is over renews it (token_life.py). The process of a
stream also looks during a long micro-batch.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import pathlib
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from minilog.addresses import address_text
from minilog.security.secret import Secret
from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.login.token_life import KeptToken, Step
from pyspark_minilog.options.client_options import DELEGATION_TOKENS as OPTION
from pyspark_minilog.options.table import SinkOptions, SourceOptions

logger = logging.getLogger(__name__)

_Options = TypeVar("_Options", SourceOptions, SinkOptions)
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.2, 60.0
_AFTER_FAILURE_S = 2.0
_BELIEVED_S = 30.0  # after this time the driver asks again whether the token still exists


class TaskLogin:
    """The client settings of a task, in the place of the driver's settings. Its repr shows none of them. Spark pickles
    it for the tasks."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, str | Secret]) -> None:
        self._settings = dict(settings)

    def applied(self, options: _Options) -> _Options:
        """The options of a task."""
        return replace(options, client=dict(self._settings))

    def __repr__(self) -> str:
        return "TaskLogin(***)"

    def __reduce__(self) -> tuple[object, tuple[dict[str, str], dict[str, str]]]:
        plain = {name: value for name, value in self._settings.items() if isinstance(value, str)}
        secret = {name: value.reveal() for name, value in self._settings.items() if isinstance(value, Secret)}
        return _restored, (plain, secret)


def _restored(plain: dict[str, str], secret: dict[str, str]) -> TaskLogin:
    return TaskLogin(plain | {name: Secret(value) for name, value in secret.items()})


def as_task(options: _Options, login: TaskLogin | None) -> _Options:
    """The options of a task. They are unchanged if the task logs in like the driver."""
    return options if login is None else login.applied(options)


def task_login(options: SourceOptions | SinkOptions) -> TaskLogin | None:
    """The login for the tasks that the driver plans now, or None if they log in like the driver. Runs on the driver.
    Raises InvalidOption, MinilogError."""
    if not options.delegates:
        return None
    login, _ = _current(options.client)
    return login


class LoginKeeper:
    """The task login of a stream. While the stream lives, a thread renews the token, also between two micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def login(self) -> TaskLogin | None:
        """Like `task_login`, and begins the thread."""
        login = task_login(self._options)
        if login is not None and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="minilog-token", daemon=True)
            self._thread.start()
        return login

    def stop(self) -> None:
        """The stream ends."""
        self._ended.set()

    def _work(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            try:
                _, kept = _current(self._options.client)
                left_s = (kept.renew_at_ms - _now_ms()) / 1000
                pause_s = min(max(left_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)
            except Exception as error:  # the next micro-batch meets the error, and raises it
                logger.warning("the delegation token of the tasks was not renewed: %s", error)
                pause_s = _AFTER_FAILURE_S


def _current(client: Mapping[str, Any]) -> tuple[TaskLogin, KeptToken]:
    """The login of the tasks of this moment. Its token has at least half of its life left."""
    from pyspark_minilog.options.config_file import with_file

    whole = with_file(client)
    common = _common_settings(whole)
    kept = _kept(whole, common)
    of_token: dict[str, str | Secret] = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": kept.token_id,
        "sasl.password": kept.hmac,
        "sasl.tokenauth": "true",
    }
    return TaskLogin({**common, **of_token}), kept


def _common_settings(whole: Mapping[str, Any]) -> dict[str, str]:
    """The driver's settings that the tasks share: all settings but the login. Raises InvalidOption if the driver cannot
    get a token."""
    from minilog.config import parse_config
    from minilog.security.protocols import SecurityProtocol

    config = parse_config(whole)
    if config.security_protocol != SecurityProtocol.SASL_SSL.value:
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but security.protocol is {config.security_protocol}: tokens need SASL_SSL, "
            "and a driver with a password or with an issuer's token. Set them in minilog.config.file, or leave the "
            "option out"
        )
    if config.sasl_tokenauth:
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but the driver itself logs in with a delegation token, and such a token "
            "cannot create another one: give the driver a password, or leave the option out"
        )
    own = ("sasl.", "ssl.keystore.")
    common = {name: str(value) for name, value in whole.items() if not name.startswith(own)}
    common["security.protocol"] = config.security_protocol
    common["ssl.truststore.location"] = config.ssl_truststore_location
    common["bootstrap.servers"] = ",".join(address_text(server) for server in config.bootstrap_servers)
    return common


def _kept(whole: Mapping[str, Any], common: Mapping[str, str]) -> KeptToken:
    """The token of the file, if it lives long enough. Otherwise this function renews it, or stores another one
    there."""
    from minilog.config import parse_config

    config = parse_config(whole)
    who = config.sasl_username or config.sasl_oauthbearer_token_file
    named = (config.sasl_mechanism, who, common["bootstrap.servers"], common["ssl.truststore.location"])
    name = hashlib.sha256("\0".join(named).encode()).hexdigest()[:32]
    path = _private_directory() / f"{name}.token"
    with _locked(path.with_suffix(".lock")):
        kept = KeptToken.from_json(path.read_text()) if path.exists() else None
        step = Step.CREATE if kept is None else kept.step(_now_ms())
        if kept is not None and step is Step.KEEP:
            if _is_fresh(path):
                return kept
            if _is_there(whole, kept):
                os.utime(path)
                return kept
        token = _renewed_or_new(whole, kept if step is Step.RENEW else None)
        _write(path, token.to_json())
    return token


def _is_fresh(path: pathlib.Path) -> bool:
    """Whether the driver created the token, or saw it at the cluster, a short time ago."""
    return 0 <= time.time() - path.stat().st_mtime < _BELIEVED_S


def _is_there(whole: Mapping[str, Any], kept: KeptToken) -> bool:
    """Whether the cluster still has the token. Somebody may have expired it, or another cluster may have the address.
    A cluster that does not answer now counts as a yes. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import MinilogError

    try:
        with Admin(whole) as admin:
            return any(token.token_id == kept.token_id for token in admin.describe_delegation_tokens())
    except MinilogError as error:
        if not error.retriable:
            raise
        logger.info("the driver could not ask whether the delegation token still exists: %s", error)
        return True


def _renewed_or_new(whole: Mapping[str, Any], kept: KeptToken | None) -> KeptToken:
    """`kept`, renewed, or a new token if there was none, or if it does not exist any more. Raises MinilogError."""
    from minilog import Admin
    from minilog.errors import DelegationTokenExpired, DelegationTokenNotFound

    with Admin(whole) as admin:
        if kept is not None:
            try:
                return kept.renewed(admin.renew_delegation_token(kept.token_id))
            except (DelegationTokenExpired, DelegationTokenNotFound) as error:
                logger.info("the driver creates another delegation token: %s", error)
        now_ms = _now_ms()
        return KeptToken.of(admin.create_delegation_token(), now_ms)


def _private_directory() -> pathlib.Path:
    """A folder that only this user can open. Raises InvalidOption if another user made it first."""
    path = pathlib.Path(tempfile.gettempdir()) / f"minilog-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ):
        raise InvalidOption(
            f"option '{OPTION}' is 'true', but {path} is not a folder of this user alone (mode 700), and the driver "
            "keeps the token there: remove it, or give the driver a TMPDIR of its own"
        )
    return path


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """A lock: one process of this user at a time."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: pathlib.Path, content: str) -> None:
    """Replace the file as a whole. After a failure the old file is still there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # mode 600
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
    os.replace(name, path)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
